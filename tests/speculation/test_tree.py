"""Token trees: chains, grafts, trims."""

import numpy as np
import pytest

from slipstream.speculation.tree import TokenTree


def tree(known: int) -> TokenTree:
    """A chain of known tokens 100, 101, ..."""
    return TokenTree.chain(np.arange(100, 100 + known, dtype=np.int32))


def test_a_chain() -> None:
    chain = tree(3)
    assert chain.tokens.tolist() == [100, 101, 102]
    assert chain.parents.tolist() == [-1, 0, 1]
    assert chain.root == 2
    assert chain.draft_nodes == 0


def test_one_token_is_plain_decoding() -> None:
    assert (tree(1).parents.tolist(), tree(1).root, tree(1).draft_nodes) == ([-1], 0, 0)


@pytest.mark.parametrize("known", [1, 3])
def test_grafted_parents_count_from_the_root(known: int) -> None:
    grafted = tree(known).graft([7, 8, 9], [0, 0, 2])
    root = known - 1
    assert grafted.tokens.tolist() == [*range(100, 100 + known), 7, 8, 9]
    assert grafted.parents.tolist() == [*range(-1, root), root, root, root + 2]
    assert (grafted.root, grafted.draft_nodes) == (root, 3)
    assert grafted.tokens.dtype == grafted.parents.dtype == np.int32


def test_grafting_nothing_changes_nothing() -> None:
    chain = tree(2)
    assert chain.graft([], []) is chain


def test_trimming_drops_the_last_draft_nodes() -> None:
    grafted = tree(2).graft([7, 8, 9], [0, 1, 0])
    trimmed = grafted.trim(3)
    assert trimmed.tokens.tolist() == [100, 101, 7]
    assert trimmed.parents.tolist() == [-1, 0, 1]
    assert (trimmed.root, trimmed.draft_nodes) == (1, 1)
    assert grafted.draft_nodes == 3


def test_trimming_never_drops_known_tokens() -> None:
    trimmed = tree(3).graft([7], [0]).trim(0)
    assert trimmed.tokens.tolist() == [100, 101, 102]
    assert trimmed.draft_nodes == 0


def test_trimming_to_more_than_there_is_changes_nothing() -> None:
    grafted = tree(1).graft([7], [0])
    assert grafted.trim(2) is grafted
    assert grafted.trim(50) is grafted
