"""What a step costs: the target's pass over so many rows, and the drafter's passes before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from slipstream.speculation.policy.row_costs import Float64, RowCosts

ATTENTION_RATE = 0.1  # of what attention costs, per step
LEAST_ATTENTION_SHARE = 0.02  # of a step, below which it teaches nothing about attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a model and a machine let expect before anything is measured; only a first guess."""

    target_bytes: float = 1e8  # read per step
    target_operations: float = 3e8  # per row
    drafter_bytes: float = 0.0  # read per level
    drafter_operations: float = 0.0  # per row
    context_bytes: float = 0.0  # read per row for each token of its context
    bytes_per_second: float = 12e9
    operations_per_second: float = 2e11
    seconds_per_pass: float = 3e-4  # whatever is computed

    def target(self, rows: float) -> float:
        """Seconds of a step without attention."""
        return self._pass(self.target_bytes, self.target_operations * rows)

    def drafter(self, rows: float) -> float:
        """Seconds of one level."""
        return self._pass(self.drafter_bytes, self.drafter_operations * rows)

    def _pass(self, read: float, operations: float) -> float:
        computing = operations / self.operations_per_second
        return self.seconds_per_pass + read / self.bytes_per_second + computing


@dataclass(frozen=True, slots=True)
class DraftWork:
    """What drafting computes: ``rows`` of the first level, of each of the ``deeper`` levels, and
    positions that are ``entered`` into rings beyond those."""

    first: float
    deeper: Sequence[float] = ()
    entered: float = 0.0


class CostTables(msgspec.Struct, frozen=True):
    """What was learned, for the disk."""

    target: list[tuple[int, float, float]]
    drafter: list[tuple[int, float, float]]
    attention: float
    entry: float


class CostModel:
    """Seconds, learned from every step. A step's attention is counted in rows times context."""

    def __init__(self, machine: Machine) -> None:
        self.target = RowCosts(machine.target)
        self.drafter = RowCosts(machine.drafter)
        # Seconds for a row and a token of its context, and for a position entered into a ring.
        self.attention = machine.context_bytes / machine.bytes_per_second
        self.entry = machine.drafter_operations / machine.operations_per_second

    def step(self, rows: int, attention: float) -> float:
        """Seconds of a step of the target."""
        return self.target.at(rows) + self.attention * attention

    def draft(self, work: DraftWork) -> float:
        """Seconds of drafting."""
        costs = self.drafter
        passes = costs.at(round(work.first)) + sum(costs.at(round(rows)) for rows in work.deeper)
        return passes + self.entry * work.entered

    def learn_step(self, rows: int, attention: float, seconds: float) -> None:
        """A step took so long."""
        attending = self.attention * attention
        expected = self.target.at(rows) + attending
        surprise = float(np.log(seconds / expected))
        share = attending / expected
        if share > LEAST_ATTENTION_SHARE:
            change = max(-1.0, min(surprise, 1.0)) * share * ATTENTION_RATE
            self.attention *= float(np.exp(change))
        self.target.learn(rows, surprise)

    def learn_draft(self, work: DraftWork, seconds: float) -> None:
        """Drafting took so long."""
        entering = self.entry * work.entered
        expected = self.draft(work)
        surprise = float(np.log(seconds / expected))
        share = entering / expected
        if share > 0.2:
            self.entry *= float(np.exp(max(-1.0, min(surprise, 1.0)) * share * 0.3))
        for rows in {round(work.first), *map(round, work.deeper)}:
            self.drafter.learn(max(rows, 1), surprise, (1 - share) / (1 + bool(work.deeper)))

    def seconds_up_to(self, rows: int) -> Float64:
        """Of steps of 0 to ``rows`` rows, attention apart."""
        return self.target.up_to(rows)

    def tables(self) -> CostTables:
        """What `restore` takes back."""
        tables = (self.target.table(), self.drafter.table())
        return CostTables(*tables, self.attention, self.entry)

    def restore(self, tables: CostTables | Any) -> None:
        """Go on from there. Raises ``ValueError`` if these are no such tables."""
        if not (0 <= tables.attention < 1 and 0 <= tables.entry < 10):
            raise ValueError("not costs in seconds")
        self.target.restore(tables.target)
        self.drafter.restore(tables.drafter)
        self.attention, self.entry = tables.attention, tables.entry
