"""The policy that decides by itself, every step, how much to speculate.

It maximises goodput, expected emitted tokens per second: a node is worth the probability that its
whole path is accepted, and a second costs the goodput that the engine has without it (Dinkelbach,
"On nonlinear fractional programming", 1967). No clock is read here: time is what steps took.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, floor, inf

import numpy as np

from slipstream.speculation.drafter import Draft, Source
from slipstream.speculation.policy.calibration import Calibration
from slipstream.speculation.policy.cost_model import CostModel, DraftWork
from slipstream.speculation.policy.depth import Choice, Demand, choose
from slipstream.speculation.policy.lookups import SHAPE as LOOKUP
from slipstream.speculation.policy.lookups import Lookups
from slipstream.speculation.policy.outlook import RATE, WIDTH, Outlook, Record
from slipstream.speculation.policy.step import Speculating, Step, Taken
from slipstream.speculation.policy.summary import Summary
from slipstream.speculation.policy.weighing import WeighedDraft
from slipstream.speculation.tree import TreeShape

CHOSEN_FOR = 0.25  # seconds that a choice holds while the same requests run
RESTED_FOR = 4  # steps at least, where nothing has paid
LONGEST_REST = 1.0  # seconds
PROBE_SHARE = 0.004  # of the time, that finding out whether speculation would pay may take
LONGEST_UNPROBED = 1.0  # seconds
PROBE_RATE = 0.1  # by which a probe changes what is expected
PROBE = TreeShape(num_steps=1, topk=1, num_draft_tokens=2)
FIRST_TRY = 4  # steps, after a time without drafts
TRY_EVERY = 32  # steps, after which more is drafted, to see what that is worth, and what it costs
TRYING = 16  # requests that do so, at most
LEAST_TRIED = 32  # rows more than what pays, of which one number may be tried; or as many again
REPAID_WITHIN = 64.0  # tokens, in which catching up must pay
LEAST_CAUGHT_UP = 512  # positions that one step may catch up with, beyond one request's
MOST_NODES = 24  # of one tree
LEAST_GAIN = 0.02  # of a step's tokens: costs are not known better than that
MOST_UNSETTLED = 64  # steps that wait for being learned from
LEAST_FOLLOWED = 0.01  # probability of a path, below which nothing is too unlikely to follow
SCORE_STEPS = 4  # per unit of a natural logarithm
LEAST_ADVANTAGE, MOST_ADVANTAGE = 0.5, 8.0  # that are believed, over plain decoding


@dataclass(slots=True)
class _Plan:
    """A choice, for whom it was made, and until when it holds."""

    choice: Choice
    ids: list[int]
    other_rows: int
    until: float


class AdaptivePolicy:
    """`rests`, `look_up`, `plan` before drafting, `prune` after it, `observe` after the step.

    In this order; if it rests, only `observe` follows. Who has no prompt lookup beside the drafter
    leaves `look_up` out.
    """

    def __init__(self, costs: CostModel, most_nodes: int) -> None:
        """``most_nodes`` is how many draft nodes one step can have."""
        self.costs = costs
        self.calibration = Calibration()
        self.outlook = Outlook()
        self.lookups = Lookups()
        self.price = 0.0  # tokens that a second is worth
        self._advantage = 1.0  # goodput that was seen, in that of plain decoding
        self._most_nodes = most_nodes
        self._records: dict[int, Record] = {}
        self._busy = 0.0  # seconds
        self._probed_at = 0.0
        self._steps = 0
        self._tried_at = 0  # step
        self._try_after = FIRST_TRY  # steps
        self._plan: _Plan | None = None
        self._rests_until = 0.0  # busy seconds
        self._step = Step()
        self._ended: list[Step] = []  # nothing was learned from them yet
        self._summary = Summary()

    def rests(self, requests: int) -> bool:
        """Whether not even to find out if anything would pay, with so many requests.

        So it is for a moment where speculation has lately brought less than plain decoding would
        have, all the time that it took counted, and the load has not fallen since.
        """
        fallen = self._plan is not None and 2 * requests < len(self._plan.ids)
        if self._busy >= self._rests_until or fallen:
            return False
        self._steps += 1
        self._step = Step(rests=True)
        return True

    def look_up(self, requests: Sequence[Speculating]) -> list[TreeShape | None]:
        """How much each of the requests should look up, None for nothing."""
        records = [self._record(request.id) for request in requests]
        wanted = self.lookups.wanted(records, self.price, self._steps)
        return [
            request.within(LOOKUP) if asked else None
            for request, asked in zip(requests, wanted, strict=True)
        ]

    def plan(
        self,
        requests: Sequence[Speculating],
        other_rows: int,
        found: Sequence[Draft | None] = (),
        other_nodes: int = 0,
    ) -> list[TreeShape | None]:
        """How large a tree each of the requests should draft, None for nothing.

        ``other_rows`` are those of all other requests, ``other_nodes`` of which are draft nodes;
        ``found`` is what was looked up for each request, None if nothing was.
        """
        self._step = step = Step(requests, max(self._most_nodes - other_nodes, 0))
        if not requests:
            return []
        self._steps += 1
        step.records = [self._record(request.id) for request in requests]
        found = found or [None] * len(requests)
        step.looked_up = [draft is not None for draft in found]
        choice = self._choice(requests, other_rows)
        step.tries = self._tries(choice)
        step.shapes = self._shapes(step, choice)
        if choice.levels and not step.tries:
            self._leave_to_lookup(step, choice, found)
        chosen = choice.chosen.tolist()
        idle = [p for p, draft in enumerate(found) if not (chosen[p] or (draft and draft.tokens))]
        if idle:
            step.probed = self._probe(step, idle)
        return step.shapes

    def prune(self, drafts: Sequence[Draft], other_rows: int) -> list[Draft]:
        """The nodes that are worth verifying, of the planned requests' drafts."""
        step, calibration = self._step, self.calibration
        if step.rests:
            return list(drafts)
        worth: list[tuple[float, int, int]] = []  # of a node, negative; whose, which
        for place, (request, draft) in enumerate(zip(step.requests, drafts, strict=True)):
            if not draft.tokens:
                continue
            skill = step.records[place].skill
            weighed = WeighedDraft.of(draft, calibration, request.sampled, skill)
            step.weighed[place] = weighed
            if place != step.probed:
                attending = self.price * self.costs.attention * request.context
                nodes = enumerate(weighed.probabilities)
                worth += [(attending - likely, place, node) for node, likely in nodes]
        # Equal nodes stay in order, so that parents come before their children.
        worth.sort()
        step.kept = {place: [] for place in step.weighed}
        for _, place, node in worth[: self._affordable(worth, other_rows)]:
            step.kept[place].append(node)
            step.expected_tokens += step.weighed[place].probabilities[node]
        return [
            step.weighed[place].keep(sorted(step.kept[place])) if place in step.kept else draft
            for place, draft in enumerate(drafts)
        ]

    def observe(self, emitted: Sequence[Sequence[int]], taken: Taken) -> None:
        """The tokens that each planned request emitted, and what the step took."""
        step = self._step
        self._busy += taken.whole
        step.emitted, step.taken, step.ended = emitted, taken, self._busy
        if step.nodes:
            self._rests_until = 0.0  # there is something to learn from
        self._ended.append(step)
        if len(self._ended) >= MOST_UNSETTLED:  # no choice is made while nobody lets it adapt
            self._settle()

    def forget(self, request_id: int) -> None:
        """The request has ended."""
        self._records.pop(request_id, None)

    def summary(self) -> Summary:
        """What happened since this was last asked, as far as it was learned from."""
        summary, self._summary = self._summary, Summary()
        return summary

    def _choice(self, requests: Sequence[Speculating], other_rows: int) -> Choice:
        """What was chosen last, while that holds, or what is best now."""
        ids = [request.id for request in requests]
        plan = self._plan
        if (
            plan is None
            or self._busy >= plan.until
            or plan.ids != ids
            or plan.other_rows != other_rows
        ):
            self._settle()
            choice = self._choose(self._demand(requests, other_rows))
            self._plan = plan = _Plan(choice, ids, other_rows, self._busy + CHOSEN_FOR)
            self._rests_until = self._busy + self._rest(choice)
        return plan.choice

    def _rest(self, choice: Choice) -> float:
        """Seconds for which nothing needs to be looked at."""
        if choice.levels or self._advantage >= 1:
            return 0.0
        return min(max(CHOSEN_FOR, RESTED_FOR * choice.seconds), LONGEST_REST)

    def _tries(self, choice: Choice) -> bool:
        """It is time to draft more than pays: often at first, when text has become easy to draft,
        and ever more rarely."""
        if not choice.levels:
            self._try_after = max(self._try_after - 1, FIRST_TRY)
        elif self._steps - self._tried_at >= self._try_after:
            self._tried_at = self._steps
            self._try_after = min(2 * self._try_after, TRY_EVERY)
            return True
        return False

    def _shapes(self, step: Step, choice: Choice) -> list[TreeShape | None]:
        if not choice.levels:
            return [None] * len(step.requests)
        levels, width = choice.levels, choice.width
        chosen = [place for place, drafts in enumerate(choice.chosen.tolist()) if drafts]
        shapes: list[TreeShape | None] = [None] * len(step.requests)
        for place in chosen:
            request = step.requests[place]
            least = self._least_score(choice, request, step.records[place])
            shapes[place] = request.within(_shape(levels, width, least))
        if step.tries:
            first = self._steps // TRY_EVERY * TRYING
            for number in range(min(TRYING, len(chosen))):
                place = chosen[(first + number) % len(chosen)]
                shapes[place] = step.requests[place].within(_shape(levels + 1, WIDTH))
        return shapes

    def _least_score(self, choice: Choice, request: Speculating, record: Record) -> float:
        """What the drafter must say of a path that is worth following, in coarse steps."""
        likely = min(choice.followed / record.skill, 1.0)
        if likely < LEAST_FOLLOWED:
            return -inf
        score = self.calibration.score_of(likely, 1, (Source.MODEL, request.sampled))
        return min(floor(SCORE_STEPS * score) / SCORE_STEPS, 0.0)

    def _record(self, request_id: int) -> Record:
        record = self._records.get(request_id)
        if record is None:
            record = self._records[request_id] = Record(
                found=self.lookups.usual, looked_up_at=self._steps
            )
        return record

    def _leave_to_lookup(self, step: Step, choice: Choice, found: Sequence[Draft | None]) -> None:
        """Do not draft where what was looked up promises more than a draft usually brings."""
        usual = (choice.emitted - len(step.requests)) / max(int(choice.chosen.sum()), 1)
        for place, draft in enumerate(found):
            if draft is not None and draft.tokens:
                request, record = step.requests[place], step.records[place]
                weighed = WeighedDraft.of(draft, self.calibration, request.sampled, record.skill)
                if sum(weighed.probabilities) > usual:
                    step.shapes[place] = None

    def _demand(self, requests: Sequence[Speculating], other_rows: int) -> Demand:
        facts = np.array([(r.context, r.remaining, r.sampled, r.behind) for r in requests])
        behind = facts[:, 3]
        within = np.minimum(facts[:, 1], REPAID_WITHIN)
        # A step spends half its time again on catching up at most; the others come in later ones.
        step = self.costs.plain(len(requests), float(facts[:, 0].sum()))
        most = max(LEAST_CAUGHT_UP, 0.5 * step / self.costs.entry) if self.costs.entry else np.inf
        late = (np.cumsum(behind) - behind > most) & (behind > 0)
        outlook = self.outlook.of(self._step.records, facts[:, 2] > 0)
        outlook[late] = 0.0
        # What is beyond the last token that a request may emit is of no use.
        levels = np.arange(outlook.shape[1])
        outlook[levels >= facts[:, 1, None] - 1] = 0.0
        return Demand(
            outlook=outlook,
            reached=self.outlook.reached(facts[:, 2] > 0),
            context=facts[:, 0].astype(np.float64),
            catching_up=self.costs.entry * behind / within,
            first_rows=2,
            other_rows=other_rows,
            most_nodes=self._step.most_nodes,
        )

    def _choose(self, demand: Demand) -> Choice:
        """The best option at the best price: that which this choice brings per second."""
        requests = len(demand.context)
        plain = requests / self.costs.plain(requests, float(demand.context.sum()))
        self.price = plain * max(self._advantage, 1.0)
        choice = choose(demand, self.costs, self.price)
        if choice.emitted > 1.02 * self.price * choice.seconds:
            self.price = choice.emitted / choice.seconds
            choice = choose(demand, self.costs, self.price)
        return choice

    def _probe(self, step: Step, idle: Sequence[int]) -> int | None:
        """Have one of these requests draft to find out what its drafts are worth, if it is time."""
        waited = self._busy - self._probed_at
        affordable = PROBE_SHARE * waited if waited < LONGEST_UNPROBED else inf
        if self.costs.draft(DraftWork(1)) > affordable:
            return None
        requests = step.requests
        place = min(idle, key=lambda p: (requests[p].lag, step.records[p].drafted_at))
        shape = requests[place].within(PROBE)
        if shape is None or self.costs.draft(DraftWork(1, (), requests[place].behind)) > affordable:
            return None
        step.shapes[place] = shape
        self._probed_at = self._busy
        return place

    def _affordable(self, worth: Sequence[tuple[float, int, int]], other_rows: int) -> int:
        """How many of these nodes to keep: of all prefixes the best, as costs are a staircase."""
        rows = len(self._step.requests) + other_rows
        most = min(len(worth), self._step.most_nodes)
        seconds = self.costs.seconds_up_to(rows + most)[rows:].tolist()
        if self._step.tries:
            tried = min(most, max(LEAST_TRIED, rows))
            if unknown := self.costs.target.unknown(rows + 1, rows + tried):
                return unknown - rows
        best, count, gained = LEAST_GAIN * len(self._step.requests), 0, 0.0
        for number, (cost, _, _) in enumerate(worth[:most], start=1):
            gained -= cost
            gain = gained - self.price * (seconds[number] - seconds[0])
            if gain > best:
                best, count = gain, number
        return count

    def _settle(self) -> None:
        """Learn from the steps that have ended: together, as that is quicker than one by one."""
        self._compare()
        for step in self._ended:
            taken = step.taken
            self._sum_up(step)
            self.costs.note_step(taken.rows, taken.attention, taken.context, taken.seconds)
            self.lookups.took(taken.lookup_seconds, sum(step.looked_up))
            if taken.draft_seconds > 0 and (work := step.draft_work()).first:
                self.costs.note_draft(work, taken.draft_seconds)
            row = self._price_of_row(step)
            for place in range(len(step.requests)):
                weighed = step.weighed.get(place)
                outcomes = weighed.outcomes(step.emitted[place]) if weighed else []
                if step.looked_up[place]:
                    record, kept = step.records[place], step.kept.get(place, ())
                    self.lookups.learn(record, weighed, outcomes, kept, row)
                if weighed:
                    self._learn(step, place, weighed, outcomes)
        self._ended.clear()
        self.costs.settle()

    def _price_of_row(self, step: Step) -> float:
        """What each node of a step cost, in tokens, without its attention."""
        rows, nodes = step.taken.rows, max(step.nodes, 1)
        seconds = self.costs.target.at(rows) - self.costs.target.at(max(rows - nodes, 1))
        return self.price * seconds / nodes

    def _compare(self) -> None:
        """See what goodput the steps that have ended had, in that of plain decoding."""
        tokens = requests = 0
        seconds = plain = 0.0
        for step in self._ended:
            taken, decoding = step.taken, len(step.requests)
            if decoding and taken.rows == decoding + step.nodes:  # no prompt in it
                tokens += sum(map(len, step.emitted))
                requests += decoding
                seconds += taken.whole
                attention = taken.attention * decoding / taken.rows
                plain += self.costs.step(decoding, attention, taken.context)
        if requests:
            seen = tokens * plain / (requests * seconds)
            seen = min(max(seen, LEAST_ADVANTAGE), MOST_ADVANTAGE)
            self._advantage += (1 - exp(-seconds)) * (seen - self._advantage)

    def _learn(
        self, step: Step, place: int, weighed: WeighedDraft, outcomes: Sequence[bool | None]
    ) -> None:
        request, record, shape = step.requests[place], step.records[place], step.shapes[place]
        promised, accepted = 0.0, 0
        draft = weighed.draft
        facts = zip(
            draft.scores, draft.origins, weighed.depths, weighed.unskilled, outcomes, strict=True
        )
        for score, source, depth, likely, right in facts:
            if right is not None:
                self.calibration.learn(score, depth, (source, request.sampled), right)
                promised += likely
                accepted += right
        record.learn(promised, accepted)
        if shape is None:
            return
        record.drafted_at = step.ended
        probed = place == step.probed
        rate = PROBE_RATE if probed and len(step.weighed) == 1 else RATE
        reach = (shape.num_steps, shape.topk)
        self.outlook.learn(record, request.sampled, weighed.by_level(), reach, rate)

    def _sum_up(self, step: Step) -> None:
        taken, tokens = step.taken, sum(map(len, step.emitted))
        if step.nodes:
            why = "on"
        elif step.rests:
            why = "speculation has lately won less than it took"
        elif not step.requests:
            why = "nobody decodes"
        elif step.weighed and step.probed is None:
            why = "no drafted node was worth its row"
        else:
            why = "a draft would cost more time than it saves"
        self._summary.add(
            why,
            drafted=sum(len(weighed.depths) for weighed in step.weighed.values()),
            kept=step.nodes,
            accepted=tokens - len(step.emitted),
            emitted=tokens,
            expected_tokens=len(step.emitted) + step.expected_tokens,
            expected_seconds=self.costs.step(taken.rows, taken.attention, taken.context),
            seconds=taken.seconds,
            draft_seconds=taken.draft_seconds + taken.lookup_seconds,
        )


def _shape(levels: int, width: int, least_score: float = -inf) -> TreeShape:
    nodes = levels if width == 1 else min(MOST_NODES, levels * width * 2)
    return TreeShape(levels, width, 1 + nodes, least_score)
