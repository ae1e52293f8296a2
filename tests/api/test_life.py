"""Clients that go, queues that fill, engines that die: what the others notice of it."""

import asyncio
import json
from typing import Any

import aiohttp
import openai
import pytest

from slipstream.api.service import Service
from slipstream.engine.messages import Delta, Report, frame
from tests.api.conftest import Server, saying, serving
from tests.api.fake_engine import FakeEngine, cycle

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODY: dict[str, Any] = {"model": "fake", "prompt": "Hi"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_is_cancelled(server: Server, stream: bool) -> None:
    server.engine.script = cycle([65])
    body = {**BODY, "stream": stream, "n": 2}
    async with aiohttp.ClientSession() as session:
        request = asyncio.ensure_future(session.post(server.url + TEXT, json=body))
        await server.until(lambda: len(server.engine.submitted) == 2)
        if stream:
            response = await request
            await response.content.readline()
            response.close()
        request.cancel()
        await server.until(lambda: sorted(server.engine.cancelled) == [0, 1])
    assert server.client.in_flight == 0
    assert (
        'slipstream_choices_total{finish_reason="cancelled"} 2.0'
        in (await server.get("/metrics"))[1]
    )


async def test_a_client_that_goes_before_the_first_token(server: Server) -> None:
    server.engine.go.clear()
    async with aiohttp.ClientSession() as session:
        body = {**BODY, "stream": True}
        request = asyncio.ensure_future(session.post(server.url + TEXT, json=body))
        await server.until(lambda: len(server.engine.submitted) == 1)
        request.cancel()
        await server.until(lambda: server.engine.cancelled == [0])
    server.engine.go.set()


async def test_a_client_that_never_reads_delays_nobody(server: Server) -> None:
    server.engine.script = cycle([65] * 64)
    body = json.dumps({**BODY, "stream": True, "logprobs": 20, "max_tokens": 4000})
    host, port = server.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1024)
    head = f"POST {TEXT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    await server.until(lambda: server.client.in_flight == 0 and len(server.engine.submitted) == 1)
    status, answer = await server.post(TEXT, {**BODY, "max_tokens": 8})
    assert (status, answer["choices"][0]["text"]) == (200, "A" * 8)
    writer.transport.abort()


async def test_a_full_queue() -> None:
    engine = FakeEngine(saying("Hi"))
    async with serving(engine, capacity=3) as server:
        engine.go.clear()
        waiting = asyncio.ensure_future(server.post(TEXT, {**BODY, "n": 3}))
        await server.until(lambda: len(engine.submitted) == 3)
        async with server.http.post(server.url + TEXT, json=BODY) as response:
            assert response.status == 429
            assert int(response.headers["Retry-After"]) >= 1
            error = (await response.json())["error"]
            assert error["type"] == "rate_limit_error" and "3 of 3" in error["message"]
        with pytest.raises(openai.RateLimitError):
            await server.openai.completions.create(model="fake", prompt="Hi")
        status, reason = await server.get("/health")
        assert status == 503 and "full" in reason
        engine.go.set()
        assert (await waiting)[0] == 200
        assert (await server.get("/health"))[0] == 200
        assert (await server.post(TEXT, BODY))[0] == 200
        assert len(engine.submitted) == 4


async def test_an_engine_that_dies_before_the_first_token(server: Server) -> None:
    server.engine.go.clear()
    requests = [
        asyncio.ensure_future(server.post(TEXT, {**BODY, "stream": stream}))
        for stream in (False, True)
    ]
    await server.until(lambda: len(server.engine.submitted) == 2)
    server.engine.die()
    await server.client.lost
    server.client.fail("the engine process ended (exit code 3)")
    for request in requests:
        status, answer = await request
        assert status == 500
        assert answer["error"]["type"] == "server_error"
        assert "exit code 3" in answer["error"]["message"]
    status, answer = await server.post(TEXT, BODY)
    assert status == 500 and "exit code 3" in answer["error"]["message"]
    server.engine.go.set()


async def test_an_engine_that_dies_within_a_stream(server: Server) -> None:
    server.engine.script = cycle([65])
    stream = await server.openai.completions.create(model="fake", prompt="Hi", stream=True)
    with pytest.raises(openai.APIError, match="exit code 3"):
        async for _ in stream:
            server.engine.die()
            server.client.fail("the engine process ended (exit code 3)")


async def test_an_engine_that_talks_nonsense(server: Server) -> None:
    server.engine.go.clear()
    request = asyncio.ensure_future(server.post(TEXT, BODY))
    await server.until(lambda: len(server.engine.submitted) == 1)
    server.engine._writer.write(b"\x03\x00\x00\x00abc")
    status, answer = await request
    assert status == 500 and "unreadable" in answer["error"]["message"]
    server.engine.go.set()


async def test_frames_arrive_in_any_pieces(server: Server) -> None:
    server.engine.go.clear()
    request = asyncio.ensure_future(server.post(TEXT, {**BODY, "max_tokens": 4}))
    await server.until(lambda: len(server.engine.submitted) == 1)
    data = b"".join(
        frame(Report([Delta(0, [token], finish)], server.client.stats))
        for token, finish in ((97, None), (98, None), (99, None), (100, "length"))
    )
    for byte in data:
        server.engine._writer.write(bytes([byte]))
        await asyncio.sleep(0)
    status, answer = await request
    assert status == 200 and answer["choices"][0]["text"] == "abcd"
    server.engine.go.set()


async def test_while_unavailable(server: Server) -> None:
    server.state.unavailable = "the model is being loaded"
    status, text = await server.get("/health")
    assert status == 503 and "being loaded" in text
    async with server.http.post(server.url + TEXT, json=BODY) as response:
        assert response.status == 503 and response.headers["Retry-After"]
        assert "being loaded" in (await response.json())["error"]["message"]
    assert server.engine.submitted == []
    assert (await server.get("/metrics"))[0] == 200


async def test_a_drain_that_starts_while_a_prompt_is_tokenised(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Service.encode

    async def slow(*args: Any, **kwargs: Any) -> list[list[int]]:
        token_ids = await encode(*args, **kwargs)
        server.state.unavailable = "the server is shutting down"
        server.client.fail("the engine process ended (exit code 0)")
        return token_ids

    monkeypatch.setattr(Service, "encode", slow)
    status, answer = await server.post(TEXT, BODY)
    assert (status, answer["error"]["message"]) == (503, "the server is shutting down")
    assert server.engine.submitted == []


async def test_an_error_of_our_own(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "generate", None)
    status, answer = await server.post(TEXT, BODY)
    assert status == 500 and "log" in answer["error"]["message"]
    _, text = await server.get("/metrics")
    assert 'slipstream_http_requests_total{path="/v1/completions",status="500"} 1.0' in text


async def test_models_and_version(server: Server) -> None:
    models = await server.openai.models.list()
    assert [model.id for model in models.data] == ["fake"]
    assert (await server.openai.models.retrieve("fake")).object == "model"
    with pytest.raises(openai.NotFoundError):
        await server.openai.models.retrieve("org/other")
    assert (await server.get("/version"))[0] == 200
    schema = json.loads((await server.get("/openapi.json"))[1])
    assert {CHAT, TEXT} <= schema["paths"].keys()


async def test_metrics(server: Server) -> None:
    await server.post(TEXT, BODY)
    await server.post(TEXT, {**BODY, "n": 0})
    await server.get("/nowhere")
    _, text = await server.get("/metrics")
    lines = text.splitlines()
    assert 'slipstream_http_requests_total{path="/v1/completions",status="200"} 1.0' in lines
    assert 'slipstream_http_requests_total{path="/v1/completions",status="400"} 1.0' in lines
    assert 'slipstream_http_requests_total{path="other",status="404"} 1.0' in lines
    assert 'slipstream_choices_total{finish_reason="stop"} 1.0' in lines
    assert "slipstream_generated_tokens_total 13.0" in lines
    assert "slipstream_time_to_first_token_seconds_count 1.0" in lines
    assert "slipstream_inter_token_latency_seconds_count 10.0" in lines
    for name in ("drafted_nodes", "draft_seconds", "expected_step_seconds", "expected_tokens"):
        assert f"slipstream_{name}_total 0.0" in lines
    assert 'slipstream_speculation{why="idle"} 1.0' in lines
    assert "slipstream_request_latency_seconds_count 1.0" in lines
    assert "slipstream_running 0.0" in lines


async def test_long_prompts_are_tokenised_alike() -> None:
    async with serving(FakeEngine(saying("Hi"), max_model_len=20_000)) as server:
        status, answer = await server.post(TEXT, {**BODY, "prompt": "ab" * 8000})
        assert status == 200
        assert answer["usage"]["prompt_tokens"] == 16_000
