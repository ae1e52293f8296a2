"""The policy that decides by itself, every step, how much to speculate.

It maximises goodput, expected emitted tokens per second: a node is worth the probability that its
whole path is accepted, and a second costs the goodput that the engine has without it (Dinkelbach,
"On nonlinear fractional programming", 1967). No clock is read here: time is what steps took.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from slipstream.speculation.drafter import Draft
from slipstream.speculation.policy.calibration import Calibration
from slipstream.speculation.policy.cost_model import CostModel, DraftWork
from slipstream.speculation.policy.depth import Choice, Demand, choose
from slipstream.speculation.policy.forest import Forest
from slipstream.speculation.policy.outlook import FADING, RATE, Outlook, Record
from slipstream.speculation.tree import TreeShape

PROBE_SHARE = 0.01  # of the time, that finding out whether speculation would pay may take
LONGEST_UNPROBED = 1.0  # seconds
PROBE_RATE = 0.1  # by which a probe changes what is expected
PROBE = TreeShape(num_steps=2, topk=1, num_draft_tokens=3)
DEEPER_EVERY = 64  # steps, after which one more level is tried
REPAID_WITHIN = 64.0  # tokens, in which catching up must pay
MOST_CAUGHT_UP = 512  # positions of one step, beyond what one request lacks
MOST_NODES = 24  # of one tree
CAUGHT_UP = 8  # positions that count as none to catch up with


class Speculating(msgspec.Struct, frozen=True):
    """A request that may speculate in this step."""

    id: int
    context: int  # tokens committed
    remaining: int  # tokens that it may still emit, at least 1
    sampled: bool  # not greedy
    lag: int  # positions that the drafter has to enter before its first level


class Taken(msgspec.Struct, frozen=True):
    """What a step took. Attention is rows times the tokens of their context."""

    rows: int
    attention: float
    draft_seconds: float  # 0.0 if nothing was drafted
    seconds: float  # of everything else


@dataclass(slots=True)
class _Step:
    """What is remembered from planning a step to its end."""

    requests: Sequence[Speculating]
    choice: Choice
    shapes: list[TreeShape | None]
    probed: int | None  # place of the request that drafts to find out, not to be verified
    forest: Forest = field(default_factory=Forest.empty)
    kept: int = 0
    expected_tokens: float = 0.0
    expected_seconds: float = 0.0


class Summary(msgspec.Struct, frozen=True):
    """What happened since the last summary, for people."""

    steps: int = 0
    drafted: int = 0  # nodes
    kept: int = 0
    accepted: int = 0
    emitted: int = 0
    expected_tokens: float = 0.0
    expected_seconds: float = 0.0
    seconds: float = 0.0
    why: str = "idle"


class AdaptivePolicy:
    """`plan` before drafting, `prune` after it, `observe` after the step; in this order."""

    def __init__(self, costs: CostModel, most_rows: int) -> None:
        """``most_rows`` is how many draft nodes one step can have."""
        self.costs = costs
        self.calibration = Calibration()
        self.outlook = Outlook()
        self.price = 0.0  # tokens that a second is worth
        self._most_nodes = most_rows
        self._records: dict[int, Record] = {}
        self._busy = 0.0  # seconds
        self._probed_at = 0.0
        self._steps = 0
        self._step = _nothing()
        self._sums = Summary()

    def plan(
        self, requests: Sequence[Speculating], other_rows: int, other_attention: float
    ) -> list[TreeShape | None]:
        """How large a tree each of the requests should draft, None for nothing.

        ``other_rows`` are those of prompts and of requests that do not speculate.
        """
        self._step = _nothing()
        if not requests:
            return []
        self._steps += 1
        for request in requests:
            if request.id not in self._records:
                self._records[request.id] = Record()
        demand = self._demand(requests, other_rows)
        choice = self._choose(demand)
        shapes = _shapes(requests, choice, self._steps % DEEPER_EVERY == 0)
        probed = self._probe(requests, choice) if len(requests) > choice.chosen.sum() else None
        if probed is not None:
            shapes[probed] = _within(PROBE, requests[probed])
        attention = other_attention + float(demand.context.sum())
        rows = len(requests) + other_rows
        seconds = self.costs.step(rows, attention)
        self._step = _Step(requests, choice, shapes, probed, expected_seconds=seconds)
        return shapes

    def prune(self, drafts: Sequence[Draft], other_rows: int) -> list[Draft]:
        """The nodes that are worth verifying, of the planned requests' drafts."""
        step = self._step
        if not any(draft.tokens for draft in drafts):
            return list(drafts)
        requests = step.requests
        step.forest = forest = Forest.of(drafts, [request.sampled for request in requests])
        skills = np.array([self._records[request.id].skill for request in requests])
        forest.weigh(self.calibration, skills)
        contexts = np.array([request.context for request in requests], dtype=np.float64)
        contexts = self.costs.attention * self.price * contexts
        net = forest.probabilities - contexts[forest.owners]
        if step.probed is not None:
            net[forest.owners == step.probed] = -np.inf
        order = np.argsort(-net, kind="stable")[: self._most_nodes]
        rows = len(requests) + other_rows
        seconds = self.costs.seconds_up_to(rows + len(order))
        gains = np.cumsum(net[order]) - self.price * (seconds[rows + 1 :] - seconds[rows])
        count = int(gains.argmax()) + 1
        if not gains[count - 1] > 0:
            count = 0
        kept = np.zeros(len(net), dtype=np.bool_)
        kept[order[:count]] = True
        step.kept = count
        step.expected_tokens = float(forest.probabilities[kept].sum())
        step.expected_seconds += float(seconds[rows + count] - seconds[rows])
        return forest.keep(drafts, kept)

    def observe(self, emitted: Sequence[Sequence[int]], taken: Taken) -> None:
        """The tokens that each planned request emitted, and what the step took."""
        step = self._step
        self._busy += taken.draft_seconds + taken.seconds
        self.costs.learn_step(taken.rows, taken.attention, taken.seconds)
        if step.forest.tokens:
            self._learn(step, emitted, taken)
        self._sum_up(step, emitted, taken)

    def forget(self, request_id: int) -> None:
        """The request has ended."""
        self._records.pop(request_id, None)

    def summary(self) -> Summary:
        """What happened since this was last asked."""
        sums, self._sums = self._sums, Summary()
        return sums

    def _demand(self, requests: Sequence[Speculating], other_rows: int) -> Demand:
        facts = np.array([(r.context, r.remaining, r.sampled, r.lag) for r in requests])
        records = [self._records[request.id] for request in requests]
        behind = np.maximum(facts[:, 3] - CAUGHT_UP, 0)
        within = np.minimum(facts[:, 1], REPAID_WITHIN)
        # In one step only so many positions are caught up with; whoever is next in a later one.
        late = (np.cumsum(behind) - behind > MOST_CAUGHT_UP) & (behind > 0)
        outlook = self.outlook.of(records, facts[:, 2] > 0)
        outlook[late] = 0.0
        # What is beyond the last token that a request may emit is of no use.
        levels = np.arange(outlook.shape[1])
        outlook[levels >= facts[:, 1, None] - 1] = 0.0
        return Demand(
            outlook=outlook,
            context=facts[:, 0].astype(np.float64),
            catching_up=self.costs.entry * behind / within,
            first_rows=2,
            other_rows=other_rows,
            most_nodes=self._most_nodes,
        )

    def _choose(self, demand: Demand) -> Choice:
        """The best option at the best price: that which this choice brings per second."""
        requests = len(demand.context)
        alone = self.costs.step(requests, float(demand.context.sum()))
        least = requests / alone
        self.price = max(self.price, least) if self.price < 4 * least else least
        for _ in range(3):
            choice = choose(demand, self.costs, self.price)
            price = max(least, choice.emitted / choice.seconds)
            settled = abs(price - self.price) < 0.02 * price
            self.price = price
            if settled:
                break
        return choice

    def _probe(self, requests: Sequence[Speculating], choice: Choice) -> int | None:
        """Whose draft would tell most, if it is time to spend something on finding out."""
        places = np.flatnonzero(~choice.chosen)
        waited = self._busy - self._probed_at
        oldest: dict[int, float] = {
            p: self._records[requests[p].id].drafted_at for p in places.tolist()
        }
        place = min(oldest, key=lambda p: (oldest[p], requests[p].lag))
        if requests[place].remaining < 2:
            return None
        lag = requests[place].lag
        cost = self.costs.draft(DraftWork(1, [1], max(lag - CAUGHT_UP, 0)))
        if cost > PROBE_SHARE * waited and waited < LONGEST_UNPROBED:
            return None
        self._probed_at = self._busy
        return place

    def _learn(self, step: _Step, emitted: Sequence[Sequence[int]], taken: Taken) -> None:
        requests, forest = step.requests, step.forest
        right, known = forest.compare(emitted)
        forest.teach(self.calibration, right & known, known)
        drafted = forest.owners_present
        records = [self._records[requests[owner].id] for owner in drafted]
        promised = forest.sums(forest.unskilled * known)
        accepted = forest.sums((right & known).astype(np.float64))
        for owner, record in zip(drafted, records, strict=True):
            record.promised += float(promised[owner]) - (1 - FADING) * (record.promised - 3.0)
            record.accepted += float(accepted[owner]) - (1 - FADING) * (record.accepted - 3.0)
            record.drafted_at = self._busy
        found = forest.found([_reach(step.shapes[owner]) for owner in drafted])
        sampled = np.array([requests[owner].sampled for owner in drafted], dtype=np.bool_)
        rate = PROBE_RATE if step.probed is not None and len(drafted) == 1 else RATE
        self.outlook.learn(records, sampled, found, rate)
        if taken.draft_seconds > 0:
            self.costs.learn_draft(_work(step), taken.draft_seconds)

    def _sum_up(self, step: _Step, emitted: Sequence[Sequence[int]], taken: Taken) -> None:
        sums, tokens = self._sums, sum(map(len, emitted))
        if step.kept:
            why = "on"
        elif not step.requests:
            why = "nobody decodes"
        elif step.choice.levels:
            why = "no drafted node was worth its row"
        else:
            why = "a draft would cost more time than it saves"
        self._sums = Summary(
            steps=sums.steps + 1,
            drafted=sums.drafted + len(step.forest.tokens),
            kept=sums.kept + step.kept,
            accepted=sums.accepted + tokens - len(emitted),
            emitted=sums.emitted + tokens,
            expected_tokens=sums.expected_tokens + len(emitted) + step.expected_tokens,
            expected_seconds=sums.expected_seconds + step.expected_seconds,
            seconds=sums.seconds + taken.seconds,
            why=why,
        )


def _nothing() -> _Step:
    chosen = np.zeros(0, dtype=np.bool_)
    return _Step([], Choice(0, 0, chosen, 0, 0.0, 0.0, 0.0), [], None)


def _shapes(
    requests: Sequence[Speculating], choice: Choice, deeper: bool
) -> list[TreeShape | None]:
    if not choice.levels:
        return [None] * len(requests)
    levels = choice.levels + deeper
    nodes = levels if choice.width == 1 else min(MOST_NODES, levels * choice.width * 2)
    shape = TreeShape(levels, choice.width, 1 + nodes)
    return [
        _within(shape, request) if chosen else None
        for request, chosen in zip(requests, choice.chosen.tolist(), strict=True)
    ]


def _within(shape: TreeShape, request: Speculating) -> TreeShape | None:
    """Not beyond the request's last token, which needs no draft."""
    levels = min(shape.num_steps, request.remaining - 1)
    return TreeShape(levels, shape.topk, shape.num_draft_tokens) if levels > 0 else None


def _reach(shape: TreeShape | None) -> tuple[int, int]:
    return (shape.num_steps, shape.topk) if shape else (0, 0)


def _work(step: _Step) -> DraftWork:
    """What this step's drafting computed, about."""
    drafting = [
        (request, shape)
        for request, shape in zip(step.requests, step.shapes, strict=True)
        if shape is not None
    ]
    levels = max(shape.num_steps for _, shape in drafting)
    deeper = [
        sum(shape.topk for _, shape in drafting if shape.num_steps > level)
        for level in range(1, levels)
    ]
    first = sum(min(max(request.lag, 1), CAUGHT_UP) for request, _ in drafting)
    entered = sum(max(request.lag - CAUGHT_UP, 0) for request, _ in drafting)
    return DraftWork(first, deeper, entered)
