"""Prompt lookup: trees of what followed the same words before."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.engine.params import SamplingParams
from slipstream.speculation.drafter import NO_DRAFT, Draft, DraftTask
from slipstream.speculation.ngram import NgramDrafter
from slipstream.speculation.tree import TreeShape

WIDE = TreeShape(num_steps=4, topk=4, num_draft_tokens=16)


def task(tokens: list[int], shape: TreeShape = WIDE, id: int = 0) -> DraftTask:
    return DraftTask(
        id,
        np.array(tokens, dtype=np.int32),
        shape,
        len(tokens) - 1,
        [],
        SamplingParams(max_tokens=1),
    )


def draft(tokens: list[int], shape: TreeShape = WIDE) -> Draft:
    [drafted] = NgramDrafter().draft([task(tokens, shape)])
    return drafted


def paths(drafted: Draft) -> list[tuple[int, ...]]:
    """Each node as the tokens from below the root down to it."""
    found: list[tuple[int, ...]] = []
    for token, parent in zip(drafted.tokens, drafted.parents, strict=True):
        found.append((*(found[parent - 1] if parent else ()), token))
    return found


def test_text_without_repetition_gives_no_draft() -> None:
    assert draft(list(range(50))) == NO_DRAFT
    assert draft([7]) == NO_DRAFT


def test_one_continuation_is_a_chain() -> None:
    drafted = draft([1, 2, 3, 4, 5, 6, 1, 2])
    assert (drafted.tokens, drafted.parents) == ([3, 4, 5, 6], [0, 1, 2, 3])
    assert all(0 > score >= below for score, below in pairwise(drafted.scores))


def test_several_continuations_share_their_prefixes() -> None:
    shape = TreeShape(num_steps=3, topk=4, num_draft_tokens=16)
    drafted = draft([5, 1, 2, 3, 5, 1, 2, 4, 5, 8, 9, 9, 5], shape)
    assert sorted(paths(drafted)) == [
        (1,), (1, 2), (1, 2, 3), (1, 2, 4),
        (8,), (8, 9), (8, 9, 9),
    ]  # fmt: skip
    assert drafted.tokens[:2] == [1, 2]  # what came twice is the likelier


def test_longer_matches_win() -> None:
    # After 1 2 3 came 9; after 2 3, later, 8; after 3, later still, 7.
    drafted = draft([1, 2, 3, 9, 0, 2, 3, 8, 0, 3, 7, 0, 1, 2, 3])
    first = [path[0] for path in paths(drafted) if len(path) == 1]
    assert first == [9, 8, 7]
    assert draft([1, 2, 3, 9, 2, 3, 8, 3, 7, 1, 2, 3], TreeShape(1, 1, 2)).tokens == [9]


def test_one_long_match_outweighs_several_short_ones() -> None:
    drafted = draft([1, 2, 3, 4, 9, 4, 8, 4, 8, 4, 8, 1, 2, 3, 4])
    assert [path[0] for path in paths(drafted) if len(path) == 1][:2] == [9, 8]


def test_the_likeliest_nodes_fill_the_budget() -> None:
    tokens = [5, 1, 1, 1, 1, 5, 1, 1, 1, 1, 5, 2, 2, 2, 2, 5]
    wide = draft(tokens)
    tight = draft(tokens, TreeShape(num_steps=4, topk=4, num_draft_tokens=4))
    assert paths(tight) == paths(wide)[:3]
    assert (1, 1) in paths(tight)


def test_a_repetition_that_runs_to_the_end() -> None:
    drafted = draft([1, 2] * 4)
    assert paths(drafted)[:4] == [(1,), (1, 2), (1, 2, 1), (1, 2, 1, 2)]


def test_requests_do_not_see_each_other() -> None:
    drafter = NgramDrafter()
    first, second = [1, 2, 3, 1, 2], [1, 2, 9, 1, 2]
    drafts = drafter.draft([task(first, id=1), task(second, id=2)])
    assert drafts == [draft(first), draft(second)]
    assert drafter.draft([]) == []


def test_forgetting_drops_what_was_kept() -> None:
    drafter = NgramDrafter()
    drafter.draft([task([1, 2, 3, 1, 2], id=1), task([4, 5, 4], id=2)])
    drafter.forget(1)
    drafter.forget(1)
    drafter.forget(77)
    assert drafter.draft([task([8, 9, 7], id=1)]) == [NO_DRAFT]
    assert drafter.draft([task([4, 5, 4], id=2)]) == [draft([4, 5, 4])]


texts = st.one_of(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.lists(st.integers(0, 3), min_size=60, max_size=60),  # so that some trees are wide
)
shapes = st.builds(TreeShape, st.integers(1, 10), st.integers(1, 6), st.integers(1, 30))


@settings(max_examples=200, deadline=None)
@given(texts, shapes)
def test_every_draft_is_a_tree_within_its_shape(tokens: list[int], shape: TreeShape) -> None:
    drafted = draft(tokens, shape)
    assert all(0 <= parent <= node for node, parent in enumerate(drafted.parents))
    found = paths(drafted)
    assert len(found) <= shape.num_draft_tokens - 1
    assert len(set(found)) == len(found)  # so siblings differ
    depths = [len(path) for path in found]
    assert max(depths, default=0) <= shape.num_steps
    assert all(depths.count(depth) <= shape.topk for depth in depths)
    # Each path once stood in the text, after the last token.
    text = tuple(tokens)
    for path in found:
        wanted = (text[-1], *path)
        assert any(text[i : i + len(wanted)] == wanted for i in range(len(text)))


@settings(max_examples=100, deadline=None)
@given(texts, st.lists(st.integers(1, 60), max_size=6), shapes)
def test_a_history_that_grows_gives_what_a_fresh_one_gives(
    tokens: list[int], cuts: list[int], shape: TreeShape
) -> None:
    drafter = NgramDrafter()
    for length in sorted(cuts):
        drafter.draft([task(tokens[:length], shape)])
    assert drafter.draft([task(tokens, shape)]) == [draft(tokens, shape)]


@given(texts)
def test_repeated_text_is_always_drafted(tokens: list[int]) -> None:
    assert bool(draft(tokens).tokens) == (tokens[-1] in tokens[:-1])
