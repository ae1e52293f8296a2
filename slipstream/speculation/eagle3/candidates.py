"""Token trees grown level by level, for several requests at a time (EAGLE-2: Li et al., 2024).

In each level the best ``topk`` nodes by path probability are expanded; at the end the best of all
candidates, expanded or not, form the tree.
"""

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels.growth import GrownTree

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]


class Candidates:
    """All nodes that were proposed, a row for each of R requests, level after level.

    A candidate's score is the log probability of its path; -inf marks a place that is empty.
    ``levels``, ``topk``, ``nodes`` and ``least_scores``, all ``[R]``, are those of `TreeGrowth`.
    """

    def __init__(self, levels: Int32, topk: Int32, nodes: Int32, least_scores: Float32) -> None:
        self.widest = int(topk.max())
        self._levels, self._topk, self._nodes = levels, topk, nodes
        self._least_scores = least_scores
        empty = np.zeros((len(topk), 0), dtype=np.int32)
        self.tokens, self.parents = empty, empty
        self.scores = empty.astype(np.float32)

    def add_level(self, tokens: Int32, logprobs: Float32, parents: Int32) -> None:
        """Propose ``widest`` children, best first, of each of the nodes ``parents``.

        ``parents`` is ``[R, P]``, places in this table or -1 for the root, ``tokens`` and
        ``logprobs`` ``[R, P, widest]``.
        """
        allowed = np.arange(self.widest) < self._topk[:, None, None]
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
        there, since no path is likelier than its beginning; one that is not likely enough gets
        none.
        """
        best = np.argsort(-self.scores[:, first:], axis=1, kind="stable")[:, : self.widest]
        places = (best + first).astype(np.int32)
        scores = np.take_along_axis(self.scores, places, axis=1)
        ranked = -np.sort(-self.scores, axis=1)
        last = np.minimum(self._nodes, ranked.shape[1])[:, None] - 1
        worth = scores >= np.take_along_axis(ranked, last, axis=1)
        worth &= (scores > -np.inf) & (scores >= self._least_scores[:, None])
        worth &= np.arange(self.widest) < self._topk[:, None]
        worth &= depth < self._levels[:, None]
        return places, worth

    def trees(self) -> list[GrownTree]:
        """The best candidates of each request."""
        order = np.argsort(-self.scores, axis=1, kind="stable")
        trees = []
        for request, most in enumerate(self._nodes):
            kept = order[request, :most]
            kept = kept[self.scores[request, kept] > -np.inf]
            number = {-1: 0} | {place: node for node, place in enumerate(kept.tolist(), start=1)}
            parents = [number[place] for place in self.parents[request, kept].tolist()]
            trees.append((self.tokens[request, kept].tolist(), parents, self.scores[request, kept]))
        return trees
