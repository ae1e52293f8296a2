"""A load that lasts as long as its user wants: exactly so many requests in flight.

Where a level of ``slipstream bench`` ends after so many requests (``level.py``), this one ends when
it is left, and may change its size while it runs.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from slipstream.bench.client import Client, Target
from slipstream.bench.level import warmup_length
from slipstream.bench.prompt_sets import Prompt
from slipstream.bench.samples import Sample

_PAUSE_AFTER_FAILURE_S = 0.25  # a server that turns requests away is not flooded with them


class InFlight:
    """Keeps exactly so many requests in flight until the block ends.

        async with InFlight(target, deck.deal, max_tokens=128) as load:
            load.resize(30)
            await load.steady()
            ...  # the steady window

    Each slot's first request is shorter than the others, by a length of its own, so that slots that
    start together do not move in lockstep. What the end or a smaller size cuts off is recorded as
    far as it has come, and the server is told by a closed connection.
    """

    def __init__(self, target: Target, deal: Callable[[], Prompt], max_tokens: int) -> None:
        self.samples: list[Sample] = []  # in the order in which they ended
        self._target = target
        self._deal = deal
        self._max_tokens = max_tokens
        self._tasks: list[asyncio.Task[None]] = []  # one a slot
        self._warm: list[asyncio.Event] = []  # of each slot: its first request has ended
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.resize(0)
        await self._group.__aexit__(kind, error, trace)

    def resize(self, concurrency: int) -> None:
        """From now on ``concurrency`` requests are in flight."""
        for task in self._tasks[concurrency:]:
            task.cancel()
        del self._tasks[concurrency:], self._warm[concurrency:]
        for slot in range(len(self._tasks), concurrency):
            length = warmup_length(slot, concurrency, self._max_tokens)
            warm = asyncio.Event()
            self._warm.append(warm)
            self._tasks.append(self._group.create_task(self._keep_busy(length, warm)))

    async def steady(self) -> None:
        """Wait until ages and contexts are mixed as they stay: all first requests have ended."""
        for warm in self._warm.copy():
            await warm.wait()

    async def _keep_busy(self, length: int, warm: asyncio.Event) -> None:
        client = Client(self._target)
        try:
            while True:
                sample = await client.complete(
                    self._deal(), length, "measured" if warm.is_set() else "warmup"
                )
                self.samples.append(sample)
                warm.set()
                length = self._max_tokens
                if sample.error is not None:
                    await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)
        finally:
            if client.sample is not None and client.sample.cut_off:
                self.samples.append(client.sample)
            client.close()
