"""The most tokens per second under a latency objective."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

from slipstream.errors import UserError
from slipstream.verdict.analysis import names, of, tok_s
from slipstream.verdict.results import Load, Results

Metric = Literal["itl", "ttft", "latency"]

WORDS: dict[Metric, str] = {
    "itl": "inter-token latency",
    "ttft": "time to first token",
    "latency": "latency of a request",
}
_NUMBER = r"\d+\.?\d*|\.\d+"
_FORM = re.compile(
    rf"(avg|p50|p95|p99) (itl|ttft|latency)\s*(?:<=?|at most)?\s*({_NUMBER})\s*(ms|s)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Objective:
    """Such as: the 95th percentile of the inter-token latency is at most 0.05 s."""

    percentile: Literal["avg", "p50", "p95", "p99"]
    metric: Metric
    seconds: float

    @property
    def label(self) -> str:
        limit = f"{1000 * self.seconds:g} ms" if self.seconds < 1 else f"{self.seconds:g} s"
        return f"{self.percentile} {WORDS[self.metric]} at most {limit}"


@dataclass(frozen=True)
class Most:
    """The most tokens per second that one configuration gives under an objective.

    ``concurrency`` lies between two measured ones where ``interpolated``. Without any
    ``tok_s`` it misses the objective at every load, or the latency is not known.
    """

    configuration: str
    tok_s: float | None
    concurrency: float | None
    interpolated: bool
    best_seconds: float | None  # the least of this latency at any load


def parse_objective(text: str) -> Objective:
    """``p95 itl 50ms``, ``p99 ttft <= 2s``, ``avg latency 10s``. Raises ``UserError``."""
    match = _FORM.fullmatch(text.strip())
    if not match or not float(match[3]) > 0:
        raise UserError(f"the objective {text!r} should be like 'p95 itl 50ms' or 'p99 ttft 2s'")
    seconds = float(match[3]) / (1000 if match[4].lower() == "ms" else 1)
    return Objective(match[1].lower(), match[2].lower(), seconds)  # type: ignore[arg-type]


def percentile(results: Results, name: str, load: Load, metric: Metric, which: str) -> float | None:
    """Seconds, the median over rounds."""
    found = [getattr(measurement, f"{metric}_s") for measurement in of(results, name, load)]
    values = [getattr(percentiles, which) for percentiles in found if percentiles]
    return median(values) if values else None


def most_under(results: Results, objective: Objective) -> list[Most]:
    """For each configuration, over the loads of fixed concurrency.

    Between the last load that meets the objective and the first that misses it, latency and
    throughput are interpolated, both as logarithms over the logarithm of the concurrency;
    beyond the highest measured load nothing is assumed.
    """
    return [_most(results, name, objective) for name in names(results)]


def _most(results: Results, name: str, objective: Objective) -> Most:
    points: list[tuple[float, float, float]] = []  # concurrency, seconds, tok/s
    for load in results.loads:
        seconds = percentile(results, name, load, objective.metric, objective.percentile)
        speed = tok_s(results, name, load)
        if load.concurrency and seconds and speed:
            points.append((float(load.concurrency), seconds, speed))
    points.sort()
    met = [(x, speed, False) for x, seconds, speed in points if seconds <= objective.seconds]
    met += _between(points, objective.seconds)
    best = min((seconds for _, seconds, _ in points), default=None)
    if not met:
        return Most(name, None, None, False, best)
    x, speed, interpolated = max(met, key=lambda found: found[1])
    return Most(name, speed, x, interpolated, best)


def _between(
    points: Sequence[tuple[float, float, float]], limit: float
) -> list[tuple[float, float, bool]]:
    found = []
    for (x, seconds, speed), (next_x, next_seconds, next_speed) in pairwise(points):
        if (seconds <= limit) != (next_seconds <= limit):
            share = math.log(limit / seconds) / math.log(next_seconds / seconds)
            found.append((x * (next_x / x) ** share, speed * (next_speed / speed) ** share, True))
    return found
