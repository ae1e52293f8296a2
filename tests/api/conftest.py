"""The real application over HTTP, with a scripted engine behind it."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import openai
import pytest
import uvicorn
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from slipstream.api.app import create_app
from slipstream.api.engine_client import EngineClient
from slipstream.api.service import ServerState, Service
from slipstream.api.translate import Limits
from slipstream.models.detokenizer import byte_letters
from slipstream.models.tokenizer import Tokenizer
from slipstream.models.tokenizer_parts import TokenizerParts
from tests.api.fake_engine import FakeEngine, Script, cycle

END = 256  # the token that ends a turn; 0 to 255 are bytes
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' and loop.first %}"
    "{{ raise_exception('the user speaks first') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}<end>{% endfor %}{{ extra }}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def byte_tokenizer() -> Tokenizer:
    """Token ids are bytes; the token after them ends a text."""
    backend = Backend(models.BPE(dict(byte_letters().items()), []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<end>", special=True)])
    return Tokenizer(TokenizerParts(backend, {"eos_token": "<end>"}, TEMPLATE))


def saying(*steps: str | bytes, end: bool = True) -> Script:
    """The same answer to every request, then the end token, or blanks for ever."""

    def script(_: Any) -> Any:
        for step in steps:
            yield list(step.encode() if isinstance(step, str) else step)
        while True:
            yield [END] if end else list(b" ")

    return script


@dataclass
class Server:
    """A running server, and ways to speak to it."""

    url: str
    engine: FakeEngine
    client: EngineClient
    state: ServerState
    http: aiohttp.ClientSession
    openai: openai.AsyncOpenAI

    async def post(self, path: str, body: Any, **kwargs: Any) -> tuple[int, Any]:
        """Status and document of ``POST path``."""
        data = body if isinstance(body, bytes | str) else json.dumps(body)
        kwargs.setdefault("headers", {"Content-Type": "application/json"})
        async with self.http.post(self.url + path, data=data, **kwargs) as response:
            return response.status, json.loads(await response.read())

    async def get(self, path: str, **kwargs: Any) -> tuple[int, str]:
        async with self.http.get(self.url + path, **kwargs) as response:
            return response.status, await response.text()

    async def events(self, path: str, body: dict[str, Any]) -> list[Any]:
        """All events of a stream, without the final [DONE], whose presence is checked."""
        async with self.http.post(self.url + path, json={**body, "stream": True}) as response:
            assert response.status == 200, await response.text()
            assert response.headers["content-type"].startswith("text/event-stream")
            text = await response.text()
        events = [block.removeprefix("data: ") for block in text.split("\n\n") if block]
        assert events.pop() == "[DONE]"
        return [json.loads(event) for event in events]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that must happen soon."""
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)


class _HTTPServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@contextlib.asynccontextmanager
async def serving(
    engine: FakeEngine, *, api_key: str | None = None, capacity: int = 16
) -> AsyncIterator[Server]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    engine_task = asyncio.ensure_future(engine.serve(theirs))
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(EngineClient, sock=ours)
    ready = await client.ready
    tokenizer = byte_tokenizer()
    limits = Limits(257, ready.max_model_len, 64, tokenizer.eos_token_ids)
    state = ServerState()
    state.service = Service("fake", tokenizer, limits, client, state.metrics, capacity)
    state.metrics.show_engine(lambda: client.stats)
    state.unavailable = None
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        create_app(state, api_key),
        lifespan="off",
        ws="none",
        log_config=None,
        timeout_graceful_shutdown=1,
    )
    http_server = _HTTPServer(config)
    http_task = asyncio.ensure_future(http_server.serve(sockets=[listener]))
    sdk = openai.AsyncOpenAI(base_url=url + "/v1", api_key=api_key or "none", max_retries=0)
    try:
        async with aiohttp.ClientSession() as http, sdk:
            yield Server(url, engine, client, state, http, sdk)
    finally:
        http_server.should_exit = True
        await http_task
        client.close()
        await engine_task


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server whose engine says "Hello wörld" and stops; tests may give it another script."""
    async with serving(FakeEngine(saying("Hel", "lo w", "örld"))) as running:
        yield running


__all__ = ["END", "Server", "cycle", "saying", "serving"]
