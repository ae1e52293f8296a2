"""How a generation reaches its client: as one document or as server-sent events."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

import msgspec
from fastapi import Request, Response
from msgspec import UNSET
from starlette.types import Receive, Scope, Send

from slipstream.api.engine_client import EngineDiedError
from slipstream.api.errors import ApiError, error_body
from slipstream.api.generation import Generation
from slipstream.api.output import Piece
from slipstream.api.responses import Answer, Choice, Envelope
from slipstream.api.schemas import SamplingRequest, StreamOptions

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


class ClientGoneError(Exception):
    """The client closed its connection."""


class Shape(Protocol):
    """Shows pieces as one of the endpoints does."""

    id_prefix: str
    whole_object: str
    chunk_object: str

    def whole(self, index: int, piece: Piece) -> Choice: ...

    def chunk(self, index: int, piece: Piece) -> Choice: ...


async def respond(
    request: Request,
    body: SamplingRequest,
    generation: Generation,
    shape: Shape,
    envelope: Envelope,
) -> Response:
    """Answer with what ``generation`` brings, and end it."""
    try:
        if body.stream:
            # Waiting for the first tokens lets early failures have their own status.
            first = await _until_gone(request.receive, generation.receive())
            events = _Events(generation, shape, envelope, body)
            return EventStream(generation, events, first)
        answer = await _until_gone(request.receive, _collect(generation, shape, envelope))
    except ClientGoneError:
        generation.close()
        return Response(status_code=499)
    except EngineDiedError as error:
        generation.close()
        raise engine_died(error) from None
    except BaseException:
        generation.close()
        raise
    return Response(_encode(answer), media_type="application/json")


def engine_died(error: EngineDiedError) -> ApiError:
    return ApiError(500, str(error), code="engine_died")


async def _collect(generation: Generation, shape: Shape, envelope: Envelope) -> Answer:
    pieces = await generation.receive_all()
    choices = [shape.whole(index, piece) for index, piece in enumerate(pieces)]
    return envelope.answer(shape.whole_object, choices, generation.usage())


class _Events:
    """Writes the events of one stream."""

    def __init__(
        self, generation: Generation, shape: Shape, envelope: Envelope, body: SamplingRequest
    ) -> None:
        options = body.stream_options or StreamOptions()
        self._generation = generation
        self._shape = shape
        self._include_usage = options.include_usage
        self._continuous_usage = options.continuous_usage_stats
        # Where more than text is shown, a step that shows no text yet is news, too.
        self._all_steps = (
            self._continuous_usage
            or body.return_token_ids
            or getattr(body, "logprobs", None) not in (None, False)
        )
        # One document for all events, which differ in choices and usage only.
        self._chunk = envelope.answer(
            shape.chunk_object, [], None if self._include_usage else UNSET
        )

    def of(self, pieces: dict[int, Piece]) -> bytes:
        """What came together, which goes out together; empty if nobody need see it."""
        return b"".join([self._event(index, piece) for index, piece in pieces.items()])

    def last(self) -> bytes:
        """What follows when all choices have ended."""
        usage = b""
        if self._include_usage:
            self._chunk.choices = []
            self._chunk.usage = self._generation.usage()
            usage = self._encoded()
        return usage + b"data: [DONE]\n\n"

    def _event(self, index: int, piece: Piece) -> bytes:
        if not (piece.text or piece.finish_reason or self._all_steps):
            return b""
        self._chunk.choices = [self._shape.chunk(index, piece)]
        if self._continuous_usage:
            self._chunk.usage = self._generation.usage()
        return self._encoded()

    def _encoded(self) -> bytes:
        return b"data: " + _encode(self._chunk) + b"\n\n"


class EventStream(Response):
    """Sends events until they end or the client goes; a slow client delays only this."""

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, events: _Events, first: dict[int, Piece]) -> None:
        """``first`` came already."""
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._generation = generation
        self._events = events
        self._first = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _until_gone(receive, self._send(send))
        except ClientGoneError:
            pass
        finally:
            self._generation.close()

    async def _send(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        try:
            last = await self._send_pieces(send)
        except EngineDiedError as error:
            last = b"data: " + error_body(engine_died(error)) + b"\n\n"
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _send_pieces(self, send: Send) -> bytes:
        """Send all events but the last, which go out together and are returned."""
        generation, events = self._generation, self._events
        body = events.of(self._first)
        while not generation.done:
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            body = events.of(await generation.receive())
        return body + events.last()


async def _until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, given up with ClientGoneError when the client goes first."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
