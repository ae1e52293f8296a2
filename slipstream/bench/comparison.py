"""How much faster one configuration is than another, with its uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Ratio:
    """A geometric mean of ratios and its 95% interval, whose ends are None for a single pair."""

    mean: float
    low95: float | None
    high95: float | None


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """The ratio of positive values that were measured in pairs, so that drift hits both alike.

    The interval is Student's, of the logarithms. Raises ``ValueError`` where there is no pair.
    """
    logs = [math.log(our / their) for our, their in zip(ours, theirs, strict=True)]
    mean = fmean(logs)
    if len(logs) == 1:
        return Ratio(math.exp(mean), None, None)
    half = student_t(0.95, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def student_t(confidence: float, degrees: int) -> float:
    """The t that a Student variable stays within, in both directions, with this probability."""
    low, high = 0.0, 1.0
    while _within(high, degrees) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if _within(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return high


def _within(t: float, degrees: int) -> float:
    """P(|T| < t): the finite series in Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term, total = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= k / (k + 1) * math.cos(angle) ** 2
    if not odd:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + math.sin(angle) * total)
