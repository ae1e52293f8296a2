"""Weighed drafts: probabilities, what is kept, and which nodes were right."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.speculation.drafter import NO_DRAFT, Draft, Source
from slipstream.speculation.policy.calibration import Calibration
from slipstream.speculation.policy.weighing import WeighedDraft
from slipstream.speculation.tree import TreeShape

# Below the root 5 and 6, below the 5 a 7, below that an 8.
TREE = Draft([5, 6, 7, 8], [0, 0, 1, 3], [log(0.6), log(0.3), log(0.5), log(0.2)])


def weighed(draft: Draft, skill: float = 1.0) -> WeighedDraft:
    return WeighedDraft.of(draft, Calibration(), sampled=False, skill=skill)


def test_depths_and_probabilities() -> None:
    tree = weighed(TREE)
    assert tree.depths == [1, 1, 2, 3]
    assert tree.probabilities == pytest.approx([0.6, 0.3, 0.5, 0.2])
    assert weighed(TREE, 0.5).probabilities == pytest.approx([0.3, 0.15, 0.25, 0.1])
    assert weighed(TREE, 0.5).unskilled == pytest.approx([0.6, 0.3, 0.5, 0.2])
    assert tree.by_level() == [
        pytest.approx([0.6, 0.3]),
        pytest.approx([0.5]),
        pytest.approx([0.2]),
    ]


@pytest.mark.parametrize(
    ("emitted", "outcomes"),
    [
        ([9], [False, False, False, False]),
        ([6, 1], [False, True, False, False]),
        ([5, 7, 1], [True, False, True, False]),
        ([5, 7, 8, 1], [True, False, True, True]),
        ([5], [True, False, None, None]),  # right, but what comes next nobody knows
        ([5, 7], [True, False, True, None]),
        ([], [None, None, None, None]),
    ],
)
def test_outcomes(emitted: list[int], outcomes: list[bool | None]) -> None:
    assert weighed(TREE).outcomes(emitted) == outcomes


def test_what_is_kept_hangs_together() -> None:
    tree = weighed(TREE)
    assert tree.keep([0, 1, 2, 3]) is TREE
    kept = tree.keep([0, 2])
    assert (kept.tokens, kept.parents, kept.scores) == ([5, 7], [0, 1], [TREE.scores[0], log(0.5)])
    assert tree.keep([]).tokens == []


def test_sources_stay_with_their_nodes() -> None:
    sources = [Source.MODEL, Source.LOOKUP, Source.BOTH, Source.LOOKUP]
    tree = weighed(Draft(TREE.tokens, TREE.parents, TREE.scores, sources))
    assert tree.keep([1]).sources == [Source.LOOKUP]


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    size = draw(st.integers(1, 20))
    parents = [draw(st.integers(0, node)) for node in range(size)]
    chances = [draw(st.floats(0.001, 1.0)) for _ in range(size)]
    return Draft(list(range(size)), parents, [log(chance) for chance in chances])


@given(drafts(), st.floats(0.0, 1.5), st.integers(0, 20))
def test_the_likeliest_nodes_always_hang_together(draft: Draft, skill: float, count: int) -> None:
    """However the nodes were scored, parents are kept with their children."""
    tree = weighed(draft, skill)
    for node, parent in enumerate(draft.parents):
        if parent:
            assert tree.probabilities[node] <= tree.probabilities[parent - 1]
    order = sorted(range(len(draft.tokens)), key=lambda node: (-tree.probabilities[node], node))
    kept = tree.keep(sorted(order[:count]))
    assert len(kept.tokens) == min(count, len(draft.tokens))
    for node, parent in enumerate(kept.parents):
        assert 0 <= parent <= node
        original = draft.parents[kept.tokens[node]]
        assert (kept.tokens[parent - 1] if parent else -1) == original - 1


def test_what_was_expanded() -> None:
    draft = Draft(
        tokens=[1, 2, 3, 4, 5],
        parents=[0, 0, 1, 3, 2],
        scores=[-0.1, -2.5, -0.3, -0.9, -0.1],
        sources=[Source.MODEL, Source.BOTH, Source.MODEL, Source.MODEL, Source.LOOKUP],
    )
    assert weighed(draft).expanded(TreeShape(4, 2, 16)) == [2, 1]
    assert weighed(draft).expanded(TreeShape(4, 1, 16)) == [1, 1]
    assert weighed(draft).expanded(TreeShape(4, 2, 16, least_score=-1.0)) == [1, 1]
    assert weighed(NO_DRAFT).expanded(TreeShape(4, 2, 16)) == []
