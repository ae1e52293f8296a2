"""What the engine knows of a drafter."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from slipstream.speculation.tree import TreeShape


class SamplingRule(Protocol):
    """How a request draws its tokens; see `SamplingRows`."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def seed(self) -> int: ...


class DraftTask(msgspec.Struct, frozen=True, eq=False):
    """One request that may speculate in this step."""

    request_id: int
    tokens: NDArray[np.int32]  # all known tokens; the last one is the root
    shape: TreeShape
    committed: int  # tokens whose K, V and features are in the pages
    pages: list[int]
    sampling: SamplingRule


class Source(IntEnum):
    """Who proposed a node: a drafter that is a model, prompt lookup, or both."""

    MODEL = 0
    LOOKUP = 1
    BOTH = 2


@dataclass(frozen=True, slots=True)
class Draft:
    """Nodes below the root, best first within the constraint that parents stand before children.

    ``parents[i]`` is 0 for the root, k for node k - 1 of this list. ``scores[i]`` is the natural
    logarithm of the probability that the whole path to the node is right, as its source says it.
    Without ``sources`` all nodes are a model's.
    """

    tokens: list[int]
    parents: list[int]
    scores: list[float]
    sources: list[Source] = field(default_factory=list)

    @property
    def origins(self) -> list[Source]:
        """The source of each node."""
        return self.sources or [Source.MODEL] * len(self.tokens)


NO_DRAFT = Draft([], [], [])


class Drafter(Protocol):
    """Proposes token trees. A proposal decides speed only, never what is emitted."""

    def draft(self, tasks: Sequence[DraftTask]) -> list[Draft]:
        """One draft per task, at most as large as its shape allows; empty where nothing fits."""
        ...

    def lag(self, request_id: int, committed: int) -> int:
        """Positions that must be entered before a request with so many committed tokens drafts."""
        ...

    def forget(self, request_id: int) -> None:
        """The request has ended: drop what is kept for it."""
        ...
