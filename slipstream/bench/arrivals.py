"""An open loop: requests arrive at random, so many a second, whether others have ended or not.

Arrivals are a Poisson process, as of many users who know nothing of each other. Where a fixed
number in flight (``level.py``) asks how fast a server can be, this asks how it copes with a demand.

1. Warm-up, until the first request has ended and as much time again has passed: by then about as
   many end as arrive, if the server keeps up at all. Then the window opens.
2. Measured. The next N arrivals.
3. Filler. Requests go on arriving until the last measured one ends, which closes the window. What
   still runs then is cut off.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from slipstream.bench.client import Client, Target
from slipstream.bench.lag import LagMeter
from slipstream.bench.level import Progress, note_outcome
from slipstream.bench.prompt_sets import Prompt
from slipstream.bench.samples import LevelRun, Role, Sample
from slipstream.errors import UserError

_MIN_REQUESTS = 30
MOST_IN_FLIGHT = 1000  # more only waste memory and sockets: the server is overwhelmed
_MIN_S = 10.0  # of arrivals: fewer tell little about chance crowds


@dataclass(frozen=True)
class Demand:
    """What arrives: ``rate`` requests per second on average."""

    rate: float
    max_tokens: int
    at_least: int = 0  # measured requests
    seed: int = 0  # the same seed gives the same moments

    @property
    def requests(self) -> int:
        """Measured requests: at least 30, and those of at least ten seconds."""
        return max(_MIN_REQUESTS, round(_MIN_S * self.rate), self.at_least)


class Arrivals:
    """One demand, which others may watch while it is measured."""

    def __init__(
        self,
        target: Target,
        deal: Callable[[], Prompt],
        demand: Demand,
        progress: Progress | None = None,
    ) -> None:
        self.failing: list[str] = []  # errors of the last requests, since one succeeded
        self._target = target
        self._deal = deal
        self._demand = demand
        self._progress = progress
        self._random = random.Random(demand.seed)
        self._run = LevelRun(0, [], 0.0, 0.0, 0.0)
        self._clients: list[Client] = []
        self._idle: list[Client] = []
        self._first_end: float | None = None
        self._sent = self._ended = 0  # measured requests
        self._over = asyncio.Event()
        self._cpu_at_start = 0.0

    @property
    def heard(self) -> float:
        """When the server last sent something; 0 before."""
        return max((client.heard for client in self._clients), default=0.0)

    async def measure(self) -> LevelRun:
        """All of it, once. Failed requests are recorded, never raised.

        Raises ``UserError`` if the server falls behind without end.
        """
        running: set[asyncio.Task[None]] = set()
        try:
            with LagMeter() as self._lag:
                await self._arrive(running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            for client in self._clients:
                client.close()
        return self._run

    async def _arrive(self, running: "set[asyncio.Task[None]]") -> None:
        """Start requests when they are due, until the window is closed."""
        start = due = time.perf_counter()
        while not self._over.is_set():
            if len(running) == MOST_IN_FLIGHT:
                raise UserError(
                    f"the server does not keep up with {self._demand.rate:g} requests per second: "
                    f"{MOST_IN_FLIGHT} are in flight"
                )
            role = self._role(start)
            task = asyncio.create_task(self._send(role))
            running.add(task)
            task.add_done_callback(running.discard)
            due += self._random.expovariate(self._demand.rate)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - time.perf_counter())):
                    await self._over.wait()

    def _role(self, start: float) -> Role:
        now, run = time.perf_counter(), self._run
        if not run.window_start:
            if self._first_end is None or now < start + 2 * (self._first_end - start):
                return "warmup"
            run.window_start, self._cpu_at_start = now, time.process_time()
            self._lag.reset()
        return "measured" if self._sent < self._demand.requests else "filler"

    async def _send(self, role: Role) -> None:
        self._sent += role == "measured"
        client = self._idle.pop() if self._idle else self._new_client()
        try:
            sample = await client.complete(self._deal(), self._demand.max_tokens, role)
        except asyncio.CancelledError:
            if client.sample is not None and client.sample.cut_off:
                self._run.samples.append(client.sample)
            raise
        self._idle.append(client)
        self._note(sample)

    def _new_client(self) -> Client:
        self._clients.append(Client(self._target))
        return self._clients[-1]

    def _note(self, sample: Sample) -> None:
        run = self._run
        run.samples.append(sample)
        note_outcome(self.failing, sample)
        if self._first_end is None:
            self._first_end = sample.end
        if sample.role != "measured":
            return
        self._ended += 1
        if self._ended == self._demand.requests:
            run.window_end = sample.end
            run.client_cpu_s = time.process_time() - self._cpu_at_start
            run.event_loop_lag_s = self._lag.worst_s
            self._over.set()
        if self._progress:
            self._progress(self._ended, self._demand.requests)
