"""The cheapest HTTP/1.1 client that can be had: one parser in C, no task switch per chunk.

The load generator shares the processor with what it measures, so a chunk of a stream costs one
callback here, not a wake-up of a coroutine.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import cast
from urllib.parse import urlsplit

import httptools

from slipstream.errors import UserError

Receive = Callable[[bytes, float], None]
"""Takes a piece of an event stream and the time at which it was read."""


@dataclass(frozen=True)
class Endpoint:
    """Where a server listens. ``base`` is the path before ``/chat/completions``."""

    host: str
    port: int
    base: str
    authority: str
    tls: ssl.SSLContext | None
    api_key: str | None = None

    @classmethod
    def of(cls, url: str, api_key: str | None = None) -> "Endpoint":
        """From ``http(s)://host[:port][/v1]``; raises ``UserError`` for anything else."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port or (443 if parts.scheme == "https" else 80)
            valid = parts.scheme in ("http", "https") and parts.hostname and not parts.query
            (parts.hostname or "").encode("idna")  # what a look-up does, with an error of its own
        except ValueError:
            valid = False
        if not valid or "@" in url:
            raise UserError(f"{url!r} is not a server's address: give one like http://host:30000")
        return cls(
            host=parts.hostname or "",
            port=port,
            base=parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1",
            authority=parts.netloc,
            tls=ssl.create_default_context() if parts.scheme == "https" else None,
            api_key=api_key,
        )

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """A whole request for ``path`` below ``base``; a body is JSON."""
        head = [
            f"{method} {self.base}{path} HTTP/1.1",
            f"Host: {self.authority}",
            "User-Agent: slipstream-bench",
            "Accept: application/json, text/event-stream",
        ]
        if self.api_key:
            head.append(f"Authorization: Bearer {self.api_key}")
        if body:
            head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*head, "\r\n"]).encode() + body


@dataclass
class Response:
    """What came back. An event stream went to the receiver and is not in ``body``."""

    status: int = 0
    event_stream: bool = False
    framed: bool = False  # else the body ends where the connection does
    body: bytes = b""
    end: float = 0.0  # when the last byte was read


class Connection(asyncio.Protocol):
    """One connection, kept for one exchange after the other and reopened when it is closed."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._done: asyncio.Future[Response] | None = None
        self._response = Response()
        self._receive: Receive = lambda piece, now: None
        self._streams = False  # the response in hand is a successful event stream
        self._now = 0.0
        self._heard = 0.0

    @property
    def heard(self) -> float:
        """When the server last sent something but comments, which keep a stream open; 0 before."""
        return self._heard

    async def exchange(self, request: bytes, receive: Receive) -> Response:
        """Send a request and wait for the end of its response.

        The pieces of a successful event stream go to ``receive`` as they come. Raises ``OSError``
        when the connection cannot be made or is lost. Cancelling closes the connection.
        """
        reused = self._transport is not None and not self._transport.is_closing()
        try:
            if reused:
                try:
                    return await self._round_trip(request, receive)
                except ConnectionError:
                    # A server may close an idle connection just as we write to it.
                    if self._response.status:
                        raise
            await self._connect()
            return await self._round_trip(request, receive)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        endpoint = self._endpoint
        await loop.create_connection(lambda: self, endpoint.host, endpoint.port, ssl=endpoint.tls)

    async def _round_trip(self, request: bytes, receive: Receive) -> Response:
        assert self._transport is not None
        self._receive = receive
        self._streams = False
        self._response = Response()
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._done

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        assert self._parser is not None
        self._now = perf_counter()
        if not self._streams:
            self._heard = self._now
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionAbortedError(f"the answer is not HTTP ({error})"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._now = self._heard = perf_counter()
        if exc is None and self._response.status and not self._response.framed:
            self.on_message_complete()
        self._fail(ConnectionResetError("the server closed the connection"))

    def _fail(self, error: Exception) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self._response.event_stream = b"text/event-stream" in value.lower()
        elif name in (b"content-length", b"transfer-encoding"):
            self._response.framed = True

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        response = self._response
        response.status = self._parser.get_status_code()
        self._streams = response.event_stream and response.status == 200

    def on_body(self, body: bytes) -> None:
        if self._streams:
            if not body.startswith(b":"):
                self._heard = self._now
            self._receive(body, self._now)
        else:
            self._response.body += body

    def on_message_complete(self) -> None:
        assert self._parser is not None and self._transport is not None
        if self._response.status < 200:  # an interim response: the real one follows
            self._response = Response()
            return
        if not self._parser.should_keep_alive():
            self._transport.close()
        self._response.end = self._now
        if self._done is not None and not self._done.done():
            self._done.set_result(self._response)
