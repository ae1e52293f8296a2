"""The step loop's bookkeeping: what deltas and statistics say of a step."""

from pathlib import Path

import pytest

from slipstream.engine.engine import Engine
from slipstream.engine.messages import Delta, Submit
from slipstream.engine.params import SamplingParams, Speculation, TreeShape
from slipstream.speculation.policy.adaptive import AdaptivePolicy
from slipstream.speculation.policy.cost_model import CostModel, Machine
from slipstream.speculation.policy.step import Taken
from tests.engine.driving import greedy, start_engine

REPEATING = [5, 6, 7, 8] * 10
SHAPE = TreeShape(num_steps=4, topk=4, num_draft_tokens=16)


@pytest.fixture
def engine(tiny_llama: Path) -> Engine:
    return start_engine(tiny_llama, speculation=SHAPE)


def params(max_tokens: int, **fields: object) -> SamplingParams:
    # So much bias that the text repeats, and prompt lookup guesses some of it.
    bias = {5: 30.0, 6: 30.0}
    return SamplingParams(max_tokens=max_tokens, logit_bias=bias, **fields)  # type: ignore[arg-type]


def run(engine: Engine, *submits: Submit) -> list[Delta]:
    for submit in submits:
        engine.submit(submit)
    deltas = []
    while engine.busy:
        deltas += engine.step()
    return deltas


def test_statistics_add_up(engine: Engine) -> None:
    deltas = run(
        engine,
        *(Submit(id, REPEATING[: 30 + id], params(25, seed=id)) for id in range(3)),
    )
    stats = engine.stats()
    generated = sum(len(delta.token_ids) for delta in deltas)
    assert generated == stats.generated_tokens_total == 3 * 25
    assert stats.accepted_nodes_total == generated - len(deltas) > 0
    assert stats.draft_nodes_total == sum(delta.proposed for delta in deltas)
    assert stats.prompt_tokens_total == 30 + 31 + 32
    # The step of a prompt's last chunk emits, so each request has one delta without a decode row.
    assert stats.rows_total == 93 + len(deltas) - 3 + stats.draft_nodes_total
    assert stats.step_seconds_total > 0
    assert (stats.running, stats.waiting, stats.pages_free) == (0, 0, stats.pages)


def test_accepted_runs_end_exactly_at_max_tokens(engine: Engine) -> None:
    for max_tokens in range(1, 12):
        deltas = run(engine, Submit(max_tokens, REPEATING, params(max_tokens)))
        assert sum(len(delta.token_ids) for delta in deltas) == max_tokens
        assert [delta.finish for delta in deltas] == [None] * (len(deltas) - 1) + ["length"]
    assert engine.stats().accepted_nodes_total > 0


def test_the_last_token_needs_no_draft(engine: Engine) -> None:
    [delta] = run(engine, Submit(0, REPEATING, params(1)))
    assert delta.proposed == 0


def test_a_request_may_turn_speculation_off(engine: Engine) -> None:
    off = params(20, speculation=Speculation("off"))
    assert all(delta.proposed == 0 for delta in run(engine, Submit(0, REPEATING, off)))
    assert any(delta.proposed > 0 for delta in run(engine, Submit(1, REPEATING, params(20))))


def test_log_probabilities_come_when_asked_for(engine: Engine) -> None:
    deltas = run(
        engine, *(Submit(id, REPEATING, params(9, logprobs=n)) for id, n in enumerate([None, 0, 3]))
    )
    for delta in deltas:
        if delta.id == 0:
            assert delta.logprobs is None
        else:
            assert delta.logprobs is not None
            assert len(delta.logprobs) == len(delta.token_ids)
            assert {len(each.top) for each in delta.logprobs} == {[None, 0, 3][delta.id]}


@pytest.mark.parametrize(("prompt", "max_tokens"), [(0, 4), (4, 0), (4, -1), (60, 5), (65, 1)])
def test_a_request_that_cannot_be_served_is_refused(
    tiny_llama: Path, prompt: int, max_tokens: int
) -> None:
    engine = start_engine(tiny_llama, pages=2)
    with pytest.raises(ValueError, match="together at most 64"):
        engine.submit(Submit(0, [5] * prompt, greedy(max_tokens)))
    assert not engine.busy


def test_what_the_policy_is_told_of_a_step(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a prompt that need no logits count for less, and a context is read once."""
    told: list[Taken] = []
    monkeypatch.setattr(AdaptivePolicy, "observe", lambda _, emitted, taken: told.append(taken))
    engine = start_engine(tiny_llama, costs=CostModel(Machine(without_logits=0.5)))
    engine.submit(Submit(0, list(range(1, 12)), greedy(3)))
    while engine.busy:
        engine.step()
    prompt, *decoding = [(taken.rows, taken.attention, taken.context) for taken in told]
    assert prompt == (1 + 5, 55.0, 11.0)  # 11 rows, of which the last one has logits
    assert decoding == [(1, 11.0, 12.0), (1, 12.0, 13.0)]
