"""One level of a sweep: exactly so many requests in flight, from warm-up to the last measured one.

Each of the C slots sends one request after the other, so C are in flight until the level is over.

1. Warm-up. The first requests have lengths spread evenly over 1..max, so that the slots do not
   move in lockstep; a slot whose first request has ended goes on with full ones. When every
   slot's first request has ended, ages and contexts are mixed as they stay: the steady window
   opens.
2. Measured. The next N requests to be sent, by whichever slot is free: nothing drains in between.
3. Filler. Slots with no measured request left to send keep up the load until the last measured
   request ends, which closes the window. A filler is as long as the longest remainder of a measured
   request, so that little is left over to run out after the window.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from slipstream.bench.client import Client, Target
from slipstream.bench.lag import LagMeter
from slipstream.bench.prompt_sets import Prompt, PromptDeck
from slipstream.bench.samples import LevelRun, Role, Sample

_PAUSE_AFTER_FAILURE_S = 0.25  # a server that turns requests away is not flooded with them

Progress = Callable[[int, int], None]
"""Takes how many measured requests have ended, and how many there will be."""


@dataclass(frozen=True)
class Load:
    """What to send at one level."""

    concurrency: int
    max_tokens: int
    at_least: int = 30  # measured requests

    @property
    def requests(self) -> int:
        """Measured requests: enough that each slot sends three on average."""
        return max(30, 3 * self.concurrency, self.at_least)


def warmup_length(slot: int, concurrency: int, max_tokens: int) -> int:
    """Output tokens of a slot's first request: the slots' lengths divide 1..max evenly."""
    return 1 + round((max_tokens - 1) * (slot + 0.5) / concurrency)


def note_outcome(failing: list[str], sample: Sample) -> None:
    """Keep the errors of the requests that have failed one after the other."""
    if sample.error is None:
        failing.clear()
    else:
        failing.append(sample.error)


async def run_level(
    target: Target,
    deck: PromptDeck,
    load: Load,
    progress: Progress | None = None,
    pause_after_failure_s: float = _PAUSE_AFTER_FAILURE_S,
) -> LevelRun:
    """Measure one level. Failed requests are recorded, never raised."""
    return await Level(target, deck.deal, load, progress, pause_after_failure_s).measure()


@dataclass
class _Slot:
    index: int
    client: Client
    measuring: bool = False


class Level:
    """One level, which others may watch while it is measured."""

    def __init__(
        self,
        target: Target,
        deal: Callable[[], Prompt],
        load: Load,
        progress: Progress | None = None,
        pause_after_failure_s: float = _PAUSE_AFTER_FAILURE_S,
    ) -> None:
        self.failing: list[str] = []  # errors of the last requests, since one succeeded
        self._slots = [_Slot(index, Client(target)) for index in range(load.concurrency)]
        self._run = LevelRun(load.concurrency, [], 0.0, 0.0, 0.0)
        self._deal = deal
        self._load = load
        self._progress = progress
        self._pause_s = pause_after_failure_s
        self._warm = 0  # slots whose first request has ended
        self._sent = 0  # measured requests
        self._ended = 0
        self._cpu_at_start = 0.0

    @property
    def heard(self) -> float:
        """When the server last sent something; 0 before."""
        return max(slot.client.heard for slot in self._slots)

    async def measure(self) -> LevelRun:
        """The whole level, once. Failed requests are recorded, never raised."""
        try:
            with LagMeter() as self._lag:
                async with asyncio.TaskGroup() as group:
                    for slot in self._slots:
                        group.create_task(self._keep_busy(slot))
        finally:
            for slot in self._slots:
                slot.client.close()
        return self._run

    async def _keep_busy(self, slot: _Slot) -> None:
        """Send requests from one slot until the level is over."""
        load = self._load
        length = warmup_length(slot.index, load.concurrency, load.max_tokens)
        first = await self._send(slot, "warmup", length)
        self._warm += 1
        if self._warm == load.concurrency:
            self._run.window_start = first.end
            self._cpu_at_start = time.process_time()
            self._lag.reset()
        await self._pause_after(first)
        while role := self._next_role():
            length = self._longest_remainder() if role == "filler" else load.max_tokens
            await self._pause_after(await self._send(slot, role, length))

    def _next_role(self) -> Role | None:
        if self._warm < self._load.concurrency:
            return "warmup"
        if self._sent < self._load.requests:
            return "measured"
        return "filler" if self._ended < self._load.requests else None

    def _longest_remainder(self) -> int:
        received = [slot.client.received for slot in self._slots if slot.measuring]
        return max(1, self._load.max_tokens - min(received, default=0))

    async def _send(self, slot: _Slot, role: Role, max_tokens: int) -> Sample:
        slot.measuring = role == "measured"
        self._sent += slot.measuring
        sample = await slot.client.complete(self._deal(), max_tokens, role)
        self._run.samples.append(sample)
        note_outcome(self.failing, sample)
        if slot.measuring:
            slot.measuring = False
            self._ended += 1
            if self._ended == self._load.requests:
                self._run.window_end = sample.end
                self._run.client_cpu_s = time.process_time() - self._cpu_at_start
                self._run.event_loop_lag_s = self._lag.worst_s
            if self._progress:
                self._progress(self._ended, self._load.requests)
        return sample

    async def _pause_after(self, sample: Sample) -> None:
        if sample.error is not None:
            await asyncio.sleep(self._pause_s)
