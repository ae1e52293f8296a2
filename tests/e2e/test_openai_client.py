"""The official client against the default model."""

import json
import socket
import threading
from typing import Any

import openai
import pytest

from tests.e2e.driving import MODEL, client, metrics, texts, wait_until
from tests.serving import ServeProcess

QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]
FIXED = {"mode": "fixed", "num_steps": 4, "topk": 2, "num_draft_tokens": 10}
COUNTING = "1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3,"


def test_a_chat(server: ServeProcess) -> None:
    answer = client(server).chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_completion_tokens=40
    )
    choice = answer.choices[0]
    assert "Paris" in (choice.message.content or "")
    assert choice.finish_reason == "stop"
    assert answer.usage is not None and answer.usage.completion_tokens < 40


def test_a_streamed_chat_is_the_whole_one(server: ServeProcess) -> None:
    fields: dict[str, Any] = {
        "model": MODEL, "messages": QUESTION, "temperature": 0.8, "seed": 1, "max_tokens": 24,
        "extra_body": {"return_token_ids": True},
    }  # fmt: skip
    api = client(server)
    whole = api.chat.completions.create(**fields)
    chunks = list(
        api.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True})
    )
    shown = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert shown == whole.choices[0].message.content
    ids = [t for c in chunks if c.choices for t in c.choices[0].token_ids]
    assert ids == whole.choices[0].token_ids
    assert whole.usage is not None and chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == len(ids)


def test_every_form_of_prompt_gives_the_same(server: ServeProcess) -> None:
    api = client(server)
    fields: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 6}
    prompt = "The capital of France is"
    text = api.completions.create(prompt=prompt, **fields)
    two = api.completions.create(prompt=[prompt, "2 + 2 ="], **fields)
    assert two.choices[0].text == text.choices[0].text
    assert two.usage is not None and text.usage is not None
    assert two.usage.prompt_tokens > text.usage.prompt_tokens
    ids = [504, 3575, 282, 4649, 314]  # the same prompt, as this model's tokenizer splits it
    for form in (ids, [ids]):
        answer = api.completions.create(prompt=form, **fields)
        assert answer.choices[0].text == text.choices[0].text
        assert answer.usage is not None and answer.usage.prompt_tokens == len(ids)


def test_choices_are_those_of_consecutive_seeds(server: ServeProcess) -> None:
    api = client(server)
    fields: dict[str, Any] = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 8}
    together = api.completions.create(n=3, seed=40, **fields)
    alone = [api.completions.create(seed=seed, **fields) for seed in (40, 41, 42)]
    assert [c.text for c in together.choices] == [a.choices[0].text for a in alone]
    assert len({choice.text for choice in together.choices}) > 1


def test_a_reported_seed_repeats_the_answer(server: ServeProcess) -> None:
    api = client(server)
    fields: dict[str, Any] = {"model": MODEL, "prompt": "My favourite", "max_tokens": 10}
    first = api.completions.create(**fields)
    again = api.completions.create(seed=first.seed, **fields)  # type: ignore[attr-defined]
    assert again.choices[0].text == first.choices[0].text


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_cuts_inside_an_accepted_run(server: ServeProcess, stream: bool) -> None:
    api = client(server)
    fields: dict[str, Any] = {
        "model": MODEL, "prompt": COUNTING, "temperature": 0, "max_tokens": 40, "logprobs": 0,
    }  # fmt: skip
    extra: dict[str, Any] = {"return_token_ids": True}
    whole = api.completions.create(extra_body=extra, **fields)
    stop = ", 3"
    cut = whole.choices[0].text.index(stop)
    before = metrics(server)
    extra["speculation"] = FIXED
    if stream:
        chunks = list(
            api.completions.create(
                stop=[stop], stream=True, stream_options={"include_usage": True},
                extra_body=extra, **fields,
            )
        )  # fmt: skip
        usage: Any = chunks.pop().usage
        text = "".join(texts(chunks))
        ids = [t for c in chunks for t in c.choices[0].token_ids]  # type: ignore[attr-defined]
        count = sum(len(c.choices[0].logprobs.tokens or []) for c in chunks)  # type: ignore[union-attr]
        reason = chunks[-1].choices[0].finish_reason
    else:
        answer = api.completions.create(stop=[stop], extra_body=extra, **fields)
        usage, choice = answer.usage, answer.choices[0]
        text, reason = choice.text, choice.finish_reason
        ids, count = choice.token_ids, len(choice.logprobs.tokens or [])  # type: ignore
    assert (text, reason) == (whole.choices[0].text[:cut], "stop")
    assert ids == whole.choices[0].token_ids[: len(ids)]  # type: ignore[attr-defined]
    assert usage.completion_tokens == len(ids) == count
    # It was an accepted run that was cut.
    assert metrics(server)["accepted_nodes_total"] > before["accepted_nodes_total"]
    assert usage.slipstream["accepted_length"] > 1


def test_logprobs_are_those_of_a_distribution(server: ServeProcess) -> None:
    answer = client(server).chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_tokens=4, logprobs=True, top_logprobs=5
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert "".join(t.token for t in logprobs.content) == answer.choices[0].message.content
    for token in logprobs.content:
        values = [top.logprob for top in token.top_logprobs]
        assert values == sorted(values, reverse=True) and values[0] <= 0
        assert token.logprob == values[0]  # greedy


def test_ignore_eos_goes_on(server: ServeProcess) -> None:
    api = client(server)
    fields: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "temperature": 0}
    answer = api.chat.completions.create(max_tokens=40, extra_body={"ignore_eos": True}, **fields)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None and answer.usage.completion_tokens == 40


def test_a_repeated_prompt_is_cached(server: ServeProcess) -> None:
    api = client(server)
    prompt = "A long story about a lighthouse keeper. " * 12
    for known in (False, True):
        answer = api.completions.create(model=MODEL, prompt=prompt, max_tokens=1)
        assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
        cached = answer.usage.prompt_tokens_details.cached_tokens
        assert cached is not None
        assert (cached >= 32) == known


def test_a_client_that_goes_frees_its_pages(server: ServeProcess) -> None:
    wait_until(lambda: metrics(server)["running"] == 0)
    stream = client(server).completions.create(
        model=MODEL, prompt="Tell me everything.", max_tokens=2000, stream=True,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    next(iter(stream))
    wait_until(lambda: metrics(server)["running"] == 1)
    now = metrics(server)
    assert now["pages_free"] + now["pages_cached"] < now["pages"]
    stream.close()

    def freed() -> bool:
        now = metrics(server)
        return now["running"] == 0 and now["pages_free"] + now["pages_cached"] == now["pages"]

    wait_until(freed)
    assert metrics(server)["generated_tokens_total"] < 2000


def test_a_client_that_never_reads_delays_nobody(server: ServeProcess) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({"prompt": "Hi", "max_tokens": 60, "ignore_eos": True, "stream": True})
    before = metrics(server)["generated_tokens_total"]
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.connect((host, int(port)))
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        deaf.sendall(head + f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        wait_until(lambda: metrics(server)["generated_tokens_total"] > before)
        answer = client(server).completions.create(model=MODEL, prompt="Hi", max_tokens=4)
        assert answer.usage is not None and answer.usage.completion_tokens == 4
        wait_until(lambda: metrics(server)["generated_tokens_total"] >= before + 64)


def test_what_is_refused(server: ServeProcess) -> None:
    api = client(server)
    steps = metrics(server)["steps_total"]
    with pytest.raises(openai.NotFoundError, match=MODEL):
        api.completions.create(model="gpt-9", prompt="Hi")
    with pytest.raises(openai.BadRequestError, match="8192"):
        api.completions.create(model=MODEL, prompt="word " * 9000)
    with pytest.raises(openai.BadRequestError, match="49151"):
        api.completions.create(model=MODEL, prompt=[49152])
    with pytest.raises(openai.BadRequestError, match="tools is not supported"):
        tools: Any = [{"type": "function", "function": {"name": "f"}}]
        api.chat.completions.create(model=MODEL, messages=QUESTION, tools=tools)
    assert metrics(server)["steps_total"] == steps
    assert [model.id for model in api.models.list()] == [MODEL]


def test_twenty_streams_at_once_end_well(server: ServeProcess) -> None:
    lengths: list[int] = []

    def run(seed: int) -> None:
        stream = client(server).completions.create(
            model=MODEL, prompt=f"Number {seed}:", max_tokens=5, seed=seed, stream=True,
            stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
        )  # fmt: skip
        *_, last = stream
        assert last.usage is not None
        lengths.append(last.usage.completion_tokens)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lengths == [5] * 20
