"""What one level sends: how many requests, how long, how many at a time, in which order."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from slipstream.bench.level import Load, run_level, warmup_length
from slipstream.bench.prompt_sets import Prompt, PromptDeck
from slipstream.bench.samples import LevelRun
from slipstream.bench.statistics import level_stats

from .fake_server import FakeServer, serving


def prompts(count: int) -> list[Prompt]:
    return [[{"role": "user", "content": f"Prompt {number}"}] for number in range(count)]


async def measure(fake: FakeServer, load: Load, **form: Any) -> LevelRun:
    """One level; opens the server's gate when the last measured request has ended."""
    tasks = set()

    def progress(ended: int, requests: int) -> None:
        if ended == requests:
            tasks.add(asyncio.create_task(fake.open_gate()))

    deck = PromptDeck(prompts(1000), seed=1)
    async with asyncio.timeout(30):  # a gate that never opens is a failure, not a hang
        return await run_level(fake.target(**form), deck, load, progress, pause_after_failure_s=0)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("concurrency", [1, 2, 7, 20])
async def test_exactly_so_many_in_flight_until_the_last_measured_one_ends(
    concurrency: int, stream: bool
) -> None:
    """The server lets an answer end only while exactly that many requests are in flight."""
    async with serving(gate=concurrency) as fake:
        run = await measure(fake, Load(concurrency, max_tokens=12), stream=stream)
    requests = max(30, 3 * concurrency)
    assert max(fake.in_flight_seen) == concurrency
    assert fake.in_flight == 0
    assert len(run.of_role("measured")) == requests
    assert len(fake.bodies) == len(run.samples)
    assert all(sample.error is None for sample in run.samples)
    if concurrency > 1:
        assert run.of_role("filler")


async def test_warm_up_spreads_lengths_and_hands_over_without_draining() -> None:
    async with serving(gate=8) as fake:
        run = await measure(fake, Load(8, max_tokens=16))
    lengths = [body["max_tokens"] for body in fake.bodies]
    assert sorted(lengths[:8]) == [warmup_length(slot, 8, 16) for slot in range(8)]
    assert lengths.count(16) >= 30
    assert all(1 <= length <= 16 for length in lengths)
    # Warm-up requests still run when the first measured one is sent, and after the window opens.
    first = min(sample.start for sample in run.of_role("measured"))
    assert any(sample.end > first for sample in run.of_role("warmup"))


async def test_measured_requests_lie_within_the_window() -> None:
    async with serving() as fake:
        run = await measure(fake, Load(5, max_tokens=6))
    measured = run.of_role("measured")
    assert run.window_start <= min(sample.start for sample in measured)
    assert run.window_end == max(sample.end for sample in measured)
    fillers = run.of_role("filler")
    assert all(sample.start <= run.window_end for sample in fillers)


async def test_fillers_are_no_longer_than_what_is_left_of_the_measured() -> None:
    async with serving(gate=4, chunk_seconds=0.001) as fake:
        run = await measure(fake, Load(4, max_tokens=40))
    fillers = sum(sample.events.total() for sample in run.of_role("filler"))
    assert fillers < 40 * len(run.of_role("filler"))


async def test_at_least_raises_the_number_of_requests() -> None:
    assert (Load(1, 8).requests, Load(50, 8).requests, Load(2, 8, 45).requests) == (30, 150, 45)
    async with serving() as fake:
        run = await measure(fake, Load(2, max_tokens=2, at_least=45))
    assert len(run.of_role("measured")) == 45


async def test_prompts_are_distinct() -> None:
    async with serving() as fake:
        await measure(fake, Load(6, max_tokens=3))
    texts = [body["messages"][0]["content"] for body in fake.bodies]
    assert len(set(texts)) == len(texts)


async def test_failures_are_counted_and_do_not_stop_the_level() -> None:
    def status(number: int) -> int:
        return {0: 500, 1: 429}.get(number % 10, 200)

    def fault(number: int) -> Any:
        return "die" if number % 10 == 2 else None

    async with serving(status=status, fault=fault) as fake:
        run = await measure(fake, Load(1, max_tokens=4))
    stats = level_stats(run)
    assert (stats.requests, stats.ok) == (30, 21)
    assert stats.errors == {
        "HTTP 500: told to fail": 3,
        "HTTP 429: told to fail": 3,
        "the server closed the connection": 3,
    }
    assert stats.output_tokens == 21 * 4
    assert (stats.unmeasured, stats.unmeasured_failed) == (1, 1)


async def test_failures_among_many_are_all_recorded() -> None:
    async with serving(status=lambda number: 500 if number % 4 == 0 else 200) as fake:
        run = await measure(fake, Load(6, max_tokens=4))
    failed = sum(sample.error is not None for sample in run.samples)
    assert failed == (len(fake.bodies) + 3) // 4
    stats = level_stats(run)
    assert stats.requests == 30
    assert failed == stats.requests - stats.ok + stats.unmeasured_failed


async def test_a_server_that_fails_always() -> None:
    async with serving(status=lambda _: 503) as fake:
        run = await measure(fake, Load(2, max_tokens=4))
    stats = level_stats(run)
    assert (stats.requests, stats.ok, stats.throughput_tok_s) == (30, 0, 0.0)
    assert stats.latency_s is None


async def test_cancelling_leaves_nothing_in_flight() -> None:
    async with serving(chunk_seconds=0.01) as fake:
        task = asyncio.create_task(measure(fake, Load(3, max_tokens=100_000)))
        while fake.in_flight < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while fake.in_flight:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("concurrency", "max_tokens"), [(1, 64), (2, 1), (10, 512), (250, 64)])
def test_warm_up_lengths_divide_the_range_evenly(concurrency: int, max_tokens: int) -> None:
    lengths = [warmup_length(slot, concurrency, max_tokens) for slot in range(concurrency)]
    assert all(1 <= length <= max_tokens for length in lengths)
    mean = sum(lengths) / concurrency
    assert mean == pytest.approx((1 + max_tokens) / 2, abs=0.5)
    gaps = [later - earlier for earlier, later in pairwise(lengths)]
    assert not gaps or max(gaps) - min(gaps) <= 1
