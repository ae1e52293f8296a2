"""What follows from what was measured: ratios, who wins at which load, when to stop, crossovers.

Intervals are of logarithms of paired ratios: both members of a pair were measured in one round, so
that what a machine does to both drops out. Each covers the truth with the confidence of the
settings, 95% unless told otherwise, and two things are paid for:

- *Looking early.* A load may stop only after the rounds of ``looks``, and every look uses up an
  equal share of the 5% (Bonferroni over looks, a group sequential design: Jennison and Turnbull,
  "Group Sequential Methods", 1999). So the intervals hold whatever the reason for stopping was.
- *Many configurations.* A winner is named only if it is better than each other configuration with
  all pairs of configurations held to the 5% together (Bonferroni over pairs), because the fastest
  is chosen by looking. Equal configurations are called different at most once in twenty loads.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal

from slipstream.bench.comparison import mean_interval
from slipstream.verdict.results import Configuration, Load, Measurement, Results

FEWEST_ROUNDS = 3  # for an early end; two rounds say little of their own spread
TIGHT = math.log(1.02)  # half an interval; such a load needs no further round
TIGHT_WHEN_SETTLED = math.log(1.05)  # the same where the interval excludes 1
NO_DIFFERENCE = math.log(1.05)  # an interval wider than this around 1 tells nothing


@dataclass(frozen=True)
class Ratio:
    """Tokens per second of one configuration over another's; no ends where there is one pair."""

    mean: float  # geometric
    low: float | None
    high: float | None
    rounds: int  # pairs

    @property
    def half(self) -> float:
        """Half of the interval, as a logarithm; infinite where there is none."""
        if self.low is None or self.high is None:
            return math.inf
        return math.log(self.high / self.low) / 2

    @property
    def sign(self) -> int:
        """1 faster, -1 slower, 0 not known."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 1) - (self.high < 1)


@dataclass(frozen=True)
class Answer:
    """Which configuration to use at one load.

    ``winner``: better than each other one. ``several``: these cannot be told apart, others are
    worse. ``no difference``: all are alike within 5%. ``could not tell``: the intervals are too
    wide for any of this. ``alone``: only one was measured. ``nothing``: none.
    """

    load: Load
    kind: Literal["winner", "several", "no difference", "could not tell", "alone", "nothing"]
    best: tuple[str, ...]  # in the order of their speed
    within: float | None  # of "no difference" and "could not tell": 0.03 is 3%, None is unknown
    ratios: dict[str, Ratio]  # to the baseline, of the others that were measured


@dataclass(frozen=True)
class Crossover:
    """Where a configuration stops or starts to be faster than the baseline.

    ``low`` and ``high`` are where the ends of the ratio's interval cross 1, None where that lies
    outside of the loads that were measured. ``certain``: the interval excludes 1 on both sides.
    """

    configuration: str
    at: float  # requests in flight
    low: float | None
    high: float | None
    faster_below: bool
    certain: bool


def names(results: Results) -> list[str]:
    """Of the configurations, the baseline first."""
    return [configuration.name for configuration in results.configurations]


def baseline(results: Results) -> str:
    return results.configurations[0].name


def configuration(results: Results, name: str) -> Configuration:
    return next(found for found in results.configurations if found.name == name)


def of(results: Results, name: str, load: Load) -> list[Measurement]:
    """The measurements of one configuration at one load, by round."""
    found = [m for m in results.measurements if (m.configuration, m.load) == (name, load)]
    return sorted((m for m in found if m.tok_s > 0), key=lambda measurement: measurement.round)


def tok_s(results: Results, name: str, load: Load) -> float | None:
    """The geometric mean over rounds."""
    found = of(results, name, load)
    return math.exp(fmean(math.log(m.tok_s) for m in found)) if found else None


def looks(rounds: int) -> tuple[int, ...]:
    """After how many rounds a load may end: half of them, and all."""
    half = max(FEWEST_ROUNDS, math.ceil(rounds / 2))
    return (half, rounds) if half < rounds else (rounds,)


def confidence(results: Results) -> float:
    """Of each look, so that all looks together have that of the settings."""
    settings = results.settings
    shares = len(looks(settings.rounds)) if settings.stop_early else 1
    return 1 - (1 - settings.confidence) / shares


def ratio(
    results: Results, name: str, to: str, load: Load, *, comparisons: int = 1
) -> Ratio | None:
    """None where the two have no round in common. ``comparisons`` share the 5% among them."""
    theirs = {m.round: m.tok_s for m in of(results, to, load)}
    logs = [
        math.log(m.tok_s / theirs[m.round]) for m in of(results, name, load) if m.round in theirs
    ]
    if not logs:
        return None
    mean = math.exp(fmean(logs))
    if len(logs) == 1:
        return Ratio(mean, None, None, 1)
    low, high = mean_interval(logs, 1 - (1 - confidence(results)) / comparisons)
    return Ratio(mean, math.exp(low), math.exp(high), len(logs))


def ratios(results: Results, load: Load) -> dict[str, Ratio]:
    """Of each other configuration to the baseline, where both were measured."""
    base = baseline(results)
    found = {name: ratio(results, name, base, load) for name in names(results)[1:]}
    return {name: value for name, value in found.items() if value}


def answer(results: Results, load: Load) -> Answer:
    """The winner at one load, if there is one."""
    speeds = {name: tok_s(results, name, load) for name in names(results)}
    measured = sorted((name for name in speeds if speeds[name]), key=lambda n: -(speeds[n] or 0))
    to_baseline = ratios(results, load)
    if len(measured) < 2:
        kind: Literal["alone", "nothing"] = "alone" if measured else "nothing"
        return Answer(load, kind, tuple(measured), None, to_baseline)
    pairs = len(measured) * (len(measured) - 1) // 2
    top = measured[0]
    against = {name: ratio(results, top, name, load, comparisons=pairs) for name in measured[1:]}
    best = (top, *(name for name, found in against.items() if not (found and found.sign > 0)))
    if len(best) == 1:
        return Answer(load, "winner", best, None, to_baseline)
    widest = max((found.half if found else math.inf) for found in against.values())
    within = None if math.isinf(widest) else math.exp(_farthest(against.values())) - 1
    if len(best) < len(measured):
        return Answer(load, "several", best, within, to_baseline)
    alike = widest <= NO_DIFFERENCE
    return Answer(load, "no difference" if alike else "could not tell", best, within, to_baseline)


def _farthest(found: Iterable[Ratio | None]) -> float:
    """How far from 1 any of these ratios may be, as a logarithm."""
    ends = [end for value in found if value for end in (value.low, value.high) if end]
    return max(abs(math.log(end)) for end in ends)


def answers(results: Results) -> list[Answer]:
    """One for each load, in the order of the document."""
    return [answer(results, load) for load in results.loads]


def tight_enough(results: Results, load: Load) -> str | None:
    """Why this load needs no further round, for people; None where it does.

    To be asked after each round. Configurations that failed at this load are left out.
    """
    alive = [name for name in names(results) if of(results, name, load)]
    if len(alive) < 2 or baseline(results) not in alive:
        return None
    rounds = min(len(of(results, name, load)) for name in alive)
    last = max(measurement.round for name in alive for measurement in of(results, name, load))
    if last + 1 != rounds or rounds not in looks(results.settings.rounds)[:-1]:
        return None
    found = ratios(results, load).values()
    if not all(value.half <= (TIGHT_WHEN_SETTLED if value.sign else TIGHT) for value in found):
        return None
    widest = max(math.exp(value.half) - 1 for value in found)
    return f"after {rounds} rounds every ratio was known to within {widest:.1%}"


def crossovers(results: Results, name: str) -> list[Crossover]:
    """Where this configuration and the baseline change places.

    The logarithm of their ratio is interpolated over the logarithm of the concurrency. Changes
    that the intervals confirm are given first; if there are none, those where the means go from
    more than 2% on one side of 1 to as much on the other.
    """
    points = _points(results, name)
    settled = [point for point in points if point[1].sign]
    confirmed = [
        (before, after) for before, after in pairwise(settled) if before[1].sign != after[1].sign
    ]
    if confirmed:
        return [_crossover(name, points, before, after, True) for before, after in confirmed]
    apart = [point for point in points if abs(math.log(point[1].mean)) > TIGHT]
    return [
        _crossover(name, points, before, after, False)
        for before, after in pairwise(apart)
        if (before[1].mean > 1) != (after[1].mean > 1)
    ]


Point = tuple[float, Ratio]  # concurrency and ratio to the baseline


def _points(results: Results, name: str) -> list[Point]:
    found = [
        (float(load.concurrency), value)
        for load in results.loads
        if load.concurrency and (value := ratio(results, name, baseline(results), load))
    ]
    return sorted(found, key=lambda point: point[0])


def _crossover(
    name: str, points: Sequence[Point], before: Point, after: Point, certain: bool
) -> Crossover:
    between = [point for point in points if before[0] <= point[0] <= after[0]]
    at = crossing([(x, math.log(value.mean)) for x, value in between])
    ends = []
    for end in ("low", "high"):
        line = [(x, math.log(e)) for x, value in points if (e := getattr(value, end))]
        # Of several places where the end of the interval crosses 1, the nearest.
        ends.append(min(crossings(line), key=lambda x: abs(math.log(x / at)), default=None))
    if before[1].mean < 1:  # the upper end gets above 1 first
        ends.reverse()
    low, high = ends
    return Crossover(
        name,
        at,
        low if low and low <= at else None,
        high if high and high >= at else None,
        before[1].mean > 1,
        certain,
    )


def crossing(line: Sequence[tuple[float, float]]) -> float:
    """The first place where it changes its sign, which it must do."""
    return crossings(line)[0]


def crossings(line: Sequence[tuple[float, float]]) -> list[float]:
    """Where a line through these points, linear in the logarithm of x, changes its sign."""
    found = []
    for (x, y), (next_x, next_y) in pairwise(line):
        if (y > 0) != (next_y > 0):
            share = y / (y - next_y)
            found.append(math.exp(math.log(x) + share * math.log(next_x / x)))
    return found


@dataclass(frozen=True)
class SingleChoice:
    """One configuration for all loads: its geometric mean ratio to the baseline over the loads.

    ``low`` and ``high`` are the means of the ends: wider than they need be, since the loads'
    errors do not all point the same way.
    """

    name: str
    mean: float
    low: float | None
    high: float | None
    worst: float
    worst_load: Load


def single_choices(results: Results) -> list[SingleChoice]:
    """All that were measured at every load where the baseline was, the best first."""
    base = baseline(results)
    loads = [load for load in results.loads if of(results, base, load)]
    choices = []
    for name in names(results):
        found = [(load, ratio(results, name, base, load)) for load in loads]
        known = [(load, value) for load, value in found if value]
        if not known or len(known) < len(found):
            continue
        lows = [value.low for _, value in known if value.low]
        highs = [value.high for _, value in known if value.high]
        worst = min(known, key=lambda pair: pair[1].mean)
        choices.append(
            SingleChoice(
                name,
                _geometric_mean([value.mean for _, value in known]),
                _geometric_mean(lows) if len(lows) == len(known) else None,
                _geometric_mean(highs) if len(highs) == len(known) else None,
                worst[1].mean,
                worst[0],
            )
        )
    return sorted(choices, key=lambda choice: -choice.mean)


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(fmean(math.log(value) for value in values))
