"""Running ``slipstream serve`` as a user would, for tests."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent


class ServeProcess:
    """A ``slipstream serve`` on a free port, and what it wrote."""

    def __init__(
        self, *arguments: str, environment: Mapping[str, str] | None = None, program: str = ""
    ) -> None:
        """``program`` is Python source to run in place of the command line's entry."""
        start = ["-c", program] if program else ["-m", "slipstream"]
        self.process = subprocess.Popen(
            [sys.executable, *start, "serve", "--port", "0", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            text=True,
        )
        self.lines: list[str] = []
        self._grown = threading.Condition()
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()
        self.url = ""

    def wait_ready(self, timeout: float = 120) -> None:
        """Until requests would succeed; sets ``url``."""
        self.wait_for(r"^ready ", timeout)
        line = next(line for line in self.lines if line.startswith("ready "))
        self.url = line.split()[1].removesuffix("/v1")

    def wait_for(self, pattern: str, timeout: float = 60) -> None:
        """Until a line of output matches ``pattern``."""

        def found() -> bool:
            return any(re.search(pattern, line) for line in self.lines) or self._ended

        with self._grown:
            self._grown.wait_for(found, timeout)
        assert any(re.search(pattern, line) for line in self.lines), self.output

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 60) -> int:
        """The exit status."""
        code = self.process.wait(timeout)
        with self._grown:
            self._grown.wait_for(lambda: self._ended, 10)
        return code

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    @property
    def engine_pid(self) -> int:
        """The one child of the server."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        [pid] = path.read_text().split()
        return int(pid)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._grown:
                self.lines.append(line.rstrip("\n"))
                self._grown.notify_all()
        with self._grown:
            self._ended = True
            self._grown.notify_all()


@contextlib.contextmanager
def serve(
    *arguments: str, environment: Mapping[str, str] | None = None, program: str = ""
) -> Iterator[ServeProcess]:
    """A server that is ready, ended with the block."""
    server = ServeProcess(*arguments, environment=environment, program=program)
    try:
        server.wait_ready()
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.wait()


def alive(pid: int) -> bool:
    """Whether the process exists and is more than a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"
