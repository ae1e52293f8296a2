"""Measuring what steps and drafts cost on this machine, with the engine's own steps.

Of several times the shortest counts: whatever else the machine does only adds to it.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from slipstream.engine.engine import Engine
from slipstream.engine.load import Loaded
from slipstream.engine.messages import Submit
from slipstream.engine.params import SamplingParams, Speculation
from slipstream.errors import UserError
from slipstream.speculation.batch import build_step_batch
from slipstream.speculation.drafter import NO_DRAFT, Draft, Drafter, DraftTask
from slipstream.speculation.policy.cost_model import CostTables, DraftWork
from slipstream.speculation.policy.row_costs import KNOTS, Float64, RowCosts
from slipstream.speculation.tree import TokenTree, TreeShape

MOST_ROWS = 512
ROUNDS = 5
PATIENCE = 1.0  # seconds for one number of rows, in all rounds together
LONGEST_STEP = 2.0  # seconds; what takes longer is not measured, nor what has more rows
EVIDENCE = 20.0  # as many steps' worth as what is learned while serving
SHORT, LONG = 32, 1024  # tokens of context
LEAST_LENGTH = 256  # tokens that a request must be able to have
ATTENTION_ROWS = 32
READERS, READ = 8, 512  # requests that read their contexts, and the tokens of each
REQUESTS = (1, 2, 4, 8, 16, 32, 64)  # that draft together
SHAPES = (TreeShape(1, 1, 2), TreeShape(2, 2, 9), TreeShape(4, 1, 5), TreeShape(4, 4, 25))
_PATTERN = (11, 12, 13, 14)  # what prompts repeat, so that prompt lookup has something to find

FITTING_TURNS = 1000

Times = list[tuple[DraftWork, float]]
Table = list[tuple[int, float, float]]  # rows, seconds, evidence


class Scatter:
    """In a drafter's place: hangs ``nodes`` children below the first request's root, and remembers
    what it was asked."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self.nodes = 0
        self.tasks: list[DraftTask] = []

    def draft(self, tasks: Sequence[DraftTask]) -> list[Draft]:
        self.tasks = list(tasks)
        tokens = [node % self._vocab_size for node in range(self.nodes)]
        first = replace(NO_DRAFT, tokens=tokens, parents=[0] * self.nodes)  # nobody asks for more
        return [first, *[NO_DRAFT] * (len(tasks) - 1)]

    def lag(self, request_id: int, committed: int) -> int:
        return 0

    def forget(self, request_id: int) -> None:
        pass


class Calibration:
    """One run, on what nobody else uses. Raises ``UserError`` for a model too short for it."""

    def __init__(self, loaded: Loaded) -> None:
        if loaded.model.max_model_len < LEAST_LENGTH:
            raise UserError(
                f"calibrating needs requests of at least {LEAST_LENGTH} tokens; here they can have "
                f"{loaded.model.max_model_len}"
            )
        self._scatter = Scatter(loaded.vocab_size)
        self._engine = Engine(
            loaded.model,
            self._scatter,
            pages=loaded.pages,
            max_running_requests=REQUESTS[-1],
            max_step_rows=256,
            max_draft_rows=loaded.max_draft_rows,
            prefix_cache=False,
            speculation=Speculation("fixed", TreeShape(1, MOST_ROWS, MOST_ROWS)),
        )
        self._model = loaded.model
        self._drafter: Drafter = loaded.drafter
        self._longest = loaded.model.max_model_len
        self._prior = loaded.costs.costs
        self._ids = iter(range(1 << 30))

    def run(self) -> CostTables:
        """Measure everything: some seconds, up to a minute."""
        target, attention = self.measure_steps()
        reading = self._measure_reading(attention)
        times, entry = self.measure_drafts()
        drafter, call = fit_passes(times, self._prior.drafter, self._prior.call)
        return CostTables(
            target=_table(target, self._prior.target),
            drafter=drafter,
            attention=attention,
            reading=reading,
            entry=entry,
            call=call,
        )

    def measure_steps(self) -> tuple[dict[int, float], float]:
        """Seconds of steps by their rows; seconds for a row and a token of its context."""
        seconds: dict[int, list[float]] = {}
        self._start(1, SHORT)
        for rows in (rows for rows in KNOTS if rows <= MOST_ROWS):
            # The first one sets memory apart, and tells whether there is time for more.
            took = self._step(rows)
            if took is None or took > LONGEST_STEP:
                break
            seconds[rows] = [took]
        for turn in range(ROUNDS):
            self._start(1, SHORT)
            for rows in sorted(seconds, reverse=bool(turn % 2)):
                if sum(seconds[rows]) < PATIENCE:
                    seconds[rows].append(self._step(rows) or seconds[rows][0])
        found, least = {}, float("inf")
        for rows in sorted(seconds, reverse=True):
            # Neither do fewer rows take longer.
            found[rows] = least = min(least, *seconds[rows])
        return found, self._measure_attention()

    def measure_drafts(self) -> tuple[Times, float]:
        """Seconds of what drafting computes; seconds for a position entered into a ring."""
        tasks = self._start(REQUESTS[-1], SHORT)
        seconds: dict[DraftWork, list[float]] = {}
        for _, requests, shape in product(range(ROUNDS), REQUESTS, SHAPES):
            drafts, took = self._draft(tasks[:requests], shape)
            drafting = sum(bool(draft.tokens) for draft in drafts)
            if drafting:
                work = DraftWork(drafting, (drafting * shape.topk,) * (shape.num_steps - 1))
                seconds.setdefault(work, []).append(took)
        for task in tasks:
            self._drafter.forget(task.request_id)
        times = [(work, min(took)) for work, took in seconds.items()]
        return times, self._measure_entry()

    def _measure_attention(self) -> float:
        contexts, seconds = [], []
        for context in (SHORT, self._fits(LONG)):
            task = self._start(1, context)[0]
            self._step(ATTENTION_ROWS)
            steps = [self._step(ATTENTION_ROWS) for _ in range(ROUNDS)]
            seconds.append(min([took for took in steps if took is not None], default=0.0))
            contexts.append(task.committed)
        more = ATTENTION_ROWS * (contexts[1] - contexts[0])
        longer = seconds[1] - seconds[0]
        return longer / more if longer > 0 and more > 0 else self._prior.attention

    def _measure_reading(self, attention: float) -> float:
        contexts, seconds = [], []
        for context in (SHORT, self._fits(READ)):
            tasks = self._start(READERS, context)
            steps = [self._step(1, READERS) for _ in range(1 + ROUNDS)][1:]
            seconds.append(min([took for took in steps if took is not None], default=0.0))
            contexts.append(tasks[0].committed)
        more = READERS * (contexts[1] - contexts[0])
        reading = (seconds[1] - seconds[0]) / more - attention if more > 0 else 0.0
        return reading if reading > 0 else self._prior.reading

    def _measure_entry(self) -> float:
        task = self._start(1, self._fits(LONG))[0]
        self._draft([task], SHAPES[0])
        behind, up = [], []
        for _ in range(ROUNDS):
            self._drafter.forget(task.request_id)
            entered = self._drafter.lag(task.request_id, task.committed) - 1
            behind.append(self._draft([task], SHAPES[0])[1])
            up.append(self._draft([task], SHAPES[0])[1])
        self._drafter.forget(task.request_id)
        longer = min(behind) - min(up)
        return longer / entered if entered > 0 and longer > 0 else self._prior.entry

    def _fits(self, context: int) -> int:
        return max(1, min(context, self._longest // 2))

    def _start(self, requests: int, context: int) -> list[DraftTask]:
        """Have so many requests decode, in place of those before; what their drafter is asked."""
        engine, scatter = self._engine, self._scatter
        for task in scatter.tasks:
            engine.cancel(task.request_id)
        scatter.nodes, scatter.tasks = 0, []
        prompt = [_PATTERN[place % len(_PATTERN)] for place in range(self._fits(context))]
        params = SamplingParams(max_tokens=self._longest - len(prompt), temperature=0)
        for _ in range(requests):
            engine.submit(Submit(next(self._ids), prompt, params))
        for _ in range(2 * requests * (1 + len(prompt) // 256)):
            if len(scatter.tasks) == requests:
                break
            engine.step()
        # Their prompts are known now, and one more step makes each of them a root and no more.
        engine.step()
        return scatter.tasks

    def _step(self, rows: int, requests: int = 1) -> float | None:
        """Seconds of a step of so many rows of the first request, and one of each other; None if
        there is no room for them."""
        self._scatter.nodes = rows - 1
        before = self._engine.stats().rows_total
        started = time.perf_counter()
        self._engine.step()
        took = time.perf_counter() - started
        made = self._engine.stats().rows_total - before
        return took if made == rows + requests - 1 else None

    def _draft(self, tasks: list[DraftTask], shape: TreeShape) -> tuple[list[Draft], float]:
        # A step before, as there is when serving: it drives the drafter out of the caches.
        root = TokenTree.chain(tasks[0].tokens[-1:])
        self._model.forward(build_step_batch(tasks[:1], [root], [True]))
        asked = [
            DraftTask(
                task.request_id, task.tokens, shape, task.committed, task.pages, task.sampling
            )
            for task in tasks
        ]
        started = time.perf_counter()
        drafts = self._drafter.draft(asked)
        return drafts, time.perf_counter() - started


def _table(measured: dict[int, float], prior: RowCosts) -> Table:
    """Measured seconds at their rows, and beyond them what was expected, in proportion."""
    last = max(measured)
    ratio = measured[last] / prior.at(last)
    beyond = [(rows, ratio * prior.at(rows), 0.0) for rows in KNOTS if rows not in measured]
    return sorted([(rows, took, EVIDENCE) for rows, took in measured.items()] + beyond)


def fit_passes(times: Times, prior: RowCosts, call: float) -> tuple[Table, float]:
    """Seconds of one pass of the drafter by its rows, and of a draft beside them, which is
    ``call`` where nothing was measured, such that each draft adds up.

    Found at each doubling of rows by the updates of Lee and Seung, "Learning the Parts of Objects
    by Non-negative Matrix Factorization" (1999), which keep seconds positive.
    """
    doublings = np.arange(0.0, np.log2(KNOTS[-1]) + 1)
    # How many passes of 1, 2, 4, ... rows a draft has, and itself, in units of its own time.
    passes = np.zeros((len(times), len(doublings) + 1))
    for index, (work, seconds) in enumerate(times):
        places = np.log2([work.first, *work.deeper])
        near = np.maximum(0.0, 1.0 - abs(doublings - places[:, None]))
        passes[index] = np.append(near.sum(axis=0), 1.0) / seconds
    if not times:
        return [(rows, prior.at(rows), 0.0) for rows in KNOTS], call
    met = np.any(passes > 0, axis=0)
    passes, known = passes[:, met], doublings[met[:-1]]
    found = np.array([*(prior.at(int(rows)) for rows in 2**known), call])
    for _ in range(FITTING_TURNS):
        found *= passes.T @ (1.0 / (passes @ found)) / passes.sum(axis=0)
    return [_fitted(rows, known, found[:-1], prior) for rows in KNOTS], float(found[-1])


def _fitted(rows: int, known: Float64, found: Float64, prior: RowCosts) -> tuple[int, float, float]:
    last = 2 ** int(known[-1])
    if rows > last:
        return rows, float(found[-1]) * prior.at(rows) / prior.at(last), 0.0
    return rows, float(np.exp(np.interp(np.log2(rows), known, np.log(found)))), EVIDENCE
