"""The cost model: target and drafter learned from passes of mixed kinds."""

import msgspec
import numpy as np
import pytest

from slipstream.speculation.policy.cost_model import CostModel, CostTables, DraftWork, Machine

MACHINE = Machine(
    drafter_bytes=8e6, drafter_operations=3e7, context_bytes=5e3, context_operations=1e5
)


def test_a_first_guess_comes_from_bytes_and_operations() -> None:
    machine = Machine(
        target_bytes=1e8,
        target_operations=2e8,
        bytes_per_second=1e10,
        operations_per_second=1e12,
        seconds_per_pass=1e-3,
    )
    assert CostModel(machine).step(10, 0.0, 0.0) == pytest.approx(1e-3 + 1e-2 + 2e-3)


def test_kinds_of_drafts_noted_together_do_not_overshoot() -> None:
    """They share levels and the drift: each kind learns after what the others have taught."""
    costs = CostModel(MACHINE)
    level = 1.5 * costs.drafter.at(4)
    for _ in range(40):
        for first in range(2, 12):
            work = DraftWork(first, (first,))
            costs.note_draft(work, 2 * level)
        costs.settle()
        assert costs.draft(DraftWork(6, (6,))) < 2.5 * level
    assert costs.draft(DraftWork(6, (6,))) == pytest.approx(2 * level, rel=0.05)


def test_catching_up_is_told_apart_from_levels() -> None:
    costs = CostModel(MACHINE)
    level, entry = 5e-4, 8e-6
    random = np.random.default_rng(0)
    for _ in range(200):
        for _ in range(4):
            entered = int(random.integers(0, 2) * random.integers(50, 512))
            costs.note_draft(DraftWork(4, (4,), entered), 2 * level + entry * entered)
        costs.settle()
    assert costs.draft(DraftWork(4, (4,))) == pytest.approx(2 * level, rel=0.15)
    assert costs.entry == pytest.approx(entry, rel=0.2)


def test_what_a_draft_takes_beside_its_passes_is_told_apart_from_them() -> None:
    costs = CostModel(MACHINE)
    call, level = 8e-3, 1e-3
    for step in range(600):
        deeper = (4,) * (step % 4)
        costs.note_draft(DraftWork(4, deeper), call + level * (1 + len(deeper)))
        costs.settle()
    assert costs.call == pytest.approx(call, rel=0.2)
    assert costs.draft(DraftWork(4)) == pytest.approx(call + level, rel=0.05)
    assert costs.draft(DraftWork(4, (4, 4, 4))) == pytest.approx(call + 4 * level, rel=0.05)


def test_attention_is_learned() -> None:
    costs = CostModel(MACHINE)
    attention = 4 * costs.attention
    for step in range(400):
        tokens = 20_000.0 if step % 2 else 1000.0
        costs.note_step(8, tokens, 0.0, 0.01 + attention * tokens)
        costs.settle()
    assert costs.step(8, 20_000.0, 0.0) == pytest.approx(0.01 + attention * 20_000, rel=0.1)
    assert costs.step(8, 1000.0, 0.0) == pytest.approx(0.01 + attention * 1000, rel=0.1)


def test_reading_contexts_is_told_apart_from_rows_that_attend_to_them() -> None:
    """What further rows of the same requests cost is their attention alone."""
    costs = CostModel(MACHINE)
    attention, reading = 2 * costs.attention, 5 * costs.reading
    random = np.random.default_rng(0)
    for _ in range(3000):
        context = float(random.integers(500, 12_000))
        rows = int(random.choice([8, 8, 16, 32]))
        took = 0.004 + 0.001 * rows + attention * context * rows / 8 + reading * context
        costs.note_step(rows, context * rows / 8, context, took)
        costs.settle()
    for context in (2000.0, 10_000.0):
        plain = 0.012 + (attention + reading) * context
        assert costs.plain(8, context) == pytest.approx(plain, rel=0.1)
        more = costs.step(16, 2 * context, context) - costs.plain(8, context)
        assert more == pytest.approx(0.008 + attention * context, rel=0.25)


def test_rows_without_logits_count_for_less() -> None:
    costs = CostModel(Machine(without_logits=0.75))
    assert costs.rows(5, 5) == 5
    assert costs.rows(204, 4) == 154
    assert costs.rows(5, 4) == 5  # but never for nothing


def test_one_accident_changes_little() -> None:
    costs = CostModel(MACHINE)
    usual = costs.step(4, 0.0, 0.0)
    for _ in range(20):
        for _ in range(10):
            costs.note_step(4, 0.0, 0.0, usual)
        costs.note_step(4, 0.0, 0.0, 100 * usual)
        costs.settle()
    assert costs.step(4, 0.0, 0.0) == pytest.approx(usual, rel=0.02)


def test_tables_survive_the_disk() -> None:
    costs, other = CostModel(MACHINE), CostModel(Machine())
    costs.note_step(4, 0.0, 0.0, 0.02)
    costs.settle()
    tables = msgspec.json.decode(msgspec.json.encode(costs.tables()), type=CostTables)
    other.restore(tables)
    drift = costs.target.drift
    assert other.step(4, 100.0, 50.0) == pytest.approx(costs.step(4, 100.0, 50.0) / drift)
    with pytest.raises(ValueError, match="not costs"):
        other.restore(msgspec.structs.replace(tables, attention=-1.0))
    with pytest.raises(ValueError, match="not costs"):
        other.restore(msgspec.structs.replace(tables, reading=2.0))
