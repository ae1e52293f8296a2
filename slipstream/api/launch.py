"""The first moments of ``slipstream serve``: a port and an engine process.

Imports little, so that the engine is already loading while this process imports the rest.
"""

import socket
import subprocess
import sys
from dataclasses import dataclass

import msgspec

from slipstream.engine.options import EngineOptions
from slipstream.errors import UserError

ENGINE = ("-m", "slipstream.engine.process")  # what Python runs
_BACKLOG = 2048


@dataclass
class LaunchedEngine:
    """An engine process and our end of the socket to it."""

    process: "subprocess.Popen[bytes]"
    connection: socket.socket

    def kill(self) -> None:
        """End it at once; harmless when it has ended."""
        self.process.kill()


def launch_engine(options: EngineOptions) -> LaunchedEngine:
    """Start an engine in its own session, so that a terminal's Ctrl-C does not reach it.

    It ends by itself when this process, and with it the socket, goes away.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        arguments = ["--fd", str(theirs.fileno())]
        arguments += ["--options", msgspec.json.encode(options).decode()]
        process = subprocess.Popen(
            [sys.executable, *ENGINE, *arguments],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    ours.setblocking(False)
    return LaunchedEngine(process, ours)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises UserError if the address cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UserError(f"--host {host} is no address of this machine: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)  # only now nobody else can have the port
    except OSError as error:
        listener.close()
        raise UserError(
            f"cannot listen on {host} port {port}: {error.strerror}; give a free one with --port"
        ) from None
    listener.setblocking(False)
    return listener
