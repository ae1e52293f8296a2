"""How much faster one configuration is than another, with its uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev

import numpy as np

RESAMPLED_FROM = 6  # values; fewer have too few different resamples
_RESAMPLES = 5000


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


def mean_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Where the mean of what these values were drawn from lies, with this probability.

    Student's interval below ``RESAMPLED_FROM`` values, and from there on the bootstrap's: the
    studentized one (Efron and Tibshirani, "An Introduction to the Bootstrap", 12.5), since plain
    percentiles of so few values cover the truth far too rarely (86% instead of 95% for six).
    Raises ``ValueError`` for fewer than two values.
    """
    count = len(values)
    if count < 2:
        raise ValueError(f"an interval needs at least two values; there are {count}")
    mean, error = fmean(values), stdev(values) / math.sqrt(count)
    if error == 0:
        return mean, mean
    if count < RESAMPLED_FROM:
        half = student_t(confidence, count - 1) * error
        return mean - half, mean + half
    low, high = _studentized(tuple(values), confidence)
    return mean - high * error, mean - low * error


@lru_cache(maxsize=1024)
def _studentized(values: tuple[float, ...], confidence: float) -> tuple[float, float]:
    """Quantiles of how far resamples' means lie from that of the values, in standard errors."""
    count = len(values)
    drawn = np.asarray(values)[
        np.random.default_rng(0).integers(0, count, size=(_RESAMPLES, count))
    ]
    errors = drawn.std(axis=1, ddof=1) / math.sqrt(count)
    deviations = (drawn.mean(axis=1) - fmean(values))[errors > 0] / errors[errors > 0]
    outside = (1 - confidence) / 2
    low, high = np.quantile(deviations, [outside, 1 - outside])
    return float(low), float(high)


def unpaired_difference(
    ours: Sequence[float], theirs: Sequence[float], confidence: float
) -> tuple[float, float] | None:
    """Where the difference of two means lies (Welch's interval); None below two values each.

    For values of two runs that were not measured in pairs, so that drift is in the interval only
    as far as it happened within each run.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    a, b = stdev(ours) ** 2 / len(ours), stdev(theirs) ** 2 / len(theirs)
    difference = fmean(ours) - fmean(theirs)
    if a + b == 0:
        return difference, difference
    degrees = (a + b) ** 2 / (a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1))
    half = student_t(confidence, max(1, int(degrees))) * math.sqrt(a + b)
    return difference - half, difference + half


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
