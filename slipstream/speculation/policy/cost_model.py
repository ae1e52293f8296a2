"""What a step costs: the target's pass over so many rows, and the drafter's passes before it."""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from math import exp, log
from typing import Generic, TypeVar

import msgspec

from slipstream.speculation.policy.row_costs import Float64, RowCosts

Work = TypeVar("Work", bound=Hashable)

ATTENTION_RATE = 0.1  # of what attention costs, per step
LEAST_SHARE = 0.02  # of a pass, below which it teaches nothing about attention or entering
LARGEST_SURPRISE = 1.0  # of one pass, as a natural logarithm; more is an accident


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

    first: int
    deeper: tuple[int, ...] = ()
    entered: int = 0


class CostTables(msgspec.Struct, frozen=True):
    """What was learned, for the disk."""

    target: list[tuple[int, float, float]]
    drafter: list[tuple[int, float, float]]
    attention: float
    entry: float


@dataclass(slots=True)
class _Surprises(Generic[Work]):
    """How much longer than expected passes took, until there is time to learn from them."""

    _found: defaultdict[Work, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, work: Work, seconds: float, expected: float) -> None:
        surprise = log(seconds / expected)
        self._found[work].append(max(-LARGEST_SURPRISE, min(surprise, LARGEST_SURPRISE)))

    def take(self) -> Iterator[tuple[Work, float, int]]:
        """Each kind of pass, its median surprise, and how many there were."""
        found, self._found = self._found, defaultdict(list)
        for work, surprises in found.items():
            surprises.sort()
            yield work, surprises[len(surprises) // 2], len(surprises)


class CostModel:
    """Seconds, learned from every step. A step's attention is counted in rows times context.

    Steps are short, and a table is slow to change: they are noted, and `settle` learns from them.
    """

    def __init__(self, machine: Machine) -> None:
        self.target = RowCosts(machine.target)
        self.drafter = RowCosts(machine.drafter)
        # Seconds for a row and a token of its context, and for a position entered into a ring.
        self.attention = machine.context_bytes / machine.bytes_per_second
        self.entry = machine.drafter_operations / machine.operations_per_second
        self._steps: _Surprises[tuple[int, float]] = _Surprises()
        self._drafts: _Surprises[DraftWork] = _Surprises()

    def step(self, rows: int, attention: float) -> float:
        """Seconds of a step of the target."""
        return self.target.at(rows) + self.attention * attention

    def draft(self, work: DraftWork) -> float:
        """Seconds of drafting."""
        passes = self.drafter.at(work.first) + sum(map(self.drafter.at, work.deeper))
        return passes + self.entry * work.entered

    def note_step(self, rows: int, attention: float, seconds: float) -> None:
        """A step took so long."""
        expected = self.step(rows, attention)
        share = self.attention * attention / expected
        self._steps.add((rows, round(share, 1)), seconds, expected)

    def note_draft(self, work: DraftWork, seconds: float) -> None:
        """Drafting took so long."""
        self._drafts.add(work, seconds, self.draft(work))

    def settle(self) -> None:
        """Learn from what was noted."""
        for (rows, share), surprise, passes in self._steps.take():
            if share > LEAST_SHARE:
                self.attention *= exp(surprise * share * ATTENTION_RATE)
            self.target.learn(rows, surprise, passes)
        for work, surprise, passes in self._drafts.take():
            share = self.entry * work.entered / self.draft(work)
            if share > LEAST_SHARE:
                self.entry *= exp(surprise * share)
            for rows in {work.first, *work.deeper}:
                self.drafter.learn(rows, (1 - share) * surprise, passes)

    def seconds_up_to(self, rows: int) -> Float64:
        """Of steps of 0 to ``rows`` rows, attention apart."""
        return self.target.up_to(rows)

    def tables(self) -> CostTables:
        """What `restore` takes back."""
        tables = (self.target.table(), self.drafter.table())
        return CostTables(*tables, self.attention, self.entry)

    def restore(self, tables: CostTables) -> None:
        """Go on from there. Raises ``ValueError`` if these are no such tables."""
        if not (0 <= tables.attention < 1 and 0 <= tables.entry < 10):
            raise ValueError("not costs in seconds")
        self.target.restore(tables.target)
        self.drafter.restore(tables.drafter)
        self.attention, self.entry = tables.attention, tables.entry
