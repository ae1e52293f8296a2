"""Malformed and unsupported requests: they get a clear answer and never reach the engine."""

import json
import re
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.api.guard import MAX_BODY_BYTES
from tests.api.conftest import Server, saying, serving
from tests.api.fake_engine import FakeEngine

USER = [{"role": "user", "content": "Hi"}]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
IMAGE = [{"type": "image_url", "image_url": {"url": "data:,"}}]

# (path, fields beside a good model and prompt, param of the error, words of its message)
REFUSED: list[tuple[str, dict[str, Any], str | None, str]] = [
    (CHAT, {"tools": [{"type": "function"}]}, "tools", "not supported"),
    (CHAT, {"functions": [{}]}, "functions", "not supported"),
    (CHAT, {"tool_choice": "auto"}, "tool_choice", "not supported"),
    (CHAT, {"response_format": {"type": "json_object"}}, "response_format", "not supported"),
    (CHAT, {"modalities": ["audio"]}, "modalities", "not supported"),
    (CHAT, {"reasoning_effort": "high"}, "reasoning_effort", "not supported"),
    (CHAT, {"messages": [{"role": "user", "content": IMAGE}]}, "messages", "image_url"),
    (CHAT, {"messages": [{"role": "tool", "content": "x"}]}, "messages", "tools"),
    (CHAT, {"messages": []}, "messages", "at least one"),
    (CHAT, {"messages": [{}] * 10**4}, "messages.0.role", "required"),
    (CHAT, {"messages": [{}] * 10**6}, "messages", "1000000 messages.*10000"),
    (CHAT, {"messages": [{"role": "user", "content": [1] * 10**4}]}, "messages", "list of parts"),
    (CHAT, {"messages": [{"role": "user", "content": [1] * 10**6}]}, "messages", "parts.*10000"),
    (CHAT, {"messages": [{"role": "user", "content": "x" * 10**6}]}, "messages", "at least 2"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages", "parts"),
    (CHAT, {"messages": [{"role": "user", "content": 7}]}, "messages.0.content.str", "string"),
    (CHAT, {"messages": [{"role": "user"}]}, "messages.0.content", "required"),
    (CHAT, {"messages": [{"role": "queen", "content": "x"}]}, "messages.0.role", "'user'"),
    (CHAT, {"messages": [{"role": "assistant", "content": "x"}]}, "messages", "user speaks first"),
    (CHAT, {"messages": "Hi"}, "messages", "valid list"),
    (CHAT, {"top_logprobs": 3}, "top_logprobs", "logprobs: true"),
    (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "20"),
    (CHAT, {"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "differ"),
    (CHAT, {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "messages"),
    (CHAT, {"chat_template_kwargs": {"self": 1}}, "chat_template_kwargs", "self"),
    (TEXT, {"echo": True}, "echo", "not supported"),
    (TEXT, {"best_of": 2}, "best_of", "not supported"),
    (TEXT, {"suffix": "x"}, "suffix", "not supported"),
    (TEXT, {"prompt": ""}, "prompt", "empty"),
    (TEXT, {"prompt": []}, "prompt", "empty"),
    (TEXT, {"prompt": [[]]}, "prompt", "empty"),
    (TEXT, {"prompt": ["a", 1]}, "prompt", "list of strings"),
    (TEXT, {"prompt": [True]}, "prompt", "list of strings"),
    (TEXT, {"prompt": {"a": 1}}, "prompt", "list of strings"),
    (TEXT, {"prompt": [257]}, "prompt", "0 to 256"),
    (TEXT, {"prompt": [-1]}, "prompt", "-1"),
    (TEXT, {"prompt": [10**30]}, "prompt", ""),
    (TEXT, {"prompt": "x" * 64}, "prompt", "64 tokens.*63"),
    (TEXT, {"prompt": "x" * 7 * 10**6}, "prompt", "at least 1400000 tokens.*63"),
    (TEXT, {"prompt": [-1] * 64}, "prompt", "64 tokens.*63"),
    (TEXT, {"max_tokens": 63}, "max_tokens", "63.*64.*62.*2"),
    (TEXT, {"max_tokens": 0}, "max_tokens", "greater than or equal to 1, not 0"),
    (TEXT, {"max_tokens": 1.5}, "max_tokens", "integer"),
    (TEXT, {"max_tokens": "9"}, "max_tokens", "integer"),
    (TEXT, {"max_token": 9}, "max_token", "unknown field"),
    (TEXT, {"max_token": 9, "tempreture": 1}, "max_token", "max_token, tempreture"),
    (TEXT, {"a\nb": 9}, "a\nb", r"unknown field: a\\nb"),
    (TEXT, {"speculation": {"": 1, "\n": 1}}, "speculation.", r"speculation\.\\n"),
    (TEXT, {"n": 0}, "n", "1"),
    (TEXT, {"n": 129}, "n", "128"),
    (TEXT, {"n": True}, "n", "integer"),
    (TEXT, {"n": 17}, "n", "17 choices.*16"),
    (TEXT, {"prompt": ["x"] * 9, "n": 2}, "n", "18 choices.*16"),
    (TEXT, {"prompt": [[1]] * 10**6, "n": 128}, "n", "128000000 choices.*16"),
    (TEXT, {"temperature": -0.1}, "temperature", "0"),
    (TEXT, {"temperature": 2.1}, "temperature", "2"),
    (TEXT, {"temperature": "hot"}, "temperature", "number"),
    (TEXT, {"top_p": 0}, "top_p", "0"),
    (TEXT, {"top_p": 1.1}, "top_p", "1"),
    (TEXT, {"top_k": -2}, "top_k", "-1"),
    (TEXT, {"min_p": 1.5}, "min_p", "1"),
    (TEXT, {"presence_penalty": 3}, "presence_penalty", "2"),
    (TEXT, {"frequency_penalty": -3}, "frequency_penalty", "-2"),
    (TEXT, {"repetition_penalty": 0}, "repetition_penalty", "0.01"),
    (TEXT, {"logit_bias": {"a": 1}}, "logit_bias", "'a'"),
    (TEXT, {"logit_bias": {"257": 1}}, "logit_bias", "256"),
    (TEXT, {"logit_bias": {str(i): 1 for i in range(300)}}, "logit_bias", "300 keys.*257"),
    (TEXT, {"logit_bias": {"1": 101}}, "logit_bias.1", "100"),
    (TEXT, {"logprobs": 21}, "logprobs", "20"),
    (TEXT, {"logprobs": True}, "logprobs", "integer"),
    (TEXT, {"seed": 2**64}, "seed", ""),
    (TEXT, {"seed": "a"}, "seed", "integer"),
    (TEXT, {"stop": [""]}, "stop", "1 to 1024"),
    (TEXT, {"stop": ["x"] * 17}, "stop", "17.*16"),
    (TEXT, {"stop_token_ids": [257]}, "stop_token_ids", "256"),
    (TEXT, {"stream": "yes"}, "stream", "boolean"),
    (TEXT, {"stream_options": {"include_usage": True}}, "stream_options", "stream: true"),
    (TEXT, {"stream": True, "stream_options": {"x": 1}}, "stream_options.x", "unknown field"),
    (TEXT, {"speculation": {"mode": "on"}}, "speculation.mode", "'off', 'fixed' or 'adaptive'"),
    (TEXT, {"speculation": {"mode": "schedule"}}, "speculation.mode", "'off', 'fixed'"),
    (
        TEXT,
        {"speculation": {"mode": "fixed", "topk": 1, "num_steps": 2, "num_draft_tokens": 9}},
        "speculation",
        "3.*not 9",
    ),
]  # fmt: skip


@pytest.fixture
async def server() -> Any:
    async with serving(FakeEngine(saying("Hi"), max_model_len=64)) as running:
        yield running


def good(path: str) -> dict[str, Any]:
    return {"model": "fake", **({"messages": USER} if path == CHAT else {"prompt": "Hi"})}


def check_shape(answer: Any) -> dict[str, Any]:
    """The error of a document in OpenAI's shape."""
    assert answer.keys() == {"error"}
    error = answer["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and "\n" not in error["message"]
    assert isinstance(error, dict)
    return error


async def test_what_is_refused(server: Server) -> None:
    for path, fields, param, words in REFUSED:
        status, answer = await server.post(path, {**good(path), **fields})
        error = check_shape(answer)
        assert (status, error["param"]) == (400, param), (fields, error)
        assert error["type"] == "invalid_request_error"
        assert re.search(words, error["message"]), (words, error)
    assert server.engine.submitted == []


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"nul", b'"x"', b"[1]", b"3", b"\xff\xfe", b'{"prompt": "\\ud800"}'),
        *(b'{"prompt": "x", "min_p": NaN}', b'{"prompt": "x", "top_p": Infinity}'),
        *(b'{"prompt": "x", "top_p": 1e999}', b'{"prompt": "x", "logit_bias": {"1": 1e999}}'),
    ],
)
async def test_bodies_that_are_no_good_json_object(server: Server, body: bytes) -> None:
    status, answer = await server.post(TEXT, body)
    assert status == 400
    check_shape(answer)
    assert server.engine.submitted == []


async def test_deeply_nested_json(server: Server) -> None:
    status, answer = await server.post(TEXT, b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert status == 400
    check_shape(answer)


async def test_a_body_of_another_content_type(server: Server) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    status, answer = await server.post(TEXT, json.dumps(good(TEXT)), headers=headers)
    assert status == 400
    assert "Content-Type: application/json" in check_shape(answer)["message"]


async def test_harmless_fields_and_nulls_are_accepted(server: Server) -> None:
    fields = {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"}
    nothing = {"tools": None, "temperature": None, "stop": None, "response_format": None}
    allowed = {
        "tool_choice": "none",
        "parallel_tool_calls": False,
        "response_format": {"type": "text"},
    }
    status, answer = await server.post(CHAT, {**good(CHAT), **fields, **nothing, **allowed})
    assert status == 200, answer
    status, answer = await server.post(TEXT, {**good(TEXT), "echo": False, "best_of": 1})
    assert status == 200, answer


async def test_an_unknown_model(server: Server) -> None:
    for path in (CHAT, TEXT):
        status, answer = await server.post(path, {**good(path), "model": "gpt-9"})
        error = check_shape(answer)
        assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
        assert "'gpt-9'" in error["message"] and "'fake'" in error["message"]


async def test_unknown_routes_and_methods(server: Server) -> None:
    status, text = await server.get("/v1/nothing")
    assert status == 404
    assert "/v1/nothing" in check_shape(json.loads(text))["message"]
    status, text = await server.get(CHAT)
    assert status == 405
    check_shape(json.loads(text))


async def test_a_body_that_is_too_large(server: Server) -> None:
    async def chunks() -> Any:
        for _ in range(MAX_BODY_BYTES // 2**20 + 1):
            yield b" " * 2**20

    for body in (b" " * (MAX_BODY_BYTES + 1), chunks()):
        try:
            async with server.http.post(server.url + TEXT, data=body) as response:
                assert response.status == 413
                assert str(MAX_BODY_BYTES) in check_shape(await response.json())["message"]
        except aiohttp.ClientConnectionError:
            pass  # the server may close while the body is still being sent
    status, _ = await server.post(TEXT, good(TEXT))
    assert status == 200


async def test_the_api_key() -> None:
    async with serving(FakeEngine(saying("Hi")), api_key="sesame") as server:
        for headers in ({}, {"Authorization": "Bearer no"}, {"Authorization": "sesame"}):
            headers["Content-Type"] = "application/json"
            status, answer = await server.post(TEXT, good(TEXT), headers=headers)
            error = check_shape(answer)
            assert (status, error["code"]) == (401, "invalid_api_key")
            assert (await server.get("/v1/models", headers=headers))[0] == 401
        assert server.engine.submitted == []
        assert (await server.get("/health"))[0] == 200
        answer = await server.openai.completions.create(model="fake", prompt="Hi")
        assert answer.choices[0].text == "Hi"


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
FIELDS = [
    *("frequency_penalty", "ignore_eos", "logit_bias", "logprobs", "max_tokens", "messages"),
    *("min_p", "model", "n", "presence_penalty", "prompt", "repetition_penalty", "seed"),
    *("return_token_ids", "speculation", "stop", "stop_token_ids", "stream", "stream_options"),
    *("temperature", "tools", "top_k", "top_logprobs", "top_p", "user"),
]


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    path=st.sampled_from([CHAT, TEXT]),
    fields=st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4),
)
async def test_any_json_is_answered_in_shape(
    server: Server, path: str, fields: dict[str, Any]
) -> None:
    async with server.http.post(server.url + path, json={**good(path), **fields}) as response:
        if response.status != 200:
            assert response.status in (400, 404), await response.text()
            check_shape(await response.json())
        else:
            await response.read()
    for submit in server.engine.submitted:
        assert 0 < len(submit.token_ids) < 64
        assert all(0 <= token <= 256 for token in submit.token_ids)
        assert 1 <= submit.params.max_tokens <= 64 - len(submit.token_ids)
