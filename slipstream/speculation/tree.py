"""Token trees: what one request proposes to the target in one step."""

from collections.abc import Sequence
from math import inf
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray


class TreeShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much to speculate, in SGLang's names and counting.

    ``num_draft_tokens`` counts the root: 16 means the root and at most 15 draft nodes. What would
    follow a path that the drafter thinks less likely than ``least_score``, a natural logarithm, is
    not drafted.
    """

    num_steps: int  # levels of the tree, at least 1
    topk: int  # children kept per expanded node and nodes kept per level
    num_draft_tokens: int  # rows of one request in one step, the root included
    least_score: float = -inf

    def within(self, rows: int) -> "TreeShape":
        """This shape with at most so many rows."""
        if self.num_draft_tokens <= rows:
            return self
        return msgspec.structs.replace(self, num_draft_tokens=rows)


_ROOT_ALONE = np.array([-1], dtype=np.int32)
_ROOT_ALONE.flags.writeable = False


class TokenTree(msgspec.Struct, frozen=True, eq=False):
    """Nodes in topological order: a parent stands before its children.

    A chain of known tokens comes first (a chunk of prompt, or a single last token); its last node
    is the ``root``, below which draft nodes may hang. No draft nodes is plain decoding.
    """

    tokens: NDArray[np.int32]  # [n]
    parents: NDArray[np.int32]  # [n], the parent's index; -1 for the first node
    root: int  # index of the last known token

    @classmethod
    def chain(cls, tokens: NDArray[np.int32]) -> Self:
        """Known tokens ``[n]``, n at least 1, each below the one before it."""
        root = len(tokens) - 1
        return cls(tokens, np.arange(-1, root, dtype=np.int32) if root else _ROOT_ALONE, root)

    @property
    def draft_nodes(self) -> int:
        return len(self.tokens) - 1 - self.root

    def graft(self, tokens: Sequence[int], parents: Sequence[int]) -> "TokenTree":
        """This tree with draft nodes below its root.

        ``parents`` count from the root: 0 is the root itself, k the k-th grafted node.
        """
        if not tokens:
            return self
        grafted = np.asarray(parents, dtype=np.int32) + self.root
        return TokenTree(
            np.concatenate([self.tokens, np.asarray(tokens, dtype=np.int32)]),
            np.concatenate([self.parents, grafted]),
            self.root,
        )

    def trim(self, nodes: int) -> "TokenTree":
        """The first ``nodes`` nodes; known tokens are never dropped."""
        nodes = max(nodes, self.root + 1)
        if nodes >= len(self.tokens):
            return self
        return TokenTree(self.tokens[:nodes], self.parents[:nodes], self.root)
