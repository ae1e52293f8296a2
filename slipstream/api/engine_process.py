"""The engine's process: how it is started, watched and stopped."""

import asyncio
import contextlib
import signal
import socket
import sys

import msgspec

from slipstream.api.engine_client import EngineClient
from slipstream.engine.options import EngineOptions

_GRACE = 5.0  # seconds for the process to follow its socket's end


class EngineProcess:
    """A running engine and the client that speaks to it."""

    def __init__(self, process: asyncio.subprocess.Process, client: EngineClient) -> None:
        self._process = process
        self.client = client
        self.exited = asyncio.ensure_future(self._watch())

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End it at once; ``exited`` follows."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _watch(self) -> int:
        """Wait for the end of the process, tell the client, and give its exit code."""
        exit_code = asyncio.ensure_future(self._process.wait())
        await asyncio.wait((exit_code, self.client.lost), return_when=asyncio.FIRST_COMPLETED)
        # The last frames may still be in the socket when the process has gone, or the process
        # may linger when the socket has.
        await asyncio.wait((exit_code, self.client.lost), timeout=_GRACE)
        if not exit_code.done():
            self.kill()
        code = await exit_code
        self.client.fail(f"the engine process ended ({describe_exit(code)})")
        self.client.close()
        return code


def describe_exit(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    hint = "; was memory short?" if -code == signal.SIGKILL else ""
    return f"exit code {code}: killed by {name}{hint}"


ENGINE = ("-m", "slipstream.engine.process")  # what Python runs


async def start_engine(options: EngineOptions) -> EngineProcess:
    """Start an engine in its own session, so that a terminal's Ctrl-C does not reach it.

    It ends by itself when this process, and with it the socket, goes away.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        arguments = ["--fd", str(theirs.fileno())]
        arguments += ["--options", msgspec.json.encode(options).decode()]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *ENGINE,
            *arguments,
            pass_fds=(theirs.fileno(),),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(EngineClient, sock=ours)
    return EngineProcess(process, client)
