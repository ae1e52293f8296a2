"""Servers whose speed is known: what is measured is the truth, and crossovers are found."""

import math

import pytest

from slipstream.verdict.analysis import answers, crossovers, ratio
from slipstream.verdict.configuration import Candidate
from slipstream.verdict.results import Load, Results

from ..bench.fake_server import serving
from ..bench.virtual_time import run as run_virtually
from .test_rounds import run

LEVELS = (1, 2, 4, 8)


def plain(in_flight: int) -> float:
    """Tokens per second of one request: a server whose step takes longer the more it serves."""
    return 100 / (1 + 0.05 * in_flight)


def speculating(in_flight: int) -> float:
    """Faster alone, slower at 8; the same at 4.5 in flight."""
    return plain(in_flight) * 1.5 ** (math.log(4.5 / in_flight) / math.log(4.5))


def measured(monkeypatch: pytest.MonkeyPatch, *loads: Load, rounds: int) -> Results:
    found: list[Results] = []

    async def measure() -> None:
        async with serving(speed=plain) as off, serving(speed=speculating) as on:
            candidates = [Candidate("off", off.url), Candidate("on", on.url)]
            settings = {"max_tokens": 16}
            found.append(
                await run(candidates, list(loads), rounds=rounds, settings=settings, limit_s=None)
            )

    run_virtually(measure, monkeypatch)
    return found[0]


def test_throughput_is_the_true_one_and_the_crossover_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads = [Load(concurrency=level) for level in LEVELS]
    results = measured(monkeypatch, *loads, rounds=2)
    assert not results.failures
    for found in results.measurements:
        level = found.load.concurrency or 0
        truth = level * (plain if found.configuration == "off" else speculating)(level)
        assert found.tok_s == pytest.approx(truth, rel=0.05)
        assert found.in_flight == pytest.approx(level, rel=0.05)
        assert found.itl_s is not None
        assert found.itl_s.p50 == pytest.approx(level / truth, rel=0.05)
    at_one = ratio(results, "on", "off", loads[0])
    assert at_one is not None
    assert at_one.mean == pytest.approx(1.5, rel=0.02)
    (crossover,) = crossovers(results, "on")
    assert 2 < crossover.at < 8
    assert crossover.faster_below
    assert [answer.best[0] for answer in answers(results)][::3] == ["on", "off"]


def test_an_open_loop_has_the_latency_of_its_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rare request is alone; the law of Little says how many are in flight."""
    alone = Load(rate=0.3)
    busy = Load(rate=10.0)
    results = measured(monkeypatch, alone, busy, rounds=1)
    assert not results.failures
    for found in results.measurements:
        assert found.latency_s is not None
        if found.load == alone:
            speed = plain if found.configuration == "off" else speculating
            assert found.latency_s.p50 == pytest.approx(16 / speed(1), rel=0.05)
        else:
            ended = [s for s in found.samples if 0 < s.end <= found.window_s]
            through = len(ended) / found.window_s
            assert found.in_flight == pytest.approx(through * found.latency_s.avg, rel=0.2)
