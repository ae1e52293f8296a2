"""Measuring all configurations, round after round.

A server runs one at a time, with all loads in one launch, and the order of the configurations
reverses from round to round, so that a machine that drifts treats all alike. Side by side, all
servers run all the time and take turns at each load.

What goes wrong with one configuration is recorded, and the others go on. A server that ends, or
is silent for long, is launched again in the next round, once; a load that fails is tried again in
the next round, once.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slipstream.bench.arrivals import Arrivals, Demand
from slipstream.bench.client import RequestForm
from slipstream.bench.level import Level
from slipstream.bench.level import Load as LevelLoad
from slipstream.bench.prompt_sets import Prompt, PromptDeck, numbered
from slipstream.bench.samples import LevelRun
from slipstream.bench.servers import NeverReadyError
from slipstream.bench.statistics import level_stats
from slipstream.errors import UserError
from slipstream.verdict import answers
from slipstream.verdict.analysis import tight_enough
from slipstream.verdict.clock import Clock, Part
from slipstream.verdict.configuration import Candidate
from slipstream.verdict.engines import Identity, drafted, identify
from slipstream.verdict.measurement import measurement, notes
from slipstream.verdict.results import Difference, Failure, Load, Measurement, Results
from slipstream.verdict.serving import Serving, start

ANSWER_TOKENS = 64
"""Length of the answers that are compared."""

_WATCH_S = 0.1
_FAILURES = 20  # in a row, or as many as are in flight, end a load
_FAILED_SHARE = 0.05  # of the measured requests: a load where more fail is not the load it says
_TRIES = 2
_SEED = 0


@dataclass(frozen=True)
class Plan:
    """What to measure. How is in ``Results.settings``."""

    candidates: Sequence[Candidate]  # the baseline first
    prompts: list[Prompt]
    form: RequestForm  # of the requests; the model's name is each candidate's own
    requests: int = 0  # at least so many a load
    answers: int = 8  # prompts whose answers are compared
    silence_s: float = 300.0  # a server that sends nothing for so long hangs
    time_limit_s: float | None = None  # no round starts that would probably end later
    api_key: str | None = None
    tag: str = field(default_factory=lambda: secrets.token_hex(2))  # numbers of other runs differ


class Observer(Protocol):
    """Is told what goes on."""

    def doing(self, what: str, left_s: float | None) -> None:
        """Something begins; about so many seconds are left until the end of all."""

    def waiting(self, reason: str) -> None:
        """The server that was started does not answer yet."""

    def requests(self, ended: int, of: int) -> None:
        """So many measured requests of the load have ended."""

    def found(self, result: Measurement | Failure) -> None:
        """The load is done, or something failed."""


class LoadError(UserError):
    """This load cannot be measured, but the server lives."""


class Rounds:
    """The state of a verdict that is being measured; ``results`` grow in place."""

    def __init__(
        self, plan: Plan, results: Results, observer: Observer, save: Callable[[], None]
    ) -> None:
        """``save`` is called after every change of the results."""
        self._plan = plan
        self._results = results
        self._observer = observer
        self._save = save
        self._clock = Clock()
        self._running: dict[str, Serving] = {}
        self._down: set[str] = set()  # failed in this round
        self._given_up: set[str] = set()
        self._failed_loads: Counter[tuple[str, Load]] = Counter()
        self._failed_launches: Counter[str] = Counter()
        self._identities: dict[str, Identity] = {}
        self._answers: dict[str, list[str]] = {}
        self._notes = _notes_on_prompts(plan, results)  # all that no measurement shows

    async def run(self) -> None:
        """All rounds. Whatever ends it, no server is left running."""
        settings = self._results.settings
        started = time.monotonic()
        try:
            for number in range(settings.rounds):
                visits = self._visits(number)
                if not visits or (number and self._too_late(started, number, visits)):
                    break
                await self._round(number, visits)
            self._results.complete = True
            self._changed()
        finally:
            self._stop_all()

    async def _round(self, number: int, visits: "list[tuple[Candidate, Load]]") -> None:
        settings = self._results.settings
        self._down = set()
        if settings.side_by_side:
            for name in dict.fromkeys(candidate.name for candidate, _ in visits):
                if name not in self._running:
                    self._observer.doing(f"round {number + 1}: starting {name}", None)
                await self._serving(name, number)
        for place, (candidate, load) in enumerate(visits):
            left = self._left_s(number, visits[place:])
            self._observer.doing(f"round {number + 1}: {candidate.name} at {load.label}", left)
            await self._visit(candidate, load, number)
        if not settings.side_by_side:
            self._stop_all()
        if settings.stop_early:
            for load in self._open_loads():
                if reason := tight_enough(self._results, load):
                    self._results.stopped_early[load.label] = reason
        self._changed()

    def _open_loads(self) -> list[Load]:
        results = self._results
        return [load for load in results.loads if load.label not in results.stopped_early]

    def _visits(self, number: int) -> list[tuple[Candidate, Load]]:
        """What a round measures, in its order."""
        order = list(self._plan.candidates)[:: 1 if number % 2 == 0 else -1]
        loads = self._open_loads()
        if self._results.settings.side_by_side:
            pairs = [(candidate, load) for load in loads for candidate in order]
        else:
            pairs = [(candidate, load) for candidate in order for load in loads]
        return [
            (candidate, load)
            for candidate, load in pairs
            if candidate.name not in self._given_up
            and self._failed_loads[candidate.name, load] < _TRIES
        ]

    def _left_s(self, number: int, rest: "list[tuple[Candidate, Load]]") -> float | None:
        left = self._clock.left(_parts(rest))
        later = self._clock.left(_parts(self._visits(number)))
        if left is None or later is None:
            return None
        return left + later * (self._results.settings.rounds - number - 1)

    def _too_late(
        self, started: float, number: int, visits: "list[tuple[Candidate, Load]]"
    ) -> bool:
        """Whether the time limit leaves no room for these visits, which are one more round."""
        limit, spent = self._plan.time_limit_s, time.monotonic() - started
        if limit is None or spent + (self._clock.left(_parts(visits)) or 0.0) <= limit:
            return False
        rounds = "one round" if number == 1 else f"{number} rounds"
        self._notes.append(f"ended after {rounds}, by the time limit")
        return True

    async def _visit(self, candidate: Candidate, load: Load, number: int) -> None:
        """Measure one configuration at one load, or record why not."""
        name = candidate.name
        if name in self._down or (serving := await self._serving(name, number)) is None:
            return
        begun = time.monotonic()
        try:
            found = await self._measure(serving, load, number)
        except LoadError as error:
            self._failed_loads[name, load] += 1
            last = self._failed_loads[name, load] == _TRIES
            self._failed(name, load, number, f"{error}{'; not tried again' if last else ''}")
        except UserError as error:
            self._lost(name, load, number, str(error))
        else:
            self._clock.note((name, load.label), time.monotonic() - begun)
            self._results.measurements.append(found)
            self._changed()
            self._observer.found(found)

    async def _serving(self, name: str, number: int) -> Serving | None:
        """The server of a configuration, started if need be; None if that failed."""
        if name in self._running:
            return self._running[name]
        if not self._results.settings.side_by_side:
            self._stop_all()
        plan, begun = self._plan, time.monotonic()
        candidate = next(found for found in plan.candidates if found.name == name)
        try:
            serving = await start(candidate, plan.form, plan.api_key, self._observer.waiting)
            self._running[name] = serving
            if name not in self._identities:
                await self._meet(serving)
        except UserError as error:
            never = isinstance(error, NeverReadyError)
            self._lost(name, None, number, str(error), give_up=never)
            return None
        if not self._results.settings.side_by_side:  # or it is started this once
            self._clock.note((name, ""), time.monotonic() - begun)
        return serving

    async def _meet(self, serving: Serving) -> None:
        """Note who it is, and what it answers."""
        candidate, target, results = serving.candidate, serving.target, self._results
        name = candidate.name
        identity = await identify(target.endpoint, candidate.engine)
        described = candidate.described(target.form.model, identity.engine, identity.versions)
        place = [found.name for found in results.configurations].index(name)
        results.configurations[place] = described
        self._notes += [f"{name}: {note}" for note in serving.notes]
        try:
            asked = self._plan.prompts[: self._plan.answers]
            length = min(ANSWER_TOKENS, results.settings.max_tokens)
            texts = await answers.ask(target, asked, length, self._plan.silence_s)
            self._answers[name] = texts
        except UserError as error:
            serving.check()
            self._notes.append(f"{name}: its answers could not be compared: {error}")
        self._identities[name] = identity
        results.differences = self._differences()
        self._changed()

    def _differences(self) -> list[Difference]:
        base, prompts = self._plan.candidates[0].name, self._plan.prompts
        if base not in self._answers:
            return []
        return [
            answers.difference(name, base, prompts[: len(texts)], texts, self._answers[base])
            for candidate in self._plan.candidates[1:]
            if (texts := self._answers.get(name := candidate.name))
        ]

    async def _measure(self, serving: Serving, load: Load, number: int) -> Measurement:
        """Raises ``LoadError``, or ``UserError`` if the server is gone."""
        name = serving.candidate.name
        engine, endpoint = self._identities[name].engine, serving.target.endpoint
        before = await drafted(endpoint, engine)
        run = await self._watched(serving, self._level(serving, load, number), load)
        after = await drafted(endpoint, engine)
        serving.check()
        stats = level_stats(run)
        if bad := stats.requests - stats.ok:
            error = next(iter(stats.errors))
            said = f"{bad} of {stats.requests} requests failed, the first: {error}"
            if bad > _FAILED_SHARE * stats.requests:  # fewer are told from the samples
                raise LoadError(said)
        accepted = after.length_since(before) if before and after else None
        return measurement(name, load, number, run, stats, accepted)

    def _level(self, serving: Serving, load: Load, number: int) -> Level | Arrivals:
        settings, plan = self._results.settings, self._plan
        place = self._results.loads.index(load)
        if settings.repeated_prompts:
            deal = PromptDeck(plan.prompts, _SEED + place).deal
        else:
            deck = PromptDeck(plan.prompts, _SEED + number * len(self._results.loads) + place)
            deal = numbered(deck, self._tag(serving.candidate, f"{number}-{place}")).__next__
        length, report = settings.max_tokens, self._observer.requests
        if load.rate is not None:
            seed = number * len(self._results.loads) + place
            demand = Demand(load.rate, length, plan.requests, seed)
            return Arrivals(serving.target, deal, demand, report)
        level = LevelLoad(load.concurrency or 1, length, plan.requests)
        return Level(serving.target, deal, level, report)

    def _tag(self, candidate: Candidate, tag: str) -> str:
        """What its prompts are numbered by: the same for all, unless they share one server."""
        running = [
            c.name for c in self._plan.candidates if not c.command and c.url == candidate.url
        ]
        own = f"-{running.index(candidate.name)}" if len(running) > 1 else ""
        return f"{self._plan.tag}-{tag}{own}"

    async def _watched(self, serving: Serving, level: Level | Arrivals, load: Load) -> LevelRun:
        """Run the level, but not longer than it makes sense."""
        begun = time.perf_counter()
        most = max(_FAILURES, load.concurrency or 0)
        silence_s = max(self._plan.silence_s, 10 / load.rate if load.rate else 0)
        task = asyncio.create_task(level.measure())
        try:
            while not (await asyncio.wait({task}, timeout=_WATCH_S))[0]:
                serving.check()
                if len(level.failing) >= most:
                    last = level.failing[-1]
                    raise LoadError(f"{len(level.failing)} requests in a row failed, last: {last}")
                if time.perf_counter() - max(begun, level.heard) > silence_s:
                    said = f"it hangs: nothing came from it for {silence_s:g} s"
                    raise UserError(said + serving.log_text())
            try:
                return task.result()
            except UserError as error:
                raise LoadError(str(error)) from error
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _lost(
        self, name: str, load: Load | None, number: int, reason: str, *, give_up: bool = False
    ) -> None:
        """A server is gone, or did not come."""
        reason = reason.removeprefix(f"{name}: ")
        self._stop(name)
        self._down.add(name)
        self._failed_launches[name] += 1
        if give_up or self._failed_launches[name] == _TRIES:
            self._given_up.add(name)
            reason = f"given up: {reason}"
        self._failed(name, load, number, reason)

    def _failed(self, name: str, load: Load | None, number: int, reason: str) -> None:
        failure = Failure(name, load, number, reason)
        self._results.failures.append(failure)
        self._changed()
        self._observer.found(failure)

    def _changed(self) -> None:
        self._results.notes = [*dict.fromkeys(self._notes), *notes(self._results)]
        self._save()

    def _stop(self, name: str) -> None:
        if serving := self._running.pop(name, None):
            serving.stop()

    def _stop_all(self) -> None:
        for name in list(self._running):
            self._stop(name)


def _notes_on_prompts(plan: Plan, results: Results) -> list[str]:
    most = max(plan.requests, *(3 * (load.concurrency or 0) for load in results.loads), 30)
    if len(plan.prompts) >= most:
        return []
    said = f"{results.settings.prompts} has {len(plan.prompts)} prompts, fewer than a load sends"
    if results.settings.repeated_prompts:
        return [f"{said}: they repeat, so prefix caches help"]
    return [f"{said}: each comes several times, with another number in front"]


def _parts(visits: "list[tuple[Candidate, Load]]") -> list[Part]:
    return [(candidate.name, load.label) for candidate, load in visits]
