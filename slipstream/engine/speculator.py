"""Token trees for one step: how much each request speculates, the drafts, and what came of them."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.engine.explain import explain
from slipstream.engine.messages import Delta
from slipstream.engine.request import Request
from slipstream.engine.scheduler import Scheduler, Work
from slipstream.kernels import StepBatch
from slipstream.speculation.drafter import NO_DRAFT, Draft, Drafter, DraftTask
from slipstream.speculation.merging import merge
from slipstream.speculation.policy.adaptive import AdaptivePolicy
from slipstream.speculation.policy.static import static_shape
from slipstream.speculation.policy.step import Speculating, Taken
from slipstream.speculation.tree import TokenTree, TreeShape

SUMMED_UP_AFTER = 1.0  # seconds of steps

_log = logging.getLogger("slipstream.engine")


@dataclass(slots=True)
class Totals:
    """Since the start. What is expected is known up to the last time that it was summed up."""

    drafted_nodes: int = 0  # before the policy left any out
    draft_seconds: float = 0.0
    expected_tokens: float = 0.0  # of requests that the policy decides on
    expected_step_seconds: float = 0.0
    why: str = "idle"  # speculation is on or off


class Speculator:
    """Asks the policy, the drafter, and the policy again."""

    def __init__(
        self,
        drafter: Drafter,
        policy: AdaptivePolicy,
        max_draft_rows: int,
        lookup: Drafter | None,
    ) -> None:
        """``max_draft_rows`` is how many draft nodes one step may have, ``lookup`` a second drafter
        that costs next to nothing, for requests that leave it to the policy how to speculate."""
        self._drafter = drafter
        self._lookup = lookup
        self._policy = policy
        self._max_draft_rows = max_draft_rows
        self._adaptive: list[int] = []  # places of the works that the policy decides on
        self._other_rows = 0
        self._found: dict[int, Draft] = {}  # what was looked up, by place
        self._draft_seconds = 0.0
        self._lookup_seconds = 0.0
        self._deciding_seconds = 0.0
        self._others_draft = False
        self._unsummed = 0.0  # seconds
        self.totals = Totals()

    def grow(self, works: Sequence[Work], scheduler: Scheduler) -> list[TokenTree]:
        """Each request's known tokens with the drafter's nodes below, as far as slots are free."""
        begun = time.perf_counter()
        self._draft_seconds = self._lookup_seconds = 0.0
        trees = self._grown(works, scheduler)
        spent = time.perf_counter() - begun
        self._deciding_seconds = spent - self._draft_seconds - self._lookup_seconds
        return trees

    def _grown(self, works: Sequence[Work], scheduler: Scheduler) -> list[TokenTree]:
        trees = [TokenTree.chain(work.tokens) for work in works]
        shapes = self._shapes(works)
        if not (shapes or self._found):
            return trees
        started = time.perf_counter()
        drafts = _draft(self._drafter, works, shapes)
        self._draft_seconds = time.perf_counter() - started
        for index, found in self._found.items():
            drafts[index] = merge(drafts.get(index, NO_DRAFT), found)
        self.totals.draft_seconds += self._draft_seconds + self._lookup_seconds
        self.totals.drafted_nodes += sum([len(draft.tokens) for draft in drafts.values()])
        drafts.update(self._prune(drafts))
        for index, draft in drafts.items():
            if draft.tokens:
                tree = trees[index].graft(draft.tokens, draft.parents)
                room = scheduler.lend_slots(works[index], tree.draft_nodes)
                trees[index] = tree.trim(works[index].count + room)
        return trees

    def observe(
        self, works: Sequence[Work], batch: StepBatch, deltas: Sequence[Delta], seconds: float
    ) -> None:
        """What a step emitted, a delta for each work that reaches its end, and how long all of it
        took."""
        emitted = {delta.id: delta.token_ids for delta in deltas}
        beside = self._draft_seconds + self._lookup_seconds + self._deciding_seconds
        taken = Taken(
            rows=self._policy.costs.rows(len(batch.tokens), len(batch.logit_rows)),
            attention=float(batch.positions.sum()),
            context=float(sum([work.request.committed for work in works])),
            draft_seconds=0.0 if self._others_draft else self._draft_seconds,
            seconds=max(seconds - beside, 1e-6),
            lookup_seconds=self._lookup_seconds,
            deciding_seconds=self._deciding_seconds,
        )
        self._policy.observe([emitted[works[i].request.id] for i in self._adaptive], taken)
        self._unsummed += seconds
        if self._unsummed >= SUMMED_UP_AFTER:
            self.sum_up()

    def sum_up(self) -> None:
        """Bring the totals up to date, and tell who wants to know what happened since last time."""
        self._unsummed = 0.0
        summary = self._policy.summary()
        why = summary.why
        if not self._adaptive:
            why = "as requests ask for" if self._others_draft else "nobody asks for it"
        self.totals.expected_tokens += summary.expected_tokens
        self.totals.expected_step_seconds += summary.expected_seconds
        self.totals.why = why
        if summary.steps and _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s; speculation: %s", explain(summary), why)

    def forget(self, request_id: int) -> None:
        """The request has ended."""
        self._drafter.forget(request_id)
        if self._lookup:
            self._lookup.forget(request_id)
        self._policy.forget(request_id)

    def _shapes(self, works: Sequence[Work]) -> dict[int, TreeShape]:
        """How large a tree each work may draft, by its place; only those that draft at all."""
        decoding = sum(work.reaches_end for work in works)
        self._adaptive = []
        fixed: dict[int, TreeShape] = {}
        for index, work in enumerate(works):
            if not work.reaches_end:
                continue
            if work.request.speculation.mode == "adaptive":
                # A prompt's last chunk is computed in this step: features come only after it.
                if work.count == 1:
                    self._adaptive.append(index)
            elif shape := static_shape(work.request.speculation, decoding, work.request.remaining):
                fixed[index] = shape
        if fixed:
            # Logits of thousands of rows would take gigabytes: many requests share what there is.
            share = 1 + self._max_draft_rows // len(fixed)
            fixed = {index: shape.within(share) for index, shape in fixed.items() if share > 1}
        self._others_draft = bool(fixed)
        planned = self._plan(works, sum(shape.num_draft_tokens - 1 for shape in fixed.values()))
        return fixed | planned

    def _plan(self, works: Sequence[Work], other_nodes: int) -> dict[int, TreeShape]:
        self._found = {}
        if self._adaptive and self._policy.rests(len(self._adaptive)):
            return {}
        requests = [self._speculating(works[index]) for index in self._adaptive]
        others = sum([work.count for work in works]) - len(requests)
        logits = sum([work.reaches_end for work in works]) - len(requests)
        self._other_rows = other_nodes + self._policy.costs.rows(others, logits)
        self._look_up(works, requests)
        found = [self._found.get(index) for index in self._adaptive]
        shapes = self._policy.plan(requests, self._other_rows, found, other_nodes)
        return {
            index: shape
            for index, shape in zip(self._adaptive, shapes, strict=True)
            if shape is not None
        }

    def _look_up(self, works: Sequence[Work], requests: Sequence[Speculating]) -> None:
        if self._lookup is None or not requests:
            return
        started = time.perf_counter()
        asked = zip(self._adaptive, self._policy.look_up(requests), strict=True)
        self._found = _draft(self._lookup, works, {i: shape for i, shape in asked if shape})
        self._lookup_seconds = time.perf_counter() - started

    def _prune(self, drafts: dict[int, Draft]) -> dict[int, Draft]:
        asked = [drafts.get(index, NO_DRAFT) for index in self._adaptive]
        pruned = self._policy.prune(asked, self._other_rows)
        return dict(zip(self._adaptive, pruned, strict=True))

    def _speculating(self, work: Work) -> Speculating:
        request = work.request
        return Speculating(
            id=request.id,
            context=request.committed,
            remaining=request.remaining,
            sampled=request.params.temperature > 0,
            lag=self._drafter.lag(request.id, request.committed),
        )


def _draft(
    drafter: Drafter, works: Sequence[Work], shapes: dict[int, TreeShape]
) -> dict[int, Draft]:
    """Drafts of the works that have a shape, by their places."""
    if not shapes:
        return {}
    tasks = [_draft_task(works[index].request, shape) for index, shape in shapes.items()]
    return dict(zip(shapes, drafter.draft(tasks), strict=True))


def _draft_task(request: Request, shape: TreeShape) -> DraftTask:
    return DraftTask(
        request_id=request.id,
        tokens=request.tokens,
        shape=shape,
        committed=request.committed,
        pages=request.pages,
        sampling=request.params,
    )
