"""The acceptance walk: it emits what plain decoding emits, and accepts what the tree foresaw."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.speculation.acceptance import accept
from slipstream.speculation.tree import TokenTree


class Target:
    """Emits the given tokens one after the other, and notes after which nodes it was asked."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = iter(tokens)
        self.asked: list[int] = []
        self.emitted: list[int] = []

    def __call__(self, node: int) -> int | None:
        self.asked.append(node)
        token = next(self._tokens, None)
        if token is not None:
            self.emitted.append(token)
        return token


def draft(tokens: Sequence[int], parents: Sequence[int], known: int = 1) -> TokenTree:
    return TokenTree.chain(np.zeros(known, dtype=np.int32)).graft(tokens, parents)


#        root
#      5      6
#    7   8    7
#    9
TREE = ([5, 6, 7, 8, 7, 9], [0, 0, 1, 1, 2, 3])


@pytest.mark.parametrize(
    ("says", "accepted"),
    [
        ([4, 1], []),
        ([5, 4], [1]),
        ([5, 8, 4], [1, 4]),
        ([6, 7, 9], [2, 5]),  # 9 is below the other 7
        ([5, 7, 9, 1], [1, 3, 6]),
    ],
)
@pytest.mark.parametrize("known", [1, 4])
def test_the_walk_follows_what_is_emitted(says: list[int], accepted: list[int], known: int) -> None:
    target = Target([*says, 99])
    nodes = accept(draft(*TREE, known), target)
    root = known - 1
    assert nodes == [root + node for node in accepted]
    assert target.asked == [root, *nodes]
    assert target.emitted == says[: len(nodes) + 1]


def test_plain_decoding_emits_one_token() -> None:
    target = Target([5, 6])
    assert accept(draft([], []), target) == []
    assert target.emitted == [5]


def test_none_ends_the_walk() -> None:
    target = Target([5, 7])  # then None, though a child would hold the next token
    assert accept(draft(*TREE), target) == [1, 3]
    assert target.asked == [0, 1, 3]
    assert accept(draft(*TREE), Target([])) == []


def test_known_tokens_are_not_walked() -> None:
    # The chain holds the emitted token, but above the root.
    tree = TokenTree.chain(np.array([5, 5, 5], dtype=np.int32))
    assert accept(tree, Target([5, 5])) == []


@given(
    parents=st.lists(st.integers(0, 100), max_size=20),
    tokens=st.lists(st.integers(0, 2), min_size=20, max_size=20),
    says=st.lists(st.integers(0, 2), min_size=21, max_size=21),
)
def test_any_tree_emits_a_prefix_of_plain_decoding(
    parents: list[int], tokens: list[int], says: list[int]
) -> None:
    """Equal siblings, too, which no drafter should send: they cost rows but change no token."""
    tree = draft(tokens[: len(parents)], [p % (i + 1) for i, p in enumerate(parents)])
    target = Target(says)
    nodes = accept(tree, target)
    assert target.emitted == says[: len(nodes) + 1]
    assert tree.tokens[nodes].tolist() == says[: len(nodes)]
    assert tree.parents[nodes].tolist() == [0, *nodes][: len(nodes)]
    # It stopped because nothing below the last node holds the next token.
    last = nodes[-1] if nodes else 0
    below = [i for i in range(1, len(tree.tokens)) if tree.parents[i] == last]
    assert says[len(nodes)] not in tree.tokens[below]
