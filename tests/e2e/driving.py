"""Speaking to a real server."""

import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai

from tests.serving import ServeProcess

MODEL = "SmolLM2-135M-Instruct"


def client(server: ServeProcess, api_key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key=api_key, max_retries=0, timeout=300)


def metrics(server: ServeProcess) -> dict[str, float]:
    """Every sample of ``/metrics`` by its name and labels, without the common prefix."""
    with urllib.request.urlopen(server.url + "/metrics") as response:
        lines = response.read().decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removeprefix("slipstream_"): float(value) for name, value in samples}


def wait_until(condition: Callable[[], bool], timeout: float = 60) -> None:
    """Wait for something that must happen soon."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def token_ids(server: ServeProcess, requests: list[dict[str, Any]], together: int) -> list[Any]:
    """The token ids that each request gets, ``together`` requests in flight at any time."""
    api = client(server)

    def one(request: dict[str, Any]) -> list[int]:
        answer = api.completions.create(
            model=MODEL, extra_body={"return_token_ids": True, **request.get("extra", {})},
            **{name: value for name, value in request.items() if name != "extra"},
        )  # fmt: skip
        found: list[int] = answer.choices[0].model_extra["token_ids"]  # type: ignore[index]
        return found

    with ThreadPoolExecutor(together) as pool:
        return list(pool.map(one, requests))


def texts(stream: Any) -> Iterator[str]:
    """The text of every chunk of a streamed text completion."""
    for chunk in stream:
        if chunk.choices:
            yield chunk.choices[0].text
