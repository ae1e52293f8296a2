"""How late this process is: a load generator that is itself short of time measures itself."""

import asyncio
from time import perf_counter
from types import TracebackType
from typing import Self

_PERIOD_S = 0.02


class LagMeter:
    """Notes the worst delay of a call that is due every 20 ms, while its block runs.

    A callback that waits for others, or a process that waits for a core, comes late by as much as
    the arrival of a token may have been noticed late.
    """

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer:
            self._timer.cancel()

    def reset(self) -> None:
        """Forget what was seen so far."""
        self.worst_s = 0.0

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_PERIOD_S, self._due, perf_counter() + _PERIOD_S)

    def _due(self, when: float) -> None:
        self.worst_s = max(self.worst_s, perf_counter() - when)
        self._wait()
