"""The engine's end of the socket to the HTTP process."""

import select
import socket

from slipstream.engine.messages import (
    Cancel,
    Drain,
    Failed,
    Ready,
    Report,
    Submit,
    decode_commands,
    frame,
)


class Channel:
    """Blocking frames out, commands in as they have come."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = bytearray()
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def send(self, message: Ready | Failed | Report) -> None:
        """Send one frame; raises ``OSError`` if the HTTP process is gone."""
        self._connection.sendall(frame(message))

    def receive(self, wait: bool) -> list[Submit | Cancel | Drain]:
        """Commands that have come, at least one if ``wait``.

        Raises ``ConnectionError`` if the HTTP process is gone.
        """
        commands: list[Submit | Cancel | Drain] = []
        while True:
            blocking = wait and not commands
            if not self._poll.poll(None if blocking else 0):
                return commands
            chunk = self._connection.recv(1 << 20)
            if not chunk:
                raise ConnectionError("the HTTP process has gone")
            self._received += chunk
            commands += self._complete()

    def _complete(self) -> list[Submit | Cancel | Drain]:
        """Decode and remove the complete frames received."""
        commands: list[Submit | Cancel | Drain] = []
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "little")
            if len(self._received) < end:
                break
            commands += decode_commands(self._received[4:end]).commands
            del self._received[:end]
        return commands
