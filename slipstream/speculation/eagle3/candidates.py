"""Token trees grown level by level, for several requests at a time (EAGLE-2: Li et al., 2024).

In each level the best ``topk`` nodes by path probability are expanded; at the end the best of all
candidates, expanded or not, form the tree.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slipstream.speculation.drafter import Draft
from slipstream.speculation.tree import TreeShape

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]


class Candidates:
    """All nodes that were proposed, a row for each of R requests, level after level.

    A candidate's score is the log probability of its path; -inf marks a place that is empty.
    """

    def __init__(self, shapes: Sequence[TreeShape]) -> None:
        self.levels = np.array([shape.num_steps for shape in shapes], dtype=np.int32)
        self.topk = np.array([shape.topk for shape in shapes], dtype=np.int32)
        self.widest = int(self.topk.max())
        self._budgets = np.array([shape.num_draft_tokens - 1 for shape in shapes], dtype=np.int32)
        empty = np.zeros((len(shapes), 0), dtype=np.int32)
        self.tokens, self.parents = empty, empty
        self.scores = empty.astype(np.float32)

    def add_level(self, tokens: Int32, logprobs: Float32, parents: Int32) -> None:
        """Propose ``widest`` children, best first, of each of the nodes ``parents``.

        ``parents`` is ``[R, P]``, places in this table or -1 for the root, ``tokens`` and
        ``logprobs`` ``[R, P, widest]``.
        """
        allowed = np.arange(self.widest) < self.topk[:, None, None]
        scores = np.where(allowed, logprobs, np.float32(-np.inf))
        if self.scores.shape[1]:
            scores += np.take_along_axis(self.scores, parents, axis=1)[:, :, None]
        requests = len(tokens)
        self.tokens = np.concatenate([self.tokens, tokens.reshape(requests, -1)], axis=1)
        self.scores = np.concatenate([self.scores, scores.reshape(requests, -1)], axis=1)
        owners = np.repeat(parents, self.widest, axis=1)
        self.parents = np.concatenate([self.parents, owners], axis=1)

    def to_expand(self, first: int, depth: int) -> tuple[Int32, NDArray[np.bool_]]:
        """The best nodes of the level whose first place is ``first``, and which are worth it.

        Both are ``[R, widest]``. A node that is not among the best of all can have no descendant
        there, since no path is likelier than its beginning.
        """
        best = np.argsort(-self.scores[:, first:], axis=1, kind="stable")[:, : self.widest]
        places = (best + first).astype(np.int32)
        scores = np.take_along_axis(self.scores, places, axis=1)
        ranked = -np.sort(-self.scores, axis=1)
        last = np.minimum(self._budgets, ranked.shape[1])[:, None] - 1
        worth = scores >= np.take_along_axis(ranked, last, axis=1)
        worth &= scores > -np.inf
        worth &= np.arange(self.widest) < self.topk[:, None]
        worth &= depth < self.levels[:, None]
        return places, worth

    def drafts(self) -> list[Draft]:
        """The best candidates of each request, a parent before its children."""
        order = np.argsort(-self.scores, axis=1, kind="stable")
        drafts = []
        for request, budget in enumerate(self._budgets):
            kept = order[request, :budget]
            kept = kept[self.scores[request, kept] > -np.inf].tolist()
            number = {-1: 0} | {place: node for node, place in enumerate(kept, start=1)}
            parents = self.parents[request, kept].tolist()
            drafts.append(
                Draft(self.tokens[request, kept].tolist(), [number[place] for place in parents])
            )
        return drafts
