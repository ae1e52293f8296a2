"""The numbers, against values worked out by hand and a simulated server of known speed."""

import math
import random

import numpy as np
import pytest

from slipstream.bench.samples import LevelRun, Role, Sample, TokenEvents
from slipstream.bench.statistics import (
    Spread,
    inter_token_latency,
    level_stats,
    mean_accepted_length,
    spread,
    token_gaps,
    tokens_between,
    weighted_spread,
)


def events(*pairs: tuple[float, float]) -> TokenEvents:
    made = TokenEvents()
    for time, tokens in pairs:
        made.add(time, tokens)
    return made


def sample(
    start: float, end: float, made: TokenEvents, role: Role = "measured", error: str | None = None
) -> Sample:
    return Sample(role, start, end, made, error=error)


def test_spread() -> None:
    assert spread([]) is None
    assert spread([4.0]) == Spread(4.0, 4.0, 4.0, 4.0)
    assert spread([4.0, 1.0, 2.0, 3.0]) == Spread(
        2.5, 2.5, pytest.approx(3.85), pytest.approx(3.97)
    )
    hundred = spread([float(value) for value in range(101)])
    assert hundred == Spread(50.0, 50.0, 95.0, 99.0)


def test_weighted_spread_is_that_of_repeated_values() -> None:
    assert weighted_spread(np.array([]), np.array([])) is None
    values, weights = np.array([5.0, 1.0, 3.0]), np.array([1.0, 98.0, 1.0])
    assert weighted_spread(values, weights) == Spread(pytest.approx(1.06), 1.0, 1.0, 3.0)


def test_events_read_together_are_one() -> None:
    made = events((1.0, 1), (1.0, 2), (1.5, 1))
    assert (list(made.times), list(made.tokens), made.total()) == ([1.0, 1.5], [3, 1], 4)


def test_tokens_between_counts_after_start_up_to_end_and_no_failures() -> None:
    made = events((1.0, 1), (2.0, 2), (3.0, 4), (4.0, 8))
    samples = [sample(0, 4, made), sample(0, 4, made, error="no")]
    assert tokens_between(samples, 1.0, 3.0) == 6
    assert tokens_between(samples, 0.0, 9.0) == 15
    assert tokens_between(samples, 3.5, 3.9) == 0
    assert tokens_between([sample(0, 4, TokenEvents())], 0.0, 9.0) == 0


def test_several_tokens_at_once_share_the_gap_before_them() -> None:
    gaps, weights = token_gaps(events((1.0, 1), (1.3, 3), (1.4, 1)))
    assert gaps == pytest.approx([0.1, 0.1])
    assert list(weights) == [3, 1]
    gaps, weights = token_gaps(events((1.0, 7)))
    assert len(gaps) == len(weights) == 0


def test_speculation_and_plain_decoding_of_one_speed_have_one_inter_token_latency() -> None:
    plain = events(*[(0.1 * step, 1) for step in range(1, 13)])
    fours = events(*[(0.4 * step, 4) for step in range(1, 4)])
    for made in (plain, fours):
        latency = inter_token_latency([sample(0, 2, made)])
        assert latency is not None
        assert (latency.avg, latency.p50, latency.p99) == pytest.approx((0.1, 0.1, 0.1))


def test_mean_accepted_length_is_tokens_over_steps() -> None:
    twice = sample(0, 1, events((1.0, 60)))
    twice.accepted_length = 2.0  # 30 steps
    thrice = sample(0, 1, events((1.0, 30)))
    thrice.accepted_length = 3.0  # 10 steps
    silent = sample(0, 1, events((1.0, 99)))
    assert mean_accepted_length([twice, thrice, silent]) == pytest.approx(90 / 40)
    assert mean_accepted_length([silent]) is None


def test_level_by_hand() -> None:
    run = LevelRun(
        concurrency=2,
        samples=[
            sample(0.0, 2.0, events((1.0, 1), (2.0, 1)), role="warmup"),
            sample(2.0, 6.0, events((3.0, 1), (4.0, 1), (6.0, 2))),
            sample(1.0, 7.0, events((5.0, 2), (7.0, 1))),
            sample(6.0, 7.0, TokenEvents(), error="bad luck"),
            sample(6.0, 9.0, events((6.5, 1), (9.0, 9)), role="filler"),
        ],
        window_start=2.0,
        window_end=7.0,
        client_cpu_s=0.1,
    )
    stats = level_stats(run)
    assert (stats.concurrency, stats.requests, stats.ok) == (2, 3, 2)
    assert stats.window_tokens == 4 + 3 + 1
    assert stats.throughput_tok_s == pytest.approx(8 / 5)
    assert stats.per_request_tok_s == pytest.approx((4 / 4 + 3 / 6) / 2)
    assert stats.latency_s == Spread(5.0, 5.0, pytest.approx(5.9), pytest.approx(5.98))
    assert stats.ttft_s == Spread(2.5, 2.5, pytest.approx(3.85), pytest.approx(3.97))
    assert stats.itl_s is not None
    # Gaps per token: 1 once, 1 twice, 2 once.
    assert (stats.itl_s.avg, stats.itl_s.p50, stats.itl_s.p99) == pytest.approx((1.25, 1.0, 2.0))
    assert stats.errors == {"bad luck": 1}
    assert (stats.output_tokens, stats.unmeasured, stats.unmeasured_failed) == (7, 2, 0)
    assert stats.client_cpu_share == pytest.approx(0.02)
    assert stats.client_cpu_ms_per_1000_tokens == pytest.approx(100 / 8 * 1000)


def test_a_level_without_a_success_has_no_numbers() -> None:
    run = LevelRun(1, [sample(0, 1, TokenEvents(), error="down")] * 30, 0.0, 0.0, 0.0)
    stats = level_stats(run)
    assert (stats.requests, stats.ok, stats.throughput_tok_s) == (30, 0, 0.0)
    assert stats.latency_s is stats.ttft_s is stats.itl_s is stats.per_request_tok_s is None


@pytest.mark.parametrize("slots", [1, 8])
def test_throughput_of_a_simulated_server_of_known_speed(slots: int) -> None:
    """Each slot gets 1 to 4 tokens every 50 ms or so: 50 tokens a second on average."""
    chance = random.Random(slots)
    samples = []
    for _ in range(slots):
        time = 0.0
        for _ in range(60):
            start, made = time, TokenEvents()
            for _ in range(100):
                time += chance.uniform(0.04, 0.06)
                made.add(time, chance.randint(1, 4))
            samples.append(sample(start, time, made))
    end = min(max(sample.end for sample in samples), 280.0)
    stats = level_stats(LevelRun(slots, samples, 20.0, end, 0.0))
    assert stats.throughput_tok_s == pytest.approx(50 * slots, rel=0.03)
    assert stats.per_request_tok_s == pytest.approx(50, rel=0.03)
    assert stats.itl_s is not None
    assert stats.itl_s.avg == pytest.approx(1 / 50, rel=0.03)
    assert not math.isnan(stats.itl_s.p99)
