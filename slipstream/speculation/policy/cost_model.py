"""What a step costs: the target's pass over so many rows, and the drafter's passes before it."""

from collections import defaultdict
from dataclasses import dataclass
from math import ceil, exp, log

import msgspec

from slipstream.speculation.policy.row_costs import Float64, RowCosts

CONTEXT_RATE = 0.1  # of what attending to context and reading it cost, per step
LEAST_SHARE = 0.02  # of a pass, below which it teaches nothing about attention or entering
CALL_RATE = 0.1  # of what a draft costs beside its passes, per kind of draft
LEAST_CALL = 1e-6  # seconds
LARGEST_SURPRISE = 1.0  # of one pass, as a natural logarithm; more is an accident

_Noted = tuple[float, float, float]  # attention, context, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a model and a machine let expect before anything is measured; only a first guess."""

    target_bytes: float = 1e8  # read per step
    target_operations: float = 3e8  # per row
    without_logits: float = 1.0  # the share of these that a row has which needs no logits
    drafter_bytes: float = 0.0  # read per level
    drafter_operations: float = 0.0  # per row
    context_bytes: float = 0.0  # read per request for each token of its context
    context_operations: float = 0.0  # per row for each token of its context
    bytes_per_second: float = 12e9
    operations_per_second: float = 2e11
    seconds_per_pass: float = 3e-4  # whatever is computed
    seconds_per_draft: float = 3e-4  # whatever its passes are

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
    reading: float
    entry: float
    call: float


class CostModel:
    """Seconds, learned from every step. A step's attention is counted in rows times context; the
    context itself, in tokens of all requests, is read once, however many rows a request has.

    Steps are short, and a table is slow to change: they are noted, and `settle` learns from them.
    """

    def __init__(self, machine: Machine) -> None:
        self.target = RowCosts(machine.target)
        self.drafter = RowCosts(machine.drafter)
        # Seconds for a row and a token of its context, for a token of a request's context, and for
        # a position entered into a ring.
        self.attention = machine.context_operations / machine.operations_per_second
        self.reading = machine.context_bytes / machine.bytes_per_second
        self.entry = machine.drafter_operations / machine.operations_per_second
        # Seconds of drafting beside its passes: with one level as with many.
        self.call = machine.seconds_per_draft
        self._without_logits = machine.without_logits
        # Steps of so many rows and such shares of attention and of reading; seconds of drafts.
        self._steps: defaultdict[tuple[int, float, float], list[_Noted]] = defaultdict(list)
        self._drafts: defaultdict[DraftWork, list[float]] = defaultdict(list)

    def rows(self, rows: int, logits: int) -> int:
        """How many rows with logits cost as much as ``rows``, of which only ``logits`` need them:
        most rows of a prompt do not."""
        return logits + ceil(self._without_logits * (rows - logits))

    def step(self, rows: int, attention: float, context: float) -> float:
        """Seconds of a step of the target."""
        return self.target.at(rows) + self.attention * attention + self.reading * context

    def plain(self, requests: int, context: float) -> float:
        """Seconds of a step in which each of the requests has one row."""
        return self.step(requests, context, context)

    def draft(self, work: DraftWork) -> float:
        """Seconds of drafting."""
        passes = self.drafter.at(work.first) + sum(map(self.drafter.at, work.deeper))
        return self.call + passes + self.entry * work.entered

    def note_step(self, rows: int, attention: float, context: float, seconds: float) -> None:
        """A step took so long."""
        expected = self.step(rows, attention, context)
        attending = round(self.attention * attention / expected, 1)
        reading = round(self.reading * context / expected, 1)
        self._steps[rows, attending, reading].append((attention, context, seconds))

    def note_draft(self, work: DraftWork, seconds: float) -> None:
        """Drafting took so long."""
        self._drafts[work].append(seconds)

    def settle(self) -> None:
        """Learn from what was noted, each kind of pass after what the ones before have taught:
        they share the drift, which would follow several times as far."""
        for (rows, attending, reading), steps in self._steps.items():
            surprise = _surprise([took / self.step(rows, *work) for *work, took in steps])
            if attending > LEAST_SHARE:
                self.attention *= exp(surprise * attending * CONTEXT_RATE)
            if reading > LEAST_SHARE:
                self.reading *= exp(surprise * reading * CONTEXT_RATE)
            self.target.learn(rows, surprise, len(steps))
        for work, seconds in self._drafts.items():
            levels = (work.first, *work.deeper)
            expected = self.draft(work)
            surprise = _surprise([took / expected for took in seconds])
            share = self.entry * work.entered / expected
            if share > LEAST_SHARE:
                self.entry *= exp(surprise * share)
            # Added, not in proportion: what is thought to be small would hardly ever grow.
            shortest = self.call + self.drafter.at(work.first)
            more = CALL_RATE * surprise * shortest * shortest / expected
            self.call = max(self.call + more, LEAST_CALL)
            parts = {rows: levels.count(rows) * self.drafter.at(rows) for rows in levels}
            for rows, part in parts.items():
                self.drafter.learn(rows, part / expected * surprise, len(seconds))
        self._steps.clear()
        self._drafts.clear()

    def seconds_up_to(self, rows: int) -> Float64:
        """Of steps of 0 to ``rows`` rows, attention apart."""
        return self.target.up_to(rows)

    def tables(self) -> CostTables:
        """What `restore` takes back."""
        tables = (self.target.table(), self.drafter.table())
        return CostTables(*tables, self.attention, self.reading, self.entry, self.call)

    def restore(self, tables: CostTables) -> None:
        """Go on from there. Raises ``ValueError`` if these are no such tables."""
        context = 0 <= tables.attention < 1 and 0 <= tables.reading < 1
        if not (context and 0 <= tables.entry < 10 and 0 < tables.call < 10):
            raise ValueError("not costs in seconds")
        self.target.restore(tables.target)
        self.drafter.restore(tables.drafter)
        self.attention, self.reading = tables.attention, tables.reading
        self.entry, self.call = tables.entry, tables.call


def _surprise(ratios: list[float]) -> float:
    """How much longer than expected passes took, in the middle, as a natural logarithm."""
    ratios.sort()
    return max(-LARGEST_SURPRISE, min(log(ratios[len(ratios) // 2]), LARGEST_SURPRISE))
