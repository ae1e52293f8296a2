"""The step loop of a simulated engine, around the very policies that drive the real one."""

from dataclasses import dataclass, field
from itertools import count, zip_longest

import numpy as np
from numpy.typing import NDArray

from slipstream.simulator.drafts import UNDRAFTED, Guess, expected_length, guess, walk
from slipstream.simulator.machine import Machine
from slipstream.simulator.workload import Prompt, Steps, Workload, at
from slipstream.speculation.drafter import NO_DRAFT, Draft
from slipstream.speculation.policy.adaptive import AdaptivePolicy
from slipstream.speculation.policy.settings import Speculation
from slipstream.speculation.policy.static import static_shape
from slipstream.speculation.policy.step import Speculating, Taken
from slipstream.speculation.tree import TreeShape

RING = 512  # positions that a drafter can lack
JUST_ENTERED = 8  # positions that the first level takes along


@dataclass(slots=True)
class Request:
    """One request in flight. ``entered`` is how far its drafter has read."""

    id: int
    prompt: int
    output: int
    log_odds: float
    sampled: bool
    extra: bool = False  # beside those that the load keeps in flight
    committed: int = 0
    emitted: int = 0
    entered: int = 0

    @property
    def pending(self) -> int:
        """Known tokens that are not computed yet."""
        return self.prompt + self.emitted - self.committed

    @property
    def lag(self) -> int:
        return min(self.committed - self.entered, RING)


@dataclass(slots=True)
class Trace:
    """What each step did, in order."""

    ends: list[float] = field(default_factory=list)  # seconds since the start
    tokens: list[int] = field(default_factory=list)
    expected: list[float] = field(default_factory=list)  # tokens, on average over what is accepted
    requests: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)  # nodes
    kept: list[int] = field(default_factory=list)
    drafting: list[float] = field(default_factory=list)  # seconds

    def rate(self, start: float = 0.0, end: float = float("inf")) -> float:
        """Expected tokens per second of the steps that end between two times: with less chance in
        it than in the tokens themselves."""
        inside = self._inside(start, end)
        if not inside.any():
            return 0.0
        last = np.array(self.ends)[inside].max()
        return float(np.array(self.expected)[inside].sum() / (last - start))

    def mean(self, values: list[int], start: float = 0.0, end: float = float("inf")) -> float:
        """Of one of the lists, over the same steps."""
        inside = self._inside(start, end)
        return float(np.array(values)[inside].mean()) if inside.any() else 0.0

    def _inside(self, start: float, end: float) -> NDArray[np.bool_]:
        ends = np.array(self.ends)
        inside: NDArray[np.bool_] = (ends > start) & (ends <= end)
        return inside


@dataclass(slots=True)
class Work:
    """What a request does in one step."""

    request: Request
    count: int  # known tokens that are computed

    @property
    def reaches_end(self) -> bool:
        return self.count == self.request.pending


class Simulation:
    """A machine under a workload. Time is only what the machine's numbers say."""

    def __init__(
        self,
        machine: Machine,
        workload: Workload,
        speculation: Speculation,
        policy: AdaptivePolicy,
        *,
        pace: Steps[float] = ((0.0, 1.0),),
        seed: int = 0,
    ) -> None:
        """``policy`` decides where ``speculation`` is adaptive; ``pace`` is how many times as long
        everything takes."""
        self.now = 0.0
        self.trace = Trace()
        self._machine, self._workload = machine, workload
        self._speculation, self._policy = speculation, policy
        self._pace = pace
        # The same requests for any speculation, whenever the extra ones come among the others.
        self._texts = np.random.default_rng([seed, 1])
        self._extra_texts = np.random.default_rng([seed, 3])
        self._random = np.random.default_rng([seed, 2])
        self._running: list[Request] = []
        self._begun = 0  # of the closed loop
        self._extra: list[Prompt] = sorted(workload.extra, key=lambda prompt: prompt.at)
        self._ids = count()

    def run(self, seconds: float) -> Trace:
        """Until that time, or until all requests have ended."""
        while self.now < seconds:
            self._arrive()
            if self._running:
                self._step()
            elif (later := self._next_arrival()) is not None:
                self.now = later
            else:
                break
        return self.trace

    def _arrive(self) -> None:
        workload = self._workload
        load = at(workload.load, self.now)
        looping = [request for request in self._running if not request.extra]
        missing = load - len(looping)
        if workload.requests:
            missing = min(missing, workload.requests - self._begun)
        for _ in range(missing):
            prompt = int(self._texts.integers(workload.prompt[0], workload.prompt[1] + 1))
            output = int(self._texts.integers(workload.output[0], workload.output[1] + 1))
            emitted = int(self._texts.integers(output))
            self._begin(prompt, output, extra=False)
            if workload.staggered and not self.trace.ends:
                self._running[-1].emitted = emitted
                self._running[-1].committed = prompt + emitted - 1
            self._begun += 1
        if workload.cancels:
            for request in looping[load:]:
                self._end(request)
        while self._extra and self._extra[0].at <= self.now:
            extra = self._extra.pop(0)
            self._begin(extra.prompt, extra.output, extra=True)

    def _begin(self, prompt: int, output: int, extra: bool) -> None:
        machine, texts = self._machine, self._extra_texts if extra else self._texts
        log_odds = float(texts.normal(0.0, machine.between_requests))
        sampled = bool(texts.random() < self._workload.sampled)
        request = Request(next(self._ids), prompt, output, log_odds, sampled, extra)
        self._running.append(request)

    def _end(self, request: Request) -> None:
        self._running.remove(request)
        self._policy.forget(request.id)

    def _next_arrival(self) -> float | None:
        if self._workload.requests and self._begun >= self._workload.requests:
            starts = []
        else:
            starts = [start for start, load in self._workload.load if load and start > self.now]
        starts += [prompt.at for prompt in self._extra[:1]]
        return min(starts, default=None)

    def _schedule(self) -> list[Work]:
        """Requests that decode get their row, prompts share what is left, first come first served,
        as the engine does it."""
        decoding = sum(request.pending == 1 for request in self._running)
        rows = max(self._workload.max_step_rows - decoding, 32)
        works = []
        for request in self._running:
            if request.pending == 1:
                works.append(Work(request, 1))
            elif rows:
                works.append(Work(request, min(request.pending, rows)))
                rows -= works[-1].count
        return works

    def _step(self) -> None:
        works = self._schedule()
        ending = [work for work in works if work.reaches_end]
        known = sum(work.count for work in works)
        shapes = self._shapes(works, ending)
        guesses, drafting = self._draft(ending, shapes)
        drafts = [each.draft for each in guesses]
        if self._speculation.mode == "adaptive":
            drafts = self._policy.prune(drafts, known - len(ending))
        nodes = {id(work): len(draft.tokens) for work, draft in zip(ending, drafts, strict=True)}
        emitted = [
            walk(draft, each.truth)[: work.request.output - work.request.emitted]
            for work, draft, each in zip(ending, drafts, guesses, strict=True)
        ]
        rows = np.array([work.count + nodes.get(id(work), 0) for work in works], dtype=np.float64)
        contexts = np.array([work.request.committed + work.count / 2 for work in works])
        pace = at(self._pace, self.now) * np.exp(self._random.normal(0.0, self._machine.jitter))
        drafting = drafting * pace
        seconds = self._machine.step(rows, contexts, len(ending)) * pace
        self.now += drafting + seconds
        if self._speculation.mode == "adaptive":
            taken = Taken(int(rows.sum()), float(rows @ contexts), drafting, seconds)
            self._policy.observe(emitted, taken)
        self._note(ending, emitted, drafts, sum(len(each.draft.tokens) for each in guesses))
        self.trace.drafting.append(drafting)
        self._commit(works, ending, emitted)

    def _shapes(self, works: list[Work], ending: list[Work]) -> list[TreeShape | None]:
        if self._speculation.mode == "adaptive":
            if self._policy.rests(len(ending)):
                return [None] * len(ending)
            requests = [_speculating(work) for work in ending]
            known = sum(work.count for work in works)
            return self._policy.plan(requests, known - len(requests))
        share = 1 + self._workload.most_draft_rows // max(len(ending), 1)
        shapes = [static_shape(self._speculation, len(ending), _remaining(work)) for work in ending]
        return [shape and shape.within(share) for shape in shapes]

    def _draft(
        self, ending: list[Work], shapes: list[TreeShape | None]
    ) -> tuple[list[Guess], float]:
        """What is drafted for each work, and how long that takes."""
        guesses = [Guess(NO_DRAFT, [UNDRAFTED])] * len(ending)
        drafting = [(i, shape) for i, shape in enumerate(shapes) if shape is not None]
        if not drafting:
            return guesses, 0.0
        text = at(self._workload.text, self.now)
        for shape in dict.fromkeys(shape for _, shape in drafting):
            places = [i for i, own in drafting if own == shape]
            requests = [ending[i].request for i in places]
            log_odds = np.array([request.log_odds + text for request in requests])
            sampled = np.array([request.sampled for request in requests])
            found = guess(self._machine, shape, log_odds, sampled, self._random)
            for i, own in zip(places, found, strict=True):
                guesses[i] = own
        lags = [ending[i].request.lag for i, _ in drafting]
        for i, _ in drafting:
            ending[i].request.entered = ending[i].request.committed
        levels = [float(sum(min(max(lag, 1), JUST_ENTERED) for lag in lags))]
        expanded = zip_longest(*(guesses[i].expanded for i, _ in drafting), fillvalue=0)
        levels += [float(rows) for rows in map(sum, expanded) if rows]
        entered = float(sum(max(lag - JUST_ENTERED, 0) for lag in lags))
        return guesses, self._machine.draft(levels, entered)

    def _note(
        self,
        ending: list[Work],
        emitted: list[list[int]],
        drafts: list[Draft],
        drafted: int,
    ) -> None:
        trace = self.trace
        trace.ends.append(self.now)
        trace.tokens.append(sum(map(len, emitted)))
        trace.expected.append(
            sum(
                expected_length(draft, self._machine.truth_of(work.request.sampled))
                for work, draft in zip(ending, drafts, strict=True)
            )
        )
        trace.requests.append(len(ending))
        trace.drafted.append(drafted)
        trace.kept.append(sum(len(draft.tokens) for draft in drafts))

    def _commit(self, works: list[Work], ending: list[Work], emitted: list[list[int]]) -> None:
        for work in works:
            work.request.committed += work.count
        for work, tokens in zip(ending, emitted, strict=True):
            request = work.request
            request.committed += len(tokens) - 1
            request.emitted += len(tokens)
            if request.emitted >= request.output:
                self._end(request)


def _remaining(work: Work) -> int:
    """Tokens that may still be emitted; a prompt's last chunk has nothing yet to draft on."""
    return work.request.output - work.request.emitted if work.count == 1 else 1


def _speculating(work: Work) -> Speculating:
    request = work.request
    lag = request.lag if work.count == 1 else 0
    return Speculating(request.id, request.committed, _remaining(work), request.sampled, lag)


def simulate(
    machine: Machine,
    workload: Workload,
    speculation: Speculation,
    seconds: float,
    *,
    policy: AdaptivePolicy | None = None,
    pace: Steps[float] = ((0.0, 1.0),),
    seed: int = 0,
) -> Trace:
    """A whole run. ``policy`` starts with the machine's first guess if none is given."""
    from slipstream.speculation.policy.cost_model import CostModel

    policy = policy or AdaptivePolicy(CostModel(machine.first_guess()), workload.most_draft_rows)
    return Simulation(machine, workload, speculation, policy, pace=pace, seed=seed).run(seconds)
