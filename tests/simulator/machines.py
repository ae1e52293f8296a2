"""What the simulator's tests share: a machine, the policies, and their rates."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from slipstream.simulator.machine import TWO_AMX_CORES, Machine
from slipstream.simulator.run import Trace, simulate
from slipstream.simulator.workload import Steps, Workload
from slipstream.speculation.policy.adaptive import AdaptivePolicy
from slipstream.speculation.policy.cost_model import CostModel
from slipstream.speculation.policy.settings import OFF, Speculation
from slipstream.speculation.tree import TreeShape

ADAPTIVE = Speculation("adaptive")
STATIC = {
    "off": OFF,
    "fixed 4,4,16": Speculation("fixed", TreeShape(4, 4, 16)),
    "fixed 2,1,3": Speculation("fixed", TreeShape(2, 1, 3)),
}


def changed(machine: Machine, **fields: Any) -> Machine:
    """The machine with other numbers."""
    return msgspec.structs.replace(machine, **fields)


# A model three times as large as the one that the two cores were measured with.
SERVER = changed(
    TWO_AMX_CORES,
    weight_bytes=288e6,
    row_operations=8.1e8,
    level_seconds=4e-4,
    level_bytes=24e6,
    level_operations=9e7,
    entry_operations=2.4e7,
    between_requests=0.2,
)


@dataclass
class Contest:
    """The adaptive policy against static ones under the same load."""

    machine: Machine
    workload: Workload
    seconds: float
    pace: Steps[float] = ((0.0, 1.0),)
    guess: tuple[float, float] = (1.0, 1.0)  # see `Machine.first_guess`
    traces: dict[str, Trace] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, speculation in STATIC.items():
            self.traces[name] = self._run(speculation)
        self.traces["adaptive"] = self._run(ADAPTIVE)

    def _run(self, speculation: Speculation) -> Trace:
        costs = CostModel(self.machine.first_guess(*self.guess))
        policy = AdaptivePolicy(costs, self.workload.most_draft_rows)
        run = (self.machine, self.workload, speculation, self.seconds)
        return simulate(*run, policy=policy, pace=self.pace)

    def rates(self, start: float = 0.0, end: float = float("inf")) -> dict[str, float]:
        """Tokens per second of each between two times."""
        return {name: trace.rate(start, end) for name, trace in self.traces.items()}

    def to_best(self, start: float = 0.0, end: float = float("inf")) -> float:
        """Adaptive to the best static setting."""
        rates = self.rates(start, end)
        return rates.pop("adaptive") / max(rates.values())

    def to_off(self, start: float = 0.0, end: float = float("inf")) -> float:
        """Adaptive to no speculation."""
        rates = self.rates(start, end)
        return rates["adaptive"] / rates["off"]


def steady(requests: int, **fields: Any) -> Workload:
    """So many requests in flight all the time, with short prompts: how many of those happen to
    fall into a run is chance."""
    return Workload(load=((0.0, requests),), prompt=(16, 48), output=(256, 256), **fields)
