"""Token trees grown level by level, for kernels that have no way of their own to grow them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels import SamplingRows
from slipstream.kernels.growth import GrownTree, TreeGrowth
from slipstream.kernels.interface import Program
from slipstream.speculation.eagle3.candidates import Candidates
from slipstream.speculation.eagle3.ring_rows import Paths, lay_chains

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]

# The best tokens of each row of logits and their log probabilities; see `Kernels.rank`.
Rank = Callable[[Float32, SamplingRows, int], tuple[Int32, Float32]]


class LevelGrower:
    """All requests together, one pass of the drafter per level; see `TreeGrower`."""

    def __init__(self, first: Program, deeper: Program, rank: Rank) -> None:
        self._first = first
        self._deeper = deeper
        self._rank = rank

    def __call__(self, growth: TreeGrowth) -> list[GrownTree]:
        candidates = Candidates(growth.levels, growth.topk, growth.nodes, growth.least_scores)
        widest = candidates.widest
        entries = lay_chains(
            growth.rings, growth.entered, growth.roots, growth.tokens, growth.sources
        )
        ranked = self._rank(self._first(entries), growth.sampling, widest)
        root = np.full((len(growth.roots), 1), -1, dtype=np.int32)
        candidates.add_level(ranked[0][:, None], ranked[1][:, None], root)

        paths = Paths(growth.rings, growth.roots, widest)
        first = 0  # place of the level's first candidate
        for depth in range(1, int(growth.levels.max())):
            nodes, worth = candidates.to_expand(first, depth)
            if not worth.any():
                break
            above = (nodes - first) // widest
            first = candidates.tokens.shape[1]
            found = np.take_along_axis(candidates.tokens, nodes, axis=1)
            batch = paths.extend(found, above, worth)
            rows = _deeper_rows(growth.sampling, batch.requests, depth)
            tokens = np.full((*nodes.shape, widest), -1, dtype=np.int32)
            logprobs = np.full(tokens.shape, -np.inf, dtype=np.float32)
            tokens[worth], logprobs[worth] = self._rank(self._deeper(batch), rows, widest)
            candidates.add_level(tokens, logprobs, nodes)
        return candidates.trees()


def _deeper_rows(sampling: SamplingRows, requests: Int32, depth: int) -> SamplingRows:
    """How these requests draw so many positions later."""
    rows = {name: getattr(sampling, name)[requests] for name in SamplingRows.__slots__}
    return replace(SamplingRows(**rows), position=rows["position"] + np.int32(depth))
