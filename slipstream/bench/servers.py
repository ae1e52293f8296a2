"""Launching a server to measure it: until it answers, and never a moment longer than wanted."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from slipstream.bench import process_tree
from slipstream.bench.client import Target
from slipstream.bench.probe import SeveralModelsError, check_url, prepare
from slipstream.errors import UserError

_POLL_S = 0.25
_GRACE_S = 10.0  # between asking a server to stop and killing it
_CHILDREN_S = 2.0  # what its children have after it
_LOG_LINES = 15
_LOG_BYTES = 65536
_WIDTH = 400  # characters of a line that are shown
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0e-\x1b\x7f]")  # colours, bells


@dataclass(frozen=True)
class Launch:
    """How to start a server. Its standard output and error go into a log."""

    name: str  # for messages
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)  # beside our own
    directory: Path | None = None
    ready_s: float = 600.0  # how long it may take until it answers
    ready_url: str | None = None  # answers 200 before a completion is worth trying

    def check(self) -> None:
        """Raises ``UserError`` if there is no such program."""
        program = self.command[0]
        path = {**os.environ, **self.environment}.get("PATH", os.defpath)
        where = f" along the PATH {path}"
        if os.sep in program:
            program, where = str(Path(self.directory or "", program).absolute()), ""
        if shutil.which(program, path=path) is None:
            raise UserError(f"{self.name}: there is no program {program}{where}")


def taken(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=5):
        return True
    return False


def free_port() -> int:
    """A port of this machine that nobody has at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class NeverReadyError(UserError):
    """A server runs, but does not answer in time."""


class Server:
    """A launched server, stopped with all its children when the block ends.

    Also when this process is killed: a guard process waits for that. Raises ``UserError`` if the
    command cannot be run.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.mark = uuid.uuid4().hex
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the server
        environment = {**os.environ, **launch.environment, process_tree.MARK: self.mark}
        try:
            self.process = subprocess.Popen(
                launch.command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                cwd=launch.directory,
                env=environment,
                start_new_session=True,  # a terminal's Ctrl-C is ours to handle
            )
        except (OSError, ValueError) as error:  # ValueError: a zero byte, a variable's bad name
            self._log.close()
            reason = error.strerror if isinstance(error, OSError) else error
            raise UserError(f"{launch.name}: cannot run {launch.command[0]}: {reason}") from error
        try:
            self._guard = self._start_guard()
        except BaseException:
            process_tree.end_all(self.mark, self.process.pid)
            raise

    def _start_guard(self) -> "subprocess.Popen[bytes]":
        program = ["-m", process_tree.__name__, self.mark, str(self.process.pid)]
        return subprocess.Popen(
            [sys.executable, *program], stdin=subprocess.PIPE, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def ready(
        self, wanted: Target, waiting: Callable[[str], None] = lambda reason: None
    ) -> tuple[Target, list[str]]:
        """Wait until the server completes a request, and give what ``probe.prepare`` gives.

        ``waiting`` is told again and again why it is not ready yet. Raises ``UserError``, with the
        end of the log, if the server ends, ``SeveralModelsError`` if it serves more than one, and
        ``NeverReadyError`` if it takes too long.
        """
        reason = "no attempt yet"
        try:
            async with asyncio.timeout(self.launch.ready_s):
                while True:
                    self.check()
                    try:
                        if self.launch.ready_url:
                            await check_url(self.launch.ready_url)
                        return await prepare(wanted)
                    except SeveralModelsError:
                        raise
                    except UserError as error:
                        reason = str(error)
                        waiting(reason)
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise NeverReadyError(
                f"{self.launch.name} was not ready within {self.launch.ready_s:g} s ({reason})"
                + self.log_text()
            ) from None

    def check(self) -> None:
        """Raise ``UserError``, with the end of the log, if the server has ended."""
        if (code := self.process.poll()) is not None:
            how = f"exit status {code}" if code >= 0 else signal.Signals(-code).name
            raise UserError(f"{self.launch.name} ended ({how})" + self.log_text())

    def log_tail(self, lines: int = _LOG_LINES) -> list[str]:
        """The last lines that it wrote."""
        size = os.fstat(self._log.fileno()).st_size
        # Not seek and read: the server writes at the same file position.
        end = os.pread(self._log.fileno(), _LOG_BYTES, max(0, size - _LOG_BYTES))
        text = _CONTROL.sub("", end.decode(errors="replace"))
        tail = text.splitlines()[-lines:]
        return [line if len(line) <= _WIDTH else line[:_WIDTH] + "..." for line in tail]

    def log_text(self) -> str:
        """The same, as the end of a message."""
        tail = self.log_tail()
        return "; its last lines:\n" + "\n".join(f"  {line}" for line in tail) if tail else ""

    def stop(self) -> None:
        """End the server and its children: asked first, killed if that does not help."""
        if self._log.closed:
            return
        try:
            known = process_tree.family(self.mark, self.process.pid)
            if self.process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.process.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(_GRACE_S)
            left = process_tree.end_all(self.mark, self.process.pid, _CHILDREN_S, known)
            if left:
                pids = ", ".join(map(str, left))
                print(f"note: {self.launch.name} cannot be ended: {pids}", file=sys.stderr)
            self.process.poll()  # so that no zombie stays
        finally:  # an interrupt in between leaves the rest to the guard
            self._guard.communicate()
            self._log.close()
