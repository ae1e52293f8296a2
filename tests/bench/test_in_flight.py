"""A load that lasts as long as one wants: how many in flight, what is recorded, what is cut off."""

import asyncio
from collections.abc import Callable

from slipstream.bench.in_flight import InFlight
from slipstream.bench.prompt_sets import PromptDeck
from slipstream.bench.statistics import inter_token_latency_between, tokens_between

from .fake_server import FakeServer, serving
from .test_level import prompts


def load(fake: FakeServer, max_tokens: int) -> InFlight:
    return InFlight(fake.target(), PromptDeck(prompts(1000), seed=1).deal, max_tokens)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def test_exactly_so_many_in_flight_and_first_requests_of_all_lengths() -> None:
    async with asyncio.timeout(60), serving(gate=4) as fake, load(fake, 16) as running:
        running.resize(4)
        await running.steady()
        warm = [sample for sample in running.samples if sample.role == "warmup"]
        while len(running.samples) < 20:
            await asyncio.sleep(0.01)
        assert len(warm) == 4
        assert fake.in_flight_seen.count(4) > 10
        assert max(fake.in_flight_seen) == 4
        assert sorted(body["max_tokens"] for body in fake.bodies[:4]) == [3, 7, 10, 14]
        assert all(sample.error is None for sample in running.samples)


async def test_what_is_cut_off_counts_as_far_as_it_came() -> None:
    async with asyncio.timeout(60), serving(chunk_seconds=0.01) as fake:
        async with load(fake, 100_000) as running:
            running.resize(3)
            await until(lambda: fake.in_flight == 3)
            await asyncio.sleep(1)
        cut = running.samples
    assert len(cut) == 3
    assert all(sample.cut_off and sample.error is None for sample in cut)
    assert all(2 <= sample.events.total() < 1000 for sample in cut)
    end = max(sample.end for sample in cut)
    assert tokens_between(cut, 0, end) == sum(sample.events.total() for sample in cut)
    gaps = inter_token_latency_between(cut, 0, end)
    assert gaps is not None and gaps.p50 > 0


async def test_stepping_load() -> None:
    async with asyncio.timeout(60), serving(chunk_seconds=0.002) as fake:
        async with load(fake, 100_000) as running:
            for concurrency in (1, 9, 2, 5):
                running.resize(concurrency)
                while fake.in_flight != concurrency:
                    await asyncio.sleep(0.01)
        await until(lambda: fake.in_flight == 0)
        assert max(fake.in_flight_seen) == 9
    assert len(running.samples) == 7 + 5  # cut off when the load fell from 9 to 2, and at the end
    assert all(sample.cut_off for sample in running.samples)


async def test_failures_are_recorded() -> None:
    async with asyncio.timeout(60), serving(status=lambda number: 500) as fake:
        async with load(fake, 8) as running:
            running.resize(2)
            await running.steady()
        assert [sample.error for sample in running.samples] == ["HTTP 500: told to fail"] * 2


async def test_latency_of_a_part_of_the_events() -> None:
    async with asyncio.timeout(60), serving() as fake, load(fake, 8) as running:
        running.resize(1)
        await running.steady()
    assert inter_token_latency_between(running.samples, 0, 1e-9) is None
