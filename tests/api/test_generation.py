"""Answers of both endpoints, whole and streamed."""

from typing import Any

import pytest

from tests.api.conftest import END, Server, saying
from tests.api.fake_engine import cycle

USER = [{"role": "user", "content": "Hi"}]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "messages": USER, **fields}


def text(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "prompt": "Hi", **fields}


async def test_a_chat_with_the_official_client(server: Server) -> None:
    server.engine.cached_tokens = 3
    answer = await server.openai.chat.completions.create(model="fake", messages=USER, seed=5)
    choice = answer.choices[0]
    assert choice.message.content == "Hello wörld"
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "stop"
    assert answer.usage is not None
    prompt = b"[user]Hi"
    assert answer.usage.prompt_tokens == len(prompt) + 1 + len("[assistant]")
    assert answer.usage.completion_tokens == len("Hello wörld".encode()) + 1
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 3
    assert answer.usage.slipstream["accepted_length"] == pytest.approx(13 / 4, abs=1e-3)
    assert answer.seed == 5
    assert answer.system_fingerprint
    [submit] = server.engine.submitted
    assert submit.token_ids == [*prompt, END, *b"[assistant]"]
    assert submit.params.stop_token_ids == (END,)


async def test_a_streamed_chat_with_the_official_client(server: Server) -> None:
    stream = await server.openai.chat.completions.create(
        model="fake", messages=USER, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello wörld"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 13
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({(chunk.id, chunk.created, chunk.system_fingerprint) for chunk in chunks}) == 1


async def test_a_text_completion_with_the_official_client(server: Server) -> None:
    answer = await server.openai.completions.create(model="fake", prompt="Hi")
    assert answer.choices[0].text == "Hello wörld"
    stream = await server.openai.completions.create(model="fake", prompt="Hi", stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == "Hello wörld"


@pytest.mark.parametrize(
    ("prompt", "submitted"),
    [
        ("ab", [[97, 98]]),
        (["ab", "c"], [[97, 98], [99]]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
)
async def test_every_form_of_prompt(server: Server, prompt: Any, submitted: Any) -> None:
    status, answer = await server.post(TEXT, text(prompt=prompt))
    assert status == 200
    assert [submit.token_ids for submit in server.engine.submitted] == submitted
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(submitted)))
    assert answer["usage"]["prompt_tokens"] == sum(map(len, submitted))


async def test_content_in_parts_and_a_developers_message(server: Server) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": "x"}, {"role": "user", "content": parts}]
    status, _ = await server.post(
        CHAT, {"messages": messages, "chat_template_kwargs": {"extra": "!"}}
    )
    assert status == 200
    sent = bytes(t for t in server.engine.submitted[0].token_ids if t != END)
    assert sent == b"[system]x[user]a\nb![assistant]"


async def test_an_answer_sent_back_as_it_came(server: Server) -> None:
    answer = await server.openai.chat.completions.create(model="fake", messages=USER)
    turns = [*USER, answer.choices[0].message.model_dump(), *USER]
    again = await server.openai.chat.completions.create(model="fake", messages=turns)  # type: ignore[arg-type]
    assert again.choices[0].message.content == "Hello wörld"


async def test_choices_have_consecutive_seeds_and_share_one_prompt(server: Server) -> None:
    status, answer = await server.post(CHAT, chat(n=3, seed=2**64 - 1))
    assert status == 200
    assert [s.params.seed for s in server.engine.submitted] == [2**64 - 1, 0, 1]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["completion_tokens"] == 39
    assert answer["usage"]["prompt_tokens"] == len(server.engine.submitted[0].token_ids)


async def test_streamed_choices_carry_their_index(server: Server) -> None:
    texts = ["", "", "", ""]
    for event in await server.events(TEXT, text(prompt=["a", "b"], n=2)):
        [choice] = event["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == ["Hello wörld"] * 4


async def test_a_request_without_a_seed_reports_the_one_it_got(server: Server) -> None:
    seeds = set()
    for _ in range(3):
        _, answer = await server.post(CHAT, chat())
        assert answer["seed"] == server.engine.submitted[-1].params.seed
        seeds.add(answer["seed"])
    assert len(seeds) == 3
    event = (await server.events(CHAT, chat()))[0]
    assert event["seed"] == server.engine.submitted[-1].params.seed


async def test_all_sampling_fields_arrive(server: Server) -> None:
    fields = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1,
        "presence_penalty": 0.2, "frequency_penalty": -0.3, "logit_bias": {"65": -5},
        "stop_token_ids": [7], "ignore_eos": True, "max_completion_tokens": 9,
        "speculation": {"mode": "fixed", "num_steps": 2, "topk": 2, "num_draft_tokens": 5},
    }  # fmt: skip
    status, answer = await server.post(CHAT, chat(**fields))
    assert status == 200
    params = server.engine.submitted[0].params
    for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty"):
        assert getattr(params, name) == fields[name]
    assert (params.presence_penalty, params.frequency_penalty) == (0.2, -0.3)
    assert params.logit_bias == {65: -5.0}
    assert params.stop_token_ids == (7,)
    assert params.max_tokens == 9
    assert params.speculation is not None
    assert (params.speculation.shape.num_steps, params.speculation.shape.topk) == (2, 2)
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_cuts_inside_a_step(server: Server, stream: bool) -> None:
    server.engine.script = saying("one ", "two three", "never")
    fields: dict[str, Any] = {"stop": ["o thr"], "return_token_ids": True}
    path, body = CHAT, chat(logprobs=True, top_logprobs=2, **fields)
    if stream:
        body["stream_options"] = {"include_usage": True}
        events = await server.events(path, body)
        usage = events.pop()["usage"]
        shown = "".join(e["choices"][0]["delta"]["content"] for e in events)
        token_ids = [t for e in events for t in e["choices"][0]["token_ids"]]
        entries = [t for e in events for t in e["choices"][0]["logprobs"]["content"]]
        last = events[-1]["choices"][0]
    else:
        _, answer = await server.post(path, body)
        usage, last = answer["usage"], answer["choices"][0]
        shown, token_ids = last["message"]["content"], last["token_ids"]
        entries = last["logprobs"]["content"]
    assert shown == "one tw"
    assert bytes(token_ids) == b"one two thr"
    assert [bytes(entry["bytes"]) for entry in entries] == [bytes([b]) for b in b"one two thr"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    assert usage["completion_tokens"] == len(b"one two thr")
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", "o thr")
    await server.until(lambda: server.engine.cancelled == [0])


async def test_a_streams_text_is_that_of_the_whole_answer(server: Server) -> None:
    server.engine.script = saying("a", "S", "T", "x🙂"[:1].encode() + "🙂".encode()[:2],
                                  "🙂".encode()[2:], "ST", "OP", end=False)  # fmt: skip
    _, whole = await server.post(TEXT, text(stop="STOP"))
    events = await server.events(TEXT, text(stop="STOP"))
    pieces = [event["choices"][0]["text"] for event in events]
    assert "".join(pieces) == whole["choices"][0]["text"] == "aSTx🙂"
    assert "S" not in pieces and "\ufffd" not in "".join(pieces)


async def test_a_stop_token_is_counted_but_not_shown(server: Server) -> None:
    server.engine.script = saying("ab", b"\x07", "c")
    _, answer = await server.post(TEXT, text(stop_token_ids=[7], logprobs=1))
    [choice] = answer["choices"]
    assert (choice["text"], choice["stop_reason"]) == ("ab", 7)
    assert answer["usage"]["completion_tokens"] == 3
    assert choice["logprobs"]["tokens"] == ["a", "b", "\x07"]


async def test_logprobs_of_a_text_completion(server: Server) -> None:
    server.engine.script = saying("é!")
    _, answer = await server.post(TEXT, text(logprobs=2, max_tokens=3))
    logprobs = answer["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["bytes:\\xc3", "bytes:\\xa9", "!"]
    assert logprobs["token_logprobs"] == [-0.25 - 0xC3, -0.25 - 0xA9, -0.25 - ord("!")]
    assert logprobs["top_logprobs"][2] == {"\x00": -0.5, "\x01": -1.5, "!": -33.25}
    assert logprobs["text_offset"] == [0, 0, 1]


async def test_logprobs_zero_is_not_none(server: Server) -> None:
    _, answer = await server.post(TEXT, text(logprobs=0, max_tokens=1))
    assert answer["choices"][0]["logprobs"]["tokens"] == ["H"]
    _, answer = await server.post(TEXT, text(max_tokens=1))
    assert answer["choices"][0]["logprobs"] is None


async def test_usage_on_every_chunk(server: Server) -> None:
    options = {"continuous_usage_stats": True}
    events = await server.events(TEXT, text(stream_options=options))
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts) and counts[-1] == 13
    assert all(event["choices"] for event in events)
    options["include_usage"] = True
    assert (await server.events(TEXT, text(stream_options=options)))[-1]["choices"] == []


async def test_usage_is_absent_unless_asked_for(server: Server) -> None:
    assert all("usage" not in event for event in await server.events(TEXT, text()))


async def test_max_tokens_and_token_ids(server: Server) -> None:
    server.engine.script = cycle([65, 66])
    _, answer = await server.post(TEXT, text(max_tokens=5, return_token_ids=True))
    assert answer["choices"][0]["token_ids"] == [65, 66, 65, 66, 65]
    assert answer["choices"][0]["finish_reason"] == "length"
    _, answer = await server.post(TEXT, text(max_tokens=5))
    assert "token_ids" not in answer["choices"][0]


async def test_commands_of_one_turn_share_a_frame(server: Server) -> None:
    await server.post(TEXT, text(prompt=["a", "b", "c"], n=2))
    assert len(server.engine.submitted) == 6
    assert server.engine.frames == 1
