"""The open loop: what arrives, in which role, and when it ends."""

import asyncio
import time
from typing import Any

import pytest

from slipstream.bench.arrivals import Arrivals, Demand
from slipstream.bench.lag import LagMeter
from slipstream.bench.prompt_sets import PromptDeck, numbered
from slipstream.bench.samples import LevelRun
from slipstream.bench.statistics import level_stats, mean_in_flight
from slipstream.errors import UserError

from .fake_server import FakeServer, serving
from .test_level import prompts

FAST = Demand(400, max_tokens=4)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bench.arrivals._MIN_S", 0.25)


async def measure(fake: FakeServer, demand: Demand, **form: Any) -> LevelRun:
    deal = numbered(PromptDeck(prompts(10), seed=1), "x").__next__
    async with asyncio.timeout(30):
        return await Arrivals(fake.target(**form), deal, demand).measure()


async def test_what_is_sent() -> None:
    async with serving(chunk_seconds=0.002) as fake:
        run = await measure(fake, FAST)
        while fake.in_flight:  # what was cut off
            await asyncio.sleep(0.01)
    measured = run.of_role("measured")
    assert len(measured) == FAST.requests == 100
    assert run.of_role("warmup")
    assert all(sample.error is None for sample in run.samples)
    assert run.window_start <= min(sample.start for sample in measured)
    assert run.window_end == max(sample.end for sample in measured)
    texts = [body["messages"][0]["content"] for body in fake.bodies]
    assert len(set(texts)) == len(texts)
    stats = level_stats(run)
    assert stats.ok == len(measured)
    assert stats.throughput_tok_s > 0
    assert mean_in_flight(run.samples, run.window_start, run.window_end) > 0


def test_at_least_thirty_requests_and_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert Demand(0.5, 8).requests == 30
    assert Demand(20, 8).requests == 200
    assert Demand(1, 8, at_least=50).requests == 50


async def test_the_same_seed_gives_the_same_moments() -> None:
    """As far as a clock can tell: the gaps that were drawn are equal."""
    draws = []
    for _ in range(2):
        arrivals = Arrivals(FakeServer(url="http://h:1").target(), list, Demand(5, 8, seed=3))
        draws.append([arrivals._random.expovariate(5) for _ in range(10)])
    assert draws[0] == draws[1]


async def test_failures_are_counted_in_a_row() -> None:
    async with serving(status=lambda number: 500 if number % 2 else 200) as fake:
        run = await measure(fake, FAST)
    failed = [sample for sample in run.of_role("measured") if sample.error is not None]
    assert 0 < len(failed) < len(run.of_role("measured"))


async def test_a_server_that_falls_behind_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bench.arrivals.MOST_IN_FLIGHT", 20)
    async with serving(gate=10_000) as fake:
        with pytest.raises(UserError, match="does not keep up with 200 requests per second: 20"):
            await measure(fake, Demand(200, max_tokens=2))
        await fake.open_gate()


async def test_cancelling_leaves_nothing_in_flight() -> None:
    async with serving(chunk_seconds=0.01) as fake:
        task = asyncio.create_task(measure(fake, Demand(100, max_tokens=100_000)))
        while fake.in_flight < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while fake.in_flight:
            await asyncio.sleep(0.01)


async def test_an_event_loop_that_is_held_up_is_noticed() -> None:
    with LagMeter() as lag:
        await asyncio.sleep(0.05)
        time.sleep(0.2)
        await asyncio.sleep(0.05)
        assert lag.worst_s >= 0.1
        lag.reset()
        assert lag.worst_s == 0
