"""The HTTP process's end of the socket to the engine: submit, cancel, and tokens coming back."""

import asyncio
from collections.abc import Iterator
from typing import Protocol, cast

import msgspec

from slipstream.engine.messages import (
    Cancel,
    Commands,
    Delta,
    Drain,
    EngineStats,
    Failed,
    Ready,
    Report,
    Submit,
    decode_from_engine,
    frame,
)
from slipstream.engine.params import SamplingParams
from slipstream.errors import UserError

_HEADER = 4  # bytes of a frame's length


class EngineDiedError(Exception):
    """The engine is gone; the message says why."""


class Receiver(Protocol):
    """Where the deltas of submitted choices go. Both methods are called from the event loop."""

    def put(self, now: float, delta: Delta) -> None:
        """Take a delta that came ``now``, in seconds of the event loop's clock."""

    def wake(self) -> None:
        """No more deltas will come; the client's ``failure`` says why."""


class FrameReader:
    """Cuts a byte stream into the documents of its frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The documents that ``data`` completes."""
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= _HEADER:
            body = start + _HEADER
            end = body + int.from_bytes(self._buffer[start:body], "little")
            if len(self._buffer) < end:
                break
            yield bytes(self._buffer[body:end])
            start = end
        del self._buffer[:start]


class EngineClient(asyncio.Protocol):
    """Speaks ``engine/messages.py`` over one connected stream socket."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[Ready] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.stats = EngineStats()
        self.failure: str | None = None
        self._loop = loop
        self._reader = FrameReader()
        self._receivers: dict[int, Receiver] = {}
        self._commands: list[Submit | Cancel | Drain] = []
        self._next_id = 0
        self._transport: asyncio.Transport | None = None

    @property
    def in_flight(self) -> int:
        """Choices that the engine still runs or queues."""
        return len(self._receivers)

    def submit(self, receiver: Receiver, token_ids: list[int], params: SamplingParams) -> int:
        """Start one choice; its deltas carry the id that is returned."""
        request_id = self._next_id
        self._next_id += 1
        self._receivers[request_id] = receiver
        self._send(Submit(request_id, token_ids, params))
        return request_id

    def cancel(self, request_id: int) -> None:
        """Nobody wants this choice any more; harmless when it has ended."""
        if self._receivers.pop(request_id, None) is not None:
            self._send(Cancel(request_id))

    def drain(self) -> None:
        """Ask the engine to finish what runs and exit."""
        self._send(Drain())

    def fail(self, reason: str) -> None:
        """No more tokens will come: everyone who waits gets EngineDiedError with ``reason``."""
        if self.failure is not None:
            return
        self.failure = reason
        if not self.ready.done():
            self.ready.set_exception(EngineDiedError(reason))
            self.ready.exception()  # somebody may have stopped waiting for it
        for receiver in set(self._receivers.values()):
            receiver.wake()
        self._receivers.clear()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _send(self, command: Submit | Cancel | Drain) -> None:
        """Queue a command; those of one turn of the event loop leave in one frame."""
        if not self._commands:
            self._loop.call_soon(self._flush)
        self._commands.append(command)

    def _flush(self) -> None:
        commands, self._commands = self._commands, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(Commands(commands)))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for document in self._reader.feed(data):
                self._on_message(decode_from_engine(document))
        except msgspec.MsgspecError as error:
            self.fail(f"the engine sent something unreadable: {error}")
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    def _on_message(self, message: Ready | Failed | Report) -> None:
        match message:
            case Report(deltas, stats):
                self.stats = stats
                self._on_deltas(deltas)
            case Ready():
                self.ready.set_result(message)
            case Failed(text):
                self.ready.set_exception(UserError(text))

    def _on_deltas(self, deltas: list[Delta]) -> None:
        now = self._loop.time()
        receivers = self._receivers
        for delta in deltas:
            if delta.finish is None:
                receiver = receivers.get(delta.id)
            else:
                receiver = receivers.pop(delta.id, None)
            if receiver is not None:  # otherwise cancelled, and the engine did not know yet
                receiver.put(now, delta)
