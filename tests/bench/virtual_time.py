"""An event loop whose clock jumps: servers of known speed, measured exactly and without waiting."""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

import pytest


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for a time-out it moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().select(None)
        events = super().select(0)  # what was sent within this process is there already
        if not events:
            self.now += timeout
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time passes only while nothing can be done."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(test: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a coroutine function on such a loop, with the load generator's clock set to it."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        for module in ("client", "http", "lag"):
            monkeypatch.setattr(f"slipstream.bench.{module}.perf_counter", loop.time)
        monkeypatch.setattr("time.perf_counter", loop.time)
        runner.run(test())
