"""The equality that matters most, on the real model and real text."""

from functools import partial

import pytest

from slipstream.engine.engine import Engine
from slipstream.engine.load import SHIPPED_DRAFTER
from slipstream.engine.messages import Delta, Submit
from slipstream.engine.params import TreeShape
from slipstream.models.tokenizer import load_tokenizer
from tests import kernel_sets
from tests.engine.driving import assert_as_alone, drive, greedy, sampled, start_engine

TREE = TreeShape(num_steps=4, topk=4, num_draft_tokens=16)
COPYING = (
    "Repeat this text exactly: The quick brown fox jumps over the lazy dog. "
    "Seven wizards packed a box with five dozen jugs."
)


def chat(text: str) -> list[int]:
    return load_tokenizer("default").apply_chat_template([{"role": "user", "content": text}])


Start = partial[Engine]


@pytest.fixture(
    scope="module",
    params=[
        kernel_sets.param(kernel_sets.BEST, (kernel_sets.BEST, "auto")),
        kernel_sets.param(kernel_sets.BEST, (kernel_sets.BEST, "int8")),
        kernel_sets.param(kernel_sets.TORCH, (kernel_sets.TORCH, "auto")),
    ],
    ids="-".join,
)
def start(request: pytest.FixtureRequest) -> Start:
    """Starts engines on the default model, with the drafter that comes with it."""
    kernel_set, kv_dtype = request.param
    return partial(
        start_engine,
        "default",
        pages=32,
        kernel_set=kernel_set,
        kv_dtype=kv_dtype,
        drafter=SHIPPED_DRAFTER,
    )


@pytest.fixture(scope="module")
def plain(start: Start) -> Engine:
    return start()


def test_speculation_sampling_batching_and_chunks(plain: Engine, start: Start) -> None:
    submits = [
        Submit(0, chat(COPYING), greedy(30)),
        Submit(1, chat("Write a haiku about rain."), sampled(30, seed=5, temperature=0.8)),
        Submit(2, chat(COPYING), sampled(30, seed=6, temperature=0.3, top_p=0.9)),
    ]
    engine = start(max_step_rows=40, speculation=TREE)
    outputs = drive(engine, submits, arrivals={0: 0, 1: 1, 2: 3})
    stats = engine.stats()
    assert 0 < stats.accepted_nodes_total < stats.draft_nodes_total
    assert_as_alone(plain, submits, outputs)


def test_the_drafter_guesses_what_the_target_would_say(plain: Engine, start: Start) -> None:
    """Greedy and sampled: without the target's own noise, draws could hardly be guessed."""
    question = chat("Write a Python function that returns the largest number in a list.")
    for params in (greedy(60), sampled(60, seed=3, temperature=0.6)):
        engine = start(speculation=TREE)
        outputs = drive(engine, [Submit(0, question, params)])
        stats = engine.stats()
        assert stats.generated_tokens_total > 1.6 * stats.steps_total
        assert_as_alone(plain, [Submit(0, question, params)], outputs)


def test_a_stop_token_inside_an_accepted_run_ends_it_there(plain: Engine, start: Start) -> None:
    engine = start(speculation=TREE)
    prompt = chat(COPYING)
    engine.submit(Submit(0, prompt, greedy(30)))
    deltas: list[Delta] = []
    while engine.busy:
        deltas += engine.step()
    # A token that only ever stands in the middle of an accepted run.
    inside = [token for delta in deltas for token in delta.token_ids[1:-1]]
    run_starts = {delta.token_ids[0] for delta in deltas}
    stop = next(token for token in inside if token not in run_starts)
    stopped = drive(engine, [Submit(1, prompt, greedy(30, stop_token_ids=(stop,)))])[1]
    whole = drive(plain, [Submit(2, prompt, greedy(30))])[2]
    end = whole.tokens.index(stop) + 1
    assert 0 < end < 30
    assert stopped.finish == "stop"
    assert stopped.tokens == whole.tokens[:end]
    assert stopped.logprobs == whole.logprobs[:end]
