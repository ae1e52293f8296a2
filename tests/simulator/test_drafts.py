"""Synthetic drafts: trees like EAGLE-2's, right as often as their scores say."""

import numpy as np
import pytest

from slipstream.simulator.drafts import (
    UNDRAFTED,
    Guess,
    accepted_length,
    expected_length,
    guess,
    walk,
)
from slipstream.simulator.machine import TWO_AMX_CORES, Machine
from slipstream.speculation.drafter import NO_DRAFT, Draft
from slipstream.speculation.tree import TreeShape
from tests.simulator.machines import changed


def guesses(machine: Machine, shape: TreeShape, count: int) -> list[Guess]:
    zeros = np.zeros(count)
    return guess(machine, shape, zeros, zeros.astype(np.bool_), np.random.default_rng(1))


@pytest.mark.parametrize(
    "shape",
    [TreeShape(1, 1, 2), TreeShape(2, 1, 3), TreeShape(4, 4, 16), TreeShape(4, 2, 16, -1.0)],
)
def test_trees_are_well_formed(shape: TreeShape) -> None:
    for each in guesses(TWO_AMX_CORES, shape, 50):
        draft = each.draft
        assert len(draft.tokens) <= shape.num_draft_tokens - 1
        siblings = list(zip(draft.parents, draft.tokens, strict=True))
        assert len(set(siblings)) == len(siblings)
        scores = [0.0, *draft.scores]
        for node, parent in enumerate(draft.parents):
            assert parent <= node
            assert draft.scores[node] <= scores[parent]
            assert scores[parent] >= shape.least_score
        assert each.truth[-1] == UNDRAFTED
        assert len(each.truth) <= shape.num_steps + 1


@pytest.mark.parametrize("truth", [0.0, 0.6, 1.0])
def test_scores_are_as_honest_as_the_machine_says(truth: float) -> None:
    found = guesses(changed(TWO_AMX_CORES, truth=truth), TreeShape(3, 4, 12), 20_000)
    emitted = np.mean([len(walk(each.draft, each.truth)) for each in found])
    promised = np.mean([expected_length(each.draft, truth) for each in found])
    assert emitted == pytest.approx(promised, rel=0.02)
    if truth == 0.0:
        assert emitted == 1.0


def test_a_best_guess_is_right_as_often_as_the_machine_says() -> None:
    machine = changed(TWO_AMX_CORES, between_requests=0.0, acceptance=(0.7,))
    assert accepted_length(machine, TreeShape(1, 1, 2)) == pytest.approx(1.7, abs=0.02)


def test_a_walk_ends_where_the_draft_was_cut() -> None:
    draft = Draft([0, 1, 0], [0, 0, 1], [0.0, 0.0, 0.0])
    assert walk(draft, [0, 0, UNDRAFTED]) == [0, 0, UNDRAFTED]
    assert walk(draft, [1, 0, UNDRAFTED]) == [1, 0]
    assert walk(NO_DRAFT, [0, UNDRAFTED]) == [0]
