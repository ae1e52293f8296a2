"""What a draft is likely to be worth, before it is made."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

LEVELS = 8
WIDTH = 4
RATE = 0.02  # by which one request's draft changes what is expected of all
REQUEST_RATE = 0.25  # and of the request itself
MOST_PROMISE = 4.0
DOUBT = 3.0  # accepted nodes that a request is credited with as expected
FADING = 0.9  # of a request's earlier drafts, per draft
MOST_SKILL = 1.5


@dataclass(slots=True)
class Record:
    """What is known of one request's drafts."""

    promise: float = 1.0  # how much likelier its nodes are than everybody's
    promised: float = DOUBT  # accepted nodes, as calibrated
    accepted: float = DOUBT
    found: float = 0.5  # tokens that a prompt lookup wins, its rows paid for
    looked_up_at: int = 0  # step
    drafted_at: float = float("-inf")  # busy seconds

    @property
    def skill(self) -> float:
        """Accepted nodes to promised ones: what calibration over all requests does not see."""
        return min(self.accepted / self.promised, MOST_SKILL)

    def learn(self, promised: float, accepted: int) -> None:
        """A draft's nodes were so likely together, and so many were accepted."""
        self.promised += promised + (1 - FADING) * (DOUBT - self.promised)
        self.accepted += accepted + (1 - FADING) * (DOUBT - self.accepted)


class Outlook:
    """Expected probability of acceptance of the j-th best node of each level, over all requests,
    apart for greedy and for sampled ones."""

    def __init__(self) -> None:
        ranks = (1.0, 0.25, 0.12, 0.07)
        self._expected = [
            [[0.55**level * rank for rank in ranks] for level in range(1, LEVELS + 1)]
            for _ in range(2)
        ]
        self._reached = [[1.0] * LEVELS for _ in range(2)]
        self._drafts = [[4.0] * LEVELS for _ in range(2)]

    def of(self, records: Sequence[Record], sampled: NDArray[np.bool_]) -> Float64:
        """Expected probabilities of these requests' nodes, ``[R, LEVELS, WIDTH]``."""
        promises = np.array([record.promise for record in records])
        expected = np.array(self._expected)[sampled.astype(np.intp)] * promises[:, None, None]
        # A path is no likelier than its beginning, also where deep ones were not drafted lately.
        most = np.minimum.accumulate(np.minimum(expected[:, :, :1], 1.0), axis=1)
        likely: Float64 = np.minimum(expected, most)
        return likely

    def reached(self, sampled: NDArray[np.bool_]) -> Float64:
        """Share of drafts that get to each level, of those that may, ``[LEVELS]``."""
        share = float(sampled.mean())
        greedy, drawn = np.array(self._reached)
        shares: Float64 = (1.0 - share) * greedy + share * drawn
        return shares

    def learn(
        self,
        record: Record,
        sampled: bool,
        found: Sequence[Sequence[float]],
        reach: tuple[int, int],
        rate: float,
    ) -> None:
        """A request's draft has nodes of these probabilities, by level, the best first.

        ``reach`` is how many levels and how many nodes of each were asked for: what is missing
        within it had no chance.
        """
        expected = self._expected[sampled]
        levels, width = min(reach[0], LEVELS), min(reach[1], WIDTH)
        value = usual = 0.0
        for level in range(levels):
            row = expected[level]
            nodes = found[level] if level < len(found) else ()
            drafts = self._drafts[sampled]
            drafts[level] += 1.0
            pace = max(rate, 1.0 / drafts[level])
            self._reached[sampled][level] += pace * (bool(nodes) - self._reached[sampled][level])
            for rank in range(width):
                probability = nodes[rank] if rank < len(nodes) else 0.0
                value += probability
                usual += row[rank]
                row[rank] += pace * (probability - row[rank])
        promise = min((value + 0.01) / (usual + 0.01), MOST_PROMISE)
        record.promise += REQUEST_RATE * (promise - record.promise)
