"""Expected speed and cost under a distribution of running requests that the user knows."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from slipstream.errors import UserError
from slipstream.verdict.analysis import baseline, names, ratio, tok_s
from slipstream.verdict.results import Load, Results

EXAMPLE = "1:0.5,10:0.3,30:0.2"

Distribution = dict[int, float]  # running requests, and the share of the time; shares add up to 1


@dataclass(frozen=True)
class Expected:
    """Of one configuration. Ratios are to the baseline; no ends where a load has no interval."""

    configuration: str
    tok_s: float
    ratio: float
    low: float | None
    high: float | None
    dollars_per_million: float | None  # tokens
    beyond: float  # share of the time with more requests than were measured


def parse_distribution(text: str) -> Distribution:
    """``1:0.5,10:0.3`` or a JSON file such as ``{"1": 50, "10": 30}``. Raises ``UserError``."""
    if Path(text).suffix == ".json":
        return _read(Path(text))
    weights = {}
    for part in text.split(","):
        requests, _, weight = part.partition(":")
        try:
            weights[int(requests)] = float(weight)
        except ValueError:
            raise UserError(
                f"{part.strip()!r} in the load distribution should be REQUESTS:WEIGHT, such as "
                f"{EXAMPLE}"
            ) from None
    return _checked(weights, text)


def _read(path: Path) -> Distribution:
    try:
        found = json.loads(path.read_bytes())
        weights = {int(requests): float(weight) for requests, weight in found.items()}
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, AttributeError, TypeError):
        raise UserError(
            f'{path} should be an object of running requests and weights: {{"1": 50, "10": 30}}'
        ) from None
    return _checked(weights, str(path))


def _checked(weights: dict[int, float], source: str) -> Distribution:
    total = sum(weights.values())
    if any(requests < 0 for requests in weights) or not all(
        0 <= weight < math.inf for weight in weights.values()
    ):
        raise UserError(f"numbers of requests and weights in {source} must not be negative")
    busy = sum(weight for requests, weight in weights.items() if requests)
    if not busy > 0:
        raise UserError(f"the weights in {source} should not all be zero")
    return {requests: weights[requests] / total for requests in sorted(weights)}


def expected(
    results: Results, distribution: Distribution, dollars_per_hour: float | None = None
) -> list[Expected]:
    """The fastest first. Idle time counts: there are then no tokens, and the hour costs the same.

    Between measured loads, logarithms are interpolated over the logarithm of the concurrency;
    outside of them the nearest one's tokens per second are taken. The ends of the ratio are those
    of all loads at once, each load weighing as many tokens as the baseline makes there: wider
    than need be. Configurations that were measured at no load of fixed concurrency are left out.
    """
    base = _speeds(results, baseline(results))
    found = []
    for name in names(results):
        speeds = _speeds(results, name)
        if not speeds or not base:
            continue
        total = _mean(distribution, speeds)
        ends = [_end(results, name, end, distribution, base) for end in ("low", "high")]
        cost = None if dollars_per_hour is None else dollars_per_hour / (total * 3600) * 1e6
        beyond = sum(weight for n, weight in distribution.items() if n > speeds[-1][0])
        relative = total / _mean(distribution, base)
        found.append(Expected(name, total, relative, ends[0], ends[1], cost, beyond))
    return sorted(found, key=lambda one: -one.tok_s)


Line = Sequence[tuple[float, float]]


def at(line: Line, concurrency: float) -> float:
    """The value there of a line through positive points, both axes being logarithmic."""
    if concurrency <= line[0][0]:
        return line[0][1]
    for (x, y), (next_x, next_y) in pairwise(line):
        if concurrency <= next_x:
            share = math.log(concurrency / x) / math.log(next_x / x)
            return y * math.exp(share * math.log(next_y / y))
    return line[-1][1]


def _speeds(results: Results, name: str) -> Line:
    return _line((load, tok_s(results, name, load)) for load in results.loads)


def _line(found: Iterable[tuple[Load, float | None]]) -> Line:
    return sorted((float(load.concurrency), y) for load, y in found if load.concurrency and y)


def _mean(distribution: Distribution, line: Line) -> float:
    return sum(weight * at(line, n) for n, weight in distribution.items() if n)


def _end(
    results: Results, name: str, end: str, distribution: Distribution, base: Line
) -> float | None:
    """The ratio of expected tokens if each load's ratio were at this end of its interval."""
    found = [(load, ratio(results, name, baseline(results), load)) for load in results.loads]
    known = [(load, value) for load, value in found if value and load.concurrency]
    ends = _line((load, getattr(value, end)) for load, value in known)
    if not ends or len(ends) < len(known):
        return None
    ours = sum(weight * at(base, n) * at(ends, n) for n, weight in distribution.items() if n)
    return float(ours / _mean(distribution, base))
