"""Over HTTP, too, nothing changes a request's tokens: not load, not speculation, not memory."""

from typing import Any

import pytest

from tests.e2e.driving import MODEL, client, metrics, token_ids, wait_until
from tests.serving import ServeProcess

# With its number two pages long, nearly, so that all requests soon want a third.
FABLE = (
    "A fable for the evening, to be told by the fire. The crow sat on the branch. The fox sat "
    "under the branch. The crow had the cheese. The fox wanted the cheese. The crow sat on the "
    "branch. The fox sat under the branch. The crow had the"
)


def requests() -> list[dict[str, Any]]:
    """Twenty requests that differ in prompt, temperature, truncation, penalties and seed."""
    made = []
    for number in range(20):
        fields: dict[str, Any] = {
            "prompt": f"{number % 16}. {FABLE}",  # few share their first page
            "temperature": (0.0, 0.4, 0.8, 1.0)[number % 4],
            "seed": 100 + number,
            "max_tokens": 8 + number % 7,
            "extra": {"ignore_eos": True},
        }
        if number % 3 == 0:
            fields["top_p"] = 0.9
        if number % 5 == 0:
            fields["extra"] |= {"top_k": 20, "repetition_penalty": 1.05}
        made.append(fields)
    return made


@pytest.fixture(scope="module")
def expected(server: ServeProcess) -> list[list[int]]:
    """What every request gets alone, on a server that does not speculate."""
    return token_ids(server, requests(), together=1)


def test_alone_means_what_was_asked(expected: list[list[int]]) -> None:
    assert [len(tokens) for tokens in expected] == [8 + n % 7 for n in range(20)]
    assert len({tuple(tokens[:8]) for tokens in expected}) > 10


def test_twenty_in_flight(server: ServeProcess, expected: list[list[int]]) -> None:
    before = metrics(server)
    assert token_ids(server, requests(), together=20) == expected
    after = metrics(server)
    steps = after["steps_total"] - before["steps_total"]
    tokens = after["generated_tokens_total"] - before["generated_tokens_total"]
    assert tokens > 2 * steps  # they did share steps


def test_speculating_with_few_pages(
    speculating_server: ServeProcess, expected: list[list[int]]
) -> None:
    assert token_ids(speculating_server, requests(), together=20) == expected
    # Again, and soon again: now some prompts are in the prefix cache.
    assert token_ids(speculating_server, requests()[:3] * 2, together=3) == expected[:3] * 2
    seen = metrics(speculating_server)
    assert 0 < seen["accepted_nodes_total"] < seen["draft_nodes_total"]
    assert seen["evicted_pages_total"] > 0
    assert seen["cached_tokens_total"] > 0

    def all_given_back() -> bool:
        now = metrics(speculating_server)
        return now["pages_free"] + now["pages_cached"] == now["pages"]

    wait_until(all_given_back)


def test_requests_that_grow_together_preempt_each_other(
    server: ServeProcess, speculating_server: ServeProcess
) -> None:
    # One body, so that all arrive in the same step: nine are let in with two pages each, and soon
    # want a third, of which there is one.
    prompts = [f"{number}. {FABLE}" for number in range(20, 32)]

    def answers(asked: ServeProcess) -> list[list[int]]:
        extra = {"ignore_eos": True, "return_token_ids": True}
        answer = client(asked).completions.create(
            model=MODEL,
            prompt=prompts,
            max_tokens=12,
            temperature=0,
            extra_body=extra,
        )
        return [choice.model_dump()["token_ids"] for choice in answer.choices]

    before = metrics(speculating_server)["preemptions_total"]
    assert answers(speculating_server) == answers(server)
    assert metrics(speculating_server)["preemptions_total"] > before


@pytest.mark.parametrize("shape", [(1, 4, 5), (6, 1, 7), (3, 2, 8)], ids=["wide", "chain", "small"])
def test_any_shape_of_tree(
    server: ServeProcess, expected: list[list[int]], shape: tuple[int, int, int]
) -> None:
    names = ("num_steps", "topk", "num_draft_tokens")
    speculation = {"mode": "fixed", **dict(zip(names, shape, strict=True))}
    asked = requests()[:8]
    for request in asked:
        request["extra"]["speculation"] = speculation
    before = metrics(server)
    assert token_ids(server, asked, together=8) == expected[:8]
    after = metrics(server)
    accepted = after["accepted_nodes_total"] - before["accepted_nodes_total"]
    drafted = after["draft_nodes_total"] - before["draft_nodes_total"]
    assert 0 < accepted < drafted
