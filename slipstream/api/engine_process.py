"""Watching the engine's process."""

import asyncio
import signal

from slipstream.api.engine_client import EngineClient
from slipstream.api.launch import LaunchedEngine

_GRACE = 5.0  # seconds for the process to follow its socket's end


class EngineProcess:
    """A running engine and the client that speaks to it; ``exited`` gives its exit code."""

    def __init__(self, launched: LaunchedEngine, client: EngineClient) -> None:
        self._launched = launched
        self.client = client
        self.exited = asyncio.ensure_future(self._watch())

    @classmethod
    async def connect(cls, launched: LaunchedEngine) -> "EngineProcess":
        """Start speaking to an engine that was launched."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(EngineClient, sock=launched.connection)
        return cls(launched, client)

    def kill(self) -> None:
        """End it at once; ``exited`` follows."""
        self._launched.kill()

    async def _watch(self) -> int:
        """Wait for the end of the process, tell the client, and give its exit code."""
        exit_code = asyncio.ensure_future(asyncio.to_thread(self._launched.process.wait))
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
