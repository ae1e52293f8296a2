"""A machine that somebody else measured: a few of its numbers fitted to few of the measurements,
so that the others are predictions.

Eight Blackwell GPUs on PCIe, tensor parallel, with a mixture of experts of 744 billion parameters
in NVFP4, served by SGLang without speculation and with EAGLE-3 (``num_steps=2, topk=4,
num_draft_tokens=16``): coding prompts, 512 output tokens, 30 requests at every level, so that 30
in flight are what the source calls saturated.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from slipstream.simulator.drafts import accepted_length
from slipstream.simulator.machine import Machine
from slipstream.simulator.run import simulate
from slipstream.simulator.workload import Workload
from slipstream.speculation.policy.settings import OFF, Speculation
from slipstream.speculation.tree import TreeShape

Float64 = NDArray[np.float64]

REQUESTS = 30
PROMPT = (60, 180)  # tokens; the source says only that they are about coding
OUTPUT = 512
TREE = TreeShape(num_steps=2, topk=4, num_draft_tokens=16)
EAGLE = Speculation("fixed", TREE)
DEEPER = 0.96  # acceptance of a level to that of the one above
CLOSENESS = 0.01  # error of a measurement that counts as much as a number at its bound


@dataclass(frozen=True, slots=True)
class Measurement:
    """Tokens per second that were measured, with EAGLE-3 or without speculation."""

    eagle: bool
    concurrency: int
    rate: float
    fitted: bool

    @property
    def name(self) -> str:
        return f"{'EAGLE-3' if self.eagle else 'off'} at C={self.concurrency}"


MEASUREMENTS = (
    Measurement(False, 1, 92.7, True),
    Measurement(True, 1, 80.9, True),
    Measurement(True, 2, 128.3, True),
    Measurement(True, 5, 189.2, False),
    Measurement(True, 30, 354.0, False),
    Measurement(False, 30, 773.0, False),
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that is fitted, and between what it has to be, for which reason."""

    name: str
    least: float
    most: float
    reason: str


PARAMETERS = (
    Parameter("step_seconds", 3e-3, 1e-2, "156 all-reduces of 20 to 50 us, and launches"),
    Parameter("row_seconds", 1.5e-4, 4e-4, "1.9 MB a row through 78 layers, over PCIe 5"),
    Parameter("draft_seconds", 2e-3, 1.4e-2, "trees built by the host, which no longer runs ahead"),
    Parameter("tree_diversity", 0.3, 0.8, "rows of one tree share experts: 16 are like 2 to 9"),
    Parameter("acceptance", 0.55, 0.75, "of a good EAGLE-3 head on code: length 2.2 to 2.5"),
)


def with_values(machine: Machine, values: Float64) -> Machine:
    """The machine with these parameters ``[len(PARAMETERS)]``."""
    named = {p.name: float(v) for p, v in zip(PARAMETERS, values, strict=True)}
    first = named.pop("acceptance")
    levels = tuple(first * DEEPER**level for level in range(4))
    return msgspec.structs.replace(machine, acceptance=levels, **named)


def values_of(machine: Machine) -> Float64:
    """The parameters that a machine has."""
    values = [getattr(machine, p.name) for p in PARAMETERS]
    return np.array([v[0] if isinstance(v, tuple) else v for v in values])


def fit(machine: Machine) -> Machine:
    """The machine whose parameters explain the fitted measurements.

    There are more parameters than measurements: of all that explain them it is the one nearest to
    the middle of what is sensible.
    """
    least = np.array([p.least for p in PARAMETERS])
    most = np.array([p.most for p in PARAMETERS])
    chances = np.linspace(PARAMETERS[-1].least, PARAMETERS[-1].most, 6)
    trial = [with_values(machine, np.array([*least[:-1], chance])) for chance in chances]
    lengths = [accepted_length(each, TREE) for each in trial]

    def loss(place: Float64) -> float:
        inside = np.clip(place, -1.0, 1.0)
        values = least + (inside + 1) / 2 * (most - least)
        length = float(np.interp(values[-1], chances, lengths))
        candidate = with_values(machine, values)
        errors = [
            np.log(_expected_rate(candidate, m, length) / m.rate) for m in MEASUREMENTS if m.fitted
        ]
        outside = float(((place - inside) ** 2).sum())
        return float((np.square(errors) / CLOSENESS**2).sum() + (inside**2).sum() + 100 * outside)

    best = np.clip(_nelder_mead(loss, np.zeros(len(PARAMETERS))), -1.0, 1.0)
    return with_values(machine, least + (best + 1) / 2 * (most - least))


def predicted(machine: Machine, measurement: Measurement) -> float:
    """Tokens per second of the source's benchmark, simulated request by request."""
    workload = Workload(
        load=((0.0, measurement.concurrency),),
        requests=REQUESTS,
        prompt=PROMPT,
        output=(OUTPUT, OUTPUT),
        staggered=False,
        max_step_rows=8192,
    )
    speculation = EAGLE if measurement.eagle else OFF
    trace = simulate(machine, workload, speculation, float("inf"))
    return sum(trace.tokens) / trace.ends[-1]


def _expected_rate(machine: Machine, measurement: Measurement, length: float) -> float:
    """The same without chance: every step emits the mean ``length``."""
    concurrency = measurement.concurrency
    prompt = sum(PROMPT) / 2
    ones = np.ones(concurrency)
    entering = machine.step(ones * prompt, ones * prompt / 2, concurrency)
    context = ones * (prompt + OUTPUT / 2)
    if measurement.eagle:
        drafting = machine.draft([concurrency * length, concurrency * TREE.topk], 0.0)
        step = drafting + machine.step(ones * TREE.num_draft_tokens, context, concurrency)
    else:
        length, step = 1.0, machine.step(ones, context, concurrency)
    return concurrency * OUTPUT / (entering + (OUTPUT - 1) / length * step)


def _nelder_mead(loss: Callable[[Float64], float], start: Float64, rounds: int = 600) -> Float64:
    """A minimum near the start (Nelder and Mead, "A simplex method for function minimization",
    1965)."""
    points = [start, *(start + 0.4 * axis for axis in np.eye(len(start)))]
    losses = [loss(point) for point in points]
    for _ in range(rounds):
        order = np.argsort(losses, kind="stable")
        points, losses = [points[i] for i in order], [losses[i] for i in order]
        centre = np.mean(points[:-1], axis=0)
        away = centre - points[-1]
        trials = [centre + factor * away for factor in (1.0, 2.0, 0.5, -0.5)]
        found = [loss(trial) for trial in trials]
        best = int(np.argmin(found))
        if found[best] < losses[-1]:
            points[-1], losses[-1] = trials[best], found[best]
            continue
        points = [points[0], *((points[0] + point) / 2 for point in points[1:])]
        losses = [losses[0], *(loss(point) for point in points[1:])]
    return points[int(np.argmin(losses))]
