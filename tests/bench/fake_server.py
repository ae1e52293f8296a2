"""An OpenAI-compatible server in this process that says nothing, at any length, in any dialect."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from slipstream.bench.client import RequestForm, Target
from slipstream.bench.http import Endpoint

Fault = Literal["die", "empty", "error chunk", "garbage", "cut"]


@dataclass
class FakeServer:
    """How to behave, and what was seen. The count of chat requests starts at 0."""

    usage: Literal["continuous", "final", "none"] = "continuous"
    refuses: tuple[str, ...] = ()  # fields of a request that get a 400
    streams: bool = True  # False: ignores "stream"
    tokens_per_chunk: int = 1
    chunk_seconds: float = 0.0
    speed: Callable[[int], float] | None = None  # chunks per second of each of so many in flight
    accepted_length: float | None = None
    end_after: int | None = None  # tokens after which an answer ends by itself
    keep_alive: bool = True
    status: Callable[[int], int] = lambda number: 200
    fault: Callable[[int], Fault | None] = lambda number: None
    models: tuple[str, ...] = ("fake",)
    owner: str = "somebody"
    says: str = " token"  # for each token
    gate: int | None = None  # answers end only while exactly so many requests are in flight
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    in_flight: int = 0
    in_flight_seen: list[int] = field(default_factory=list)  # at each arrival, it included
    url: str = ""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _leaving: deque[object] = field(default_factory=deque)

    def target(self, **form: Any) -> Target:
        """Asks this server in the given form."""
        return Target(Endpoint.of(self.url), RequestForm(model="fake", **form), timeout_s=20)

    async def open_gate(self) -> None:
        """From now on answers end whenever they want to."""
        async with self._changed:
            self.gate = None
            self._changed.notify_all()

    async def _arrive(self) -> None:
        async with self._changed:
            self.in_flight += 1
            self.in_flight_seen.append(self.in_flight)
            self._changed.notify_all()

    async def _leave(self) -> None:
        """In the order of asking, so that no answer waits while others come and go."""
        turn = object()
        self._leaving.append(turn)
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._leaving[0] is turn and self.gate in (None, self.in_flight)
            )
            self._leaving.popleft()
            self.in_flight -= 1
            self._changed.notify_all()

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"data": [{"id": model, "owned_by": self.owner} for model in self.models]}
        )

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        number = len(self.bodies)
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        refused = [name for name in self.refuses if f'"{name}"' in json.dumps(body)]
        if refused:
            return _error(400, f"unknown field {refused[0]}")
        if self.status(number) != 200:
            return _error(self.status(number), "told to fail")
        await self._arrive()
        tokens = body.get("max_tokens") or body["max_completion_tokens"]
        tokens = min(tokens, self.end_after or tokens)
        if not (self.streams and body["stream"]):
            await asyncio.sleep(self.chunk_seconds * tokens / self.tokens_per_chunk)
            await self._leave()
            return self._whole(tokens)
        response = await self._start(request)
        try:
            last = await self._stream(request, response, tokens, self.fault(number))
        finally:
            # Before the last byte: the client may send its next request as soon as it has that.
            await self._leave()
        await response.write(last)
        return response

    def _next_chunk(self) -> float:
        return 1 / self.speed(self.in_flight) if self.speed else self.chunk_seconds

    async def _start(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        if not self.keep_alive:
            response.force_close()
        await response.prepare(request)
        return response

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        tokens: int,
        fault: Fault | None,
    ) -> bytes:
        """Sends all chunks but the last bytes, which it returns."""
        await response.write(_chunk({"role": "assistant", "content": ""}, self._usage(0)))
        sent = 0
        while sent < tokens and fault != "empty":
            await asyncio.sleep(self._next_chunk())
            sent = min(sent + self.tokens_per_chunk, tokens)
            await response.write(_chunk({"content": self.says}, self._usage(sent)))
            if fault == "die" and request.transport:
                request.transport.abort()
            if fault == "error chunk":
                await response.write(b'data: {"error": {"message": "out of luck"}}\n\n')
            if fault == "garbage":
                await response.write(b"data: {not json\n\n")
            if fault == "cut":
                return b": the end\n\n"
        await response.write(_chunk({}, self._usage(sent), "length"))
        last = b"data: [DONE]\n\n"
        if self.usage != "none" and fault != "empty":
            last = _event({"choices": [], "usage": self._counts(sent)}) + last
        return last

    def _whole(self, tokens: int) -> web.Response:
        message = {"role": "assistant", "content": self.says * tokens}
        document: dict[str, Any] = {"choices": [{"message": message, "finish_reason": "length"}]}
        if self.usage != "none":
            document["usage"] = self._counts(tokens)
        return web.json_response(document)

    def _usage(self, tokens: int) -> dict[str, Any] | None:
        return self._counts(tokens) if self.usage == "continuous" else None

    def _counts(self, tokens: int) -> dict[str, Any]:
        counts: dict[str, Any] = {"prompt_tokens": 9, "completion_tokens": tokens}
        if self.accepted_length is not None:
            counts["slipstream"] = {"accepted_length": self.accepted_length}
        return counts


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)


def _chunk(delta: dict[str, Any], usage: dict[str, Any] | None, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event({"choices": [choice], "usage": usage})


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


@asynccontextmanager
async def serving(**behaviour: Any) -> AsyncIterator[FakeServer]:
    """A fake server on a free port, until the block ends."""
    fake = FakeServer(**behaviour)
    app = web.Application()
    app.router.add_get("/v1/models", fake.list_models)
    app.router.add_post("/v1/chat/completions", fake.chat)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=512)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()
