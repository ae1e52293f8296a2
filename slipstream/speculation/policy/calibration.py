"""What a drafter's probabilities are worth, learned from what the target then emits."""

from bisect import bisect_left
from math import exp, log

from slipstream.speculation.drafter import Source

Kind = tuple[Source, bool]  # who proposed a node, and whether the request is sampled

DEPTHS = 8  # told apart; deeper nodes count as these
# Upper bounds of -log(probability of the path), one bin each, and one bin beyond.
EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.4, 1.8, 2.3, 3.0, 4.0, 5.0, 7.0)
PRIOR = 2.0  # accepted nodes that a bin is credited with as the drafter says
MEMORY = 400.0  # expected acceptances of a bin, beyond which old ones count for less

_BINS = len(EDGES) + 1


class Calibration:
    """The ratio of accepted paths to those that the drafter promised, by depth, by how sure it was,
    and apart for each source of nodes, and for greedy and sampled requests.

    Nodes come one by one and by the thousand: plain lists, since few fit into a step.
    """

    def __init__(self) -> None:
        places = len(Source) * 2 * DEPTHS * _BINS
        self._promised = [0.0] * places
        self._accepted = [0.0] * places
        # The same over all bins: what a bin is credited with, until more is known of it.
        self._all_promised = [PRIOR] * (places // _BINS)
        self._all_accepted = [PRIOR] * (places // _BINS)

    def probability(self, score: float, depth: int, kind: Kind) -> float:
        """Of acceptance of a whole path, given the natural logarithm of what the drafter says;
        ``depth`` counts from 1."""
        place = _place(score, depth, kind)
        row = place // _BINS
        credit = PRIOR * self._all_accepted[row] / self._all_promised[row]
        ratio = (self._accepted[place] + credit) / (self._promised[place] + PRIOR)
        return min(exp(score) * ratio, 1.0)

    def score_of(self, probability: float, depth: int, kind: Kind) -> float:
        """About what a drafter says of a path that has this probability; see `probability`."""
        row = _place(-1.0, depth, kind) // _BINS
        return log(probability * self._all_promised[row] / self._all_accepted[row])

    def learn(self, score: float, depth: int, kind: Kind, accepted: bool) -> None:
        """This path was ``accepted`` or not."""
        place = _place(score, depth, kind)
        self._promised[place] += exp(score)
        self._accepted[place] += accepted
        row = place // _BINS
        self._all_promised[row] += exp(score)
        self._all_accepted[row] += accepted
        if self._all_promised[row] > MEMORY:
            self._all_accepted[row] *= MEMORY / self._all_promised[row]
            self._all_promised[row] = MEMORY
        if self._promised[place] > MEMORY:
            self._accepted[place] *= MEMORY / self._promised[place]
            self._promised[place] = MEMORY


def _place(score: float, depth: int, kind: Kind) -> int:
    source, sampled = kind
    row = min(depth, DEPTHS) - 1 + DEPTHS * (2 * source + sampled)
    return row * _BINS + bisect_left(EDGES, -score)
