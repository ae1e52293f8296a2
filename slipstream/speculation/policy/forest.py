"""All draft nodes of one step, as arrays over nodes: what they are worth, which are kept, and which
the target agreed with."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slipstream.speculation.drafter import Draft
from slipstream.speculation.policy.calibration import Calibration
from slipstream.speculation.policy.outlook import LEVELS, WIDTH

Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]

MOST_SKILL = 1.5


@dataclass(slots=True)
class Forest:
    """Nodes of several requests' drafts end to end, each draft's in its own order.

    ``parents`` are places in the same arrays, -1 for a root; ``depths`` count from 1.
    """

    tokens: list[int]
    parents: Int32
    owners: Int32  # which request's
    depths: Int32
    scores: Float64  # natural logarithms of the paths' probabilities, as the drafter says
    sampled: Bool
    probabilities: Float64 = field(default_factory=lambda: np.zeros(0))  # of acceptance
    unskilled: Float64 = field(
        default_factory=lambda: np.zeros(0)
    )  # apart from the request's skill

    @classmethod
    def empty(cls) -> "Forest":
        """No nodes."""
        none = np.zeros(0, dtype=np.int32)
        return cls([], none, none, none, np.zeros(0), np.zeros(0, dtype=np.bool_))

    @classmethod
    def of(cls, drafts: Sequence[Draft], sampled: Sequence[bool]) -> "Forest":
        """The nodes of one draft for each request, some of which may be empty."""
        sizes = [len(draft.tokens) for draft in drafts]
        owners = np.repeat(np.arange(len(drafts), dtype=np.int32), sizes)
        firsts = np.cumsum([0, *sizes[:-1]])
        own = np.concatenate([np.asarray(d.parents, dtype=np.int32) for d in drafts]) - 1
        parents = np.where(own < 0, -1, own + firsts[owners]).astype(np.int32)
        depths = np.ones(len(parents), dtype=np.int32)
        above = parents
        while (below := above >= 0).any():
            depths += below
            above = np.where(below, parents[above], -1)
        return cls(
            [token for draft in drafts for token in draft.tokens],
            parents,
            owners,
            depths,
            np.concatenate([np.asarray(d.scores, dtype=np.float64) for d in drafts]),
            np.array(sampled, dtype=np.bool_)[owners],
        )

    @property
    def owners_present(self) -> list[int]:
        """Requests with a node."""
        present: list[int] = np.unique(self.owners).tolist()
        return present

    def weigh(self, calibration: Calibration, skills: Float64) -> None:
        """Fill in the probabilities; ``skills`` ``[R]`` are the requests'."""
        self.unskilled = calibration.probabilities(self.scores, self.depths, self.sampled)
        skill = np.minimum(skills, MOST_SKILL)[self.owners]
        self.probabilities = np.minimum(self.unskilled * skill, 1.0)
        # A path is no likelier than its beginning, whatever the calibration says.
        for depth in range(2, int(self.depths.max(initial=1)) + 1):
            places = np.flatnonzero(self.depths == depth)
            least = self.probabilities[self.parents[places]]
            self.probabilities[places] = np.minimum(self.probabilities[places], least)

    def keep(self, drafts: Sequence[Draft], kept: Bool) -> list[Draft]:
        """The drafts with only these nodes; with a node its parent must be kept."""
        result, first = [], 0
        for draft in drafts:
            size = len(draft.tokens)
            places = np.flatnonzero(kept[first : first + size])
            first += size
            if len(places) == size:
                result.append(draft)
                continue
            new = np.zeros(size + 1, dtype=np.int32)
            new[places + 1] = np.arange(1, len(places) + 1)
            chosen = places.tolist()
            result.append(
                Draft(
                    [draft.tokens[place] for place in chosen],
                    [int(new[draft.parents[place]]) for place in chosen],
                    [draft.scores[place] for place in chosen],
                )
            )
        return result

    def compare(self, emitted: Sequence[Sequence[int]]) -> tuple[Bool, Bool]:
        """Which nodes the target agreed with, given what each request emitted, and of which this is
        known: not of those below a node that was right but not verified."""
        children: dict[tuple[int, int, int], int] = {}
        keys = zip(self.owners.tolist(), self.parents.tolist(), self.tokens, strict=True)
        for place, key in enumerate(keys):
            children.setdefault(key, place)
        right = np.zeros(len(self.tokens), dtype=np.bool_)
        known = np.ones(len(self.tokens), dtype=np.bool_)
        for owner in self.owners_present:
            node: int | None = -1
            for token in emitted[owner]:
                node = children.get((owner, -1 if node is None else node, token))
                if node is None:
                    break
                right[node] = True
            else:
                # Everything emitted was drafted: what comes next nobody knows.
                below = self._below(node if node is not None else -1, owner)
                known[below] = False
        return right, known

    def _below(self, node: int, owner: int) -> Bool:
        """Descendants of a node, or all of the request's nodes for its root."""
        if node < 0:
            everything: Bool = self.owners == owner
            return everything
        inside = np.zeros(len(self.tokens), dtype=np.bool_)
        inside[node] = True
        for place in np.flatnonzero(self.owners == owner):
            parent = self.parents[place]
            if parent >= 0 and inside[parent]:
                inside[place] = True
        inside[node] = False
        return inside

    def teach(self, calibration: Calibration, right: Bool, known: Bool) -> None:
        """Let the calibration learn from the nodes of which the outcome is known."""
        calibration.learn(self.scores[known], self.depths[known], self.sampled[known], right[known])

    def sums(self, values: Float64) -> Float64:
        """Of nodes' values, by request."""
        return np.bincount(self.owners, weights=values).astype(np.float64)

    def found(self, reach: Sequence[tuple[int, int]]) -> Float64:
        """Probabilities of the j-th best node of each level, ``[requests present, LEVELS, WIDTH]``.

        ``reach`` gives the levels and the width that were asked for; nan beyond those.
        """
        present = self.owners_present
        result = np.full((len(present), LEVELS, WIDTH), np.nan)
        for row, (levels, width) in enumerate(reach):
            result[row, :levels, :width] = 0.0
        order = np.lexsort((-self.probabilities, self.depths, self.owners))
        group = self.owners[order].astype(np.int64) * 1000 + self.depths[order]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        ranks = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
        shown = (ranks < WIDTH) & (self.depths[order] <= LEVELS)
        places = order[shown]
        rows = np.searchsorted(present, self.owners[places])
        result[rows, self.depths[places] - 1, ranks[shown]] = self.probabilities[places]
        return result
