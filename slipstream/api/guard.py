"""What every HTTP request passes before a route sees it."""

import secrets
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slipstream.api.errors import ApiError, error_response, internal_error
from slipstream.api.metrics import Metrics

MAX_BODY_BYTES = 8 * 2**20
_OPEN_PATHS = ("/health",)


class Guard:
    """Checks the API key and the size of the body, and counts answers by status."""

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, api_key: str | None, paths: frozenset[str]
    ) -> None:
        """``paths`` are counted by name, all others together."""
        self._app = app
        self._metrics = metrics
        self._key = None if api_key is None else api_key.encode()
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self._paths else "other"
        started = False

        async def counted(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._metrics.answered(path, message["status"])
            await send(message)

        headers = dict(scope["headers"])
        try:
            self._check_key(scope["path"], headers)
            body = await _read_body(headers, receive)
        except ApiError as error:
            await error_response(error)(scope, receive, counted)
            return
        if body["type"] == "http.disconnect":
            return
        try:
            await self._app(scope, _replay(body, receive), counted)
        except Exception:
            if not started:
                await error_response(internal_error())(scope, receive, counted)
            raise

    def _check_key(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        if self._key is None or path in _OPEN_PATHS:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        right = secrets.compare_digest(given.strip(), self._key)
        if scheme.lower() != b"bearer" or not right:
            raise ApiError(
                401,
                "wrong or missing API key; send it as the header 'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


async def _read_body(headers: Mapping[bytes, bytes], receive: Receive) -> Message:
    """The whole body as one message, or that the client has gone.

    Raises ApiError if the body is too large.
    """
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > MAX_BODY_BYTES:
        raise _too_large()
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return message
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise _too_large()
        if not message.get("more_body", False):
            return {"type": "http.request", "body": bytes(body), "more_body": False}


def _too_large() -> ApiError:
    return ApiError(
        413,
        f"the body is too large; at most {MAX_BODY_BYTES} bytes are allowed",
        code="body_too_large",
        headers={"Connection": "close"},
    )


def _replay(first: Message, receive: Receive) -> Receive:
    """A ``receive`` that gives ``first`` before what comes next."""
    waiting = [first]

    async def replaying() -> Message:
        return waiting.pop() if waiting else await receive()

    return replaying
