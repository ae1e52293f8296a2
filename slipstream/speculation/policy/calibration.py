"""What a drafter's probabilities are worth, learned from what the target then emits."""

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]

DEPTHS = 8  # told apart; deeper nodes count as these
# Upper bounds of -log(probability of the path), one bin each, and one bin beyond.
_EDGES = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.4, 1.8, 2.3, 3.0, 4.0, 5.0, 7.0])
BINS = len(_EDGES) + 1
PRIOR = 2.0  # accepted nodes that a bin is credited with as the drafter says
MEMORY = 400.0  # expected acceptances of a bin, beyond which old ones count for less


class Calibration:
    """The ratio of accepted paths to those that the drafter promised, by depth, by how sure it was,
    and apart for greedy and for sampled requests."""

    def __init__(self) -> None:
        shape = (2 * DEPTHS * BINS,)
        self._promised = np.full(shape, PRIOR)
        self._accepted = np.full(shape, PRIOR)

    def probabilities(self, scores: Float64, depths: Int32, sampled: NDArray[np.bool_]) -> Float64:
        """Of acceptance of the whole path, ``[n]``, given what the drafter says: ``scores`` are
        natural logarithms of the paths' probabilities, ``depths`` count from 1."""
        places = _places(scores, depths, sampled)
        ratio = self._accepted[places] / self._promised[places]
        likely: Float64 = np.minimum(np.exp(scores) * ratio, 1.0)
        return likely

    def learn(
        self,
        scores: Float64,
        depths: Int32,
        sampled: NDArray[np.bool_],
        accepted: NDArray[np.bool_],
    ) -> None:
        """These paths were ``accepted`` or not, all ``[n]``."""
        places = _places(scores, depths, sampled)
        np.add.at(self._promised, places, np.exp(scores))
        np.add.at(self._accepted, places, accepted)
        full = self._promised[places].max(initial=0.0) > MEMORY
        if full:
            worn = self._promised > MEMORY
            self._accepted[worn] *= MEMORY / self._promised[worn]
            self._promised[worn] = MEMORY

    def ratios(self) -> Float64:
        """Accepted to promised, ``[2, DEPTHS, BINS]``: greedy, then sampled."""
        ratios: Float64 = self._accepted / self._promised
        return ratios.reshape(2, DEPTHS, BINS)


def _places(scores: Float64, depths: Int32, sampled: NDArray[np.bool_]) -> NDArray[np.intp]:
    bins = np.searchsorted(_EDGES, -scores)
    rows = np.minimum(depths, DEPTHS) - 1 + DEPTHS * sampled
    places: NDArray[np.intp] = rows * BINS + bins
    return places
