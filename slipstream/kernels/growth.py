"""Token trees that a drafter grows: what the kernels need to know of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels.sampling_rows import SamplingRows
from slipstream.kernels.step_batch import BLOCK, Int32


@dataclass(frozen=True, slots=True)
class RingPages:
    """Where each of R requests keeps the drafter's keys and values: a ring of pages.

    Block b of its positions is in page ``first_pages + b % pages``. What is before ``starts``,
    multiples of the page size, is forgotten; attention counts positions from there.
    """

    first_pages: Int32  # [R]
    pages: int
    starts: Int32  # [R]

    def slots(self, requests: Int32, positions: Int32) -> Int32:
        """Slots of positions of requests."""
        pages = self.first_pages[requests] + positions // BLOCK % self.pages
        slots: Int32 = pages * BLOCK + positions % BLOCK
        return slots


@dataclass(frozen=True, slots=True)
class TreeGrowth:
    """R requests below whose roots trees are to grow, one pass of the drafter per level.

    The first level has a row for each position ``entered .. roots - 1`` of a request, which is one
    at least; the root's children come from the last one's logits. Deeper levels have a row for each
    node that is expanded. The i-th node that a request expands at depth d is stored as if it were
    position ``roots + (d - 1) * max(topk) + i``.
    """

    tokens: Int32  # [T] of the rows of the first level, request after request
    sources: Int32  # [T] slots of what these rows gather
    rings: RingPages
    entered: Int32  # [R]
    roots: Int32  # [R] positions of the roots
    levels: Int32  # [R] of the tree
    topk: Int32  # [R] children of a node, and nodes expanded per level
    nodes: Int32  # [R] most of the tree, without the root
    least_scores: NDArray[np.float32]  # [R] log probability of a path that goes on, at least
    sampling: SamplingRows  # [R] of the roots' children


# Tokens, parents (0 for the root, k for node k - 1 of these) and the log probabilities of the
# paths, float32; best first within the constraint that parents stand before children.
GrownTree: TypeAlias = tuple[list[int], list[int], NDArray[np.float32]]
TreeGrower: TypeAlias = Callable[[TreeGrowth], list[GrownTree]]
