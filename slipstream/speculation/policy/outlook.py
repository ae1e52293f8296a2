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
DOUBT = 3.0  # accepted nodes that a request is credited with as expected
FADING = 0.9  # of a request's earlier drafts, per draft


@dataclass(slots=True)
class Record:
    """What is known of one request's drafts."""

    promise: float = 1.0  # how much likelier its nodes are than everybody's
    promised: float = DOUBT  # accepted nodes, as calibrated
    accepted: float = DOUBT
    drafted_at: float = float("-inf")  # busy seconds

    @property
    def skill(self) -> float:
        """Accepted nodes to promised ones: what calibration over all requests does not see."""
        return self.accepted / self.promised


class Outlook:
    """Expected probability of acceptance of the j-th best node of each level, over all requests,
    apart for greedy and for sampled ones."""

    def __init__(self) -> None:
        levels = 0.55 ** np.arange(1, LEVELS + 1)
        ranks = np.array([1.0, 0.25, 0.12, 0.07])
        self._expected = np.tile(levels[:, None] * ranks, (2, 1, 1))

    def of(self, records: Sequence[Record], sampled: NDArray[np.bool_]) -> Float64:
        """Expected probabilities of these requests' nodes, ``[R, LEVELS, WIDTH]``."""
        promises = np.array([record.promise for record in records])
        expected = self._expected[sampled.astype(np.intp)] * promises[:, None, None]
        likely: Float64 = np.minimum(expected, 1.0)
        return likely

    def learn(
        self, records: Sequence[Record], sampled: NDArray[np.bool_], found: Float64, rate: float
    ) -> None:
        """Drafts were made whose nodes have these probabilities, ``[R, LEVELS, WIDTH]``, nan where
        a draft was not to reach."""
        known = ~np.isnan(found)
        values = np.where(known, found, 0.0)
        expected = self._expected[sampled.astype(np.intp)]
        sums = values.sum(axis=(1, 2)), (expected * known).sum(axis=(1, 2))
        for record, value, usual in zip(records, *map(np.ndarray.tolist, sums), strict=True):
            promise = (value + 0.01) / (usual + 0.01)
            record.promise += REQUEST_RATE * (min(promise, 4.0) - record.promise)
        for kind in (False, True):
            chosen = sampled == kind
            counts = known[chosen].sum(axis=0)
            means = values[chosen].sum(axis=0) / np.maximum(counts, 1)
            old = self._expected[int(kind)]
            old += (1 - (1 - rate) ** counts) * (means - old)
