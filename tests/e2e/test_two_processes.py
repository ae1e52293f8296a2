"""How a real server ends, and what keeps strangers out."""

import os
import threading
import time
from pathlib import Path
from signal import SIGINT, SIGKILL
from typing import Any

import openai
import pytest

from tests.e2e.driving import client
from tests.serving import ServeProcess, alive, serve


def stream(server: ServeProcess, max_tokens: int) -> tuple[threading.Thread, list[Any]]:
    """A streamed request that has begun, and its chunks so far; at last its error, if any."""
    seen: list[Any] = []
    begun = threading.Event()
    api = client(server)
    model = api.models.list().data[0].id

    def run() -> None:
        try:
            for chunk in api.completions.create(
                model=model, prompt="Hi", max_tokens=max_tokens, stream=True,
                extra_body={"ignore_eos": True, "return_token_ids": True},
            ):  # fmt: skip
                seen.append(chunk)
                begun.set()
        except openai.APIError as error:
            seen.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert begun.wait(60)
    return thread, seen


def test_an_interrupt_lets_a_running_request_finish(tiny_server: ServeProcess) -> None:
    engine = tiny_server.engine_pid
    thread, seen = stream(tiny_server, 60)
    tiny_server.signal(SIGINT)
    assert tiny_server.wait() == 0
    thread.join(20)
    assert sum(len(chunk.choices[0].token_ids) for chunk in seen) == 60
    assert seen[-1].choices[0].finish_reason == "length"
    assert not alive(engine)
    assert "Traceback" not in tiny_server.output


def test_a_killed_engine_ends_the_server(tiny_server: ServeProcess) -> None:
    thread, seen = stream(tiny_server, 1500)
    os.kill(tiny_server.engine_pid, SIGKILL)
    assert tiny_server.wait() == 1
    assert "error: the engine process ended (exit code -9" in tiny_server.output
    thread.join(20)
    assert isinstance(seen[-1], openai.APIError) and "SIGKILL" in str(seen[-1])


def test_a_killed_server_ends_the_engine(tiny_server: ServeProcess) -> None:
    engine = tiny_server.engine_pid
    stream(tiny_server, 1500)
    tiny_server.signal(SIGKILL)
    deadline = time.monotonic() + 20
    while alive(engine) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(engine)
    tiny_server.wait()
    assert any(line.startswith("engine: ") for line in tiny_server.lines), tiny_server.output


def test_key_name_and_length(tiny_llama: Path) -> None:
    options = ("--api-key", "sesame", "--served-model-name", "tiny", "--max-model-len", "128")
    with serve("--model", str(tiny_llama), *options) as server:
        with pytest.raises(openai.AuthenticationError):
            client(server).models.list()
        api = client(server, api_key="sesame")
        assert [model.id for model in api.models.list()] == ["tiny"]
        with pytest.raises(openai.BadRequestError, match="128"):
            api.completions.create(model="tiny", prompt=[1] * 128)
        answer = api.completions.create(model="tiny", prompt=[1] * 127)
        assert answer.usage is not None and answer.usage.completion_tokens == 1
        with pytest.raises(openai.NotFoundError):
            api.completions.create(model="default", prompt="Hi")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--max-model-len", "99999"), "2048"),
        (("--kv-memory", "1KiB"), "K/V memory"),
    ],
)
def test_what_the_engine_cannot_do(
    tiny_llama: Path, arguments: tuple[str, ...], words: str
) -> None:
    server = ServeProcess("--model", str(tiny_llama), *arguments)
    assert server.wait(120) == 2
    assert words in server.lines[-1]
    assert "Traceback" not in server.output
