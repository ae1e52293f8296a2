"""Numbers from samples: pure functions, no clocks and no sockets."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.bench.samples import LevelRun, Sample, TokenEvents

Floats = NDArray[np.float64]

_QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class Spread:
    """Mean, median, 95th and 99th percentile, in the unit of the values."""

    avg: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class LevelStats:
    """One concurrency in numbers. None: nothing to compute it from."""

    concurrency: int
    requests: int  # measured requests
    ok: int  # of which succeeded; the numbers below are of these
    throughput_tok_s: float  # of all requests together, in the steady window
    per_request_tok_s: float | None  # mean over requests of tokens / latency
    latency_s: Spread | None
    ttft_s: Spread | None  # None without streaming
    itl_s: Spread | None  # None without streaming
    accepted_length: float | None  # tokens per step, where the server reports it
    output_tokens: int  # of the measured requests
    window_s: float
    window_tokens: float
    token_source: str | None
    client_cpu_share: float | None  # of one core, in the steady window
    client_cpu_ms_per_1000_tokens: float | None
    errors: dict[str, int]  # of the measured requests: text, how often; the first one first
    unmeasured: int  # warm-up and filler requests
    unmeasured_failed: int


def spread(values: Sequence[float] | Floats) -> Spread | None:
    """Percentiles interpolate linearly between the two nearest values. None for no values."""
    if not len(values):
        return None
    p50, p95, p99 = np.quantile(values, _QUANTILES)
    return Spread(float(np.mean(values)), float(p50), float(p95), float(p99))


def weighted_spread(values: Floats, weights: Floats) -> Spread | None:
    """As if each value occurred ``weight`` times; percentiles are values that occurred."""
    if not len(values):
        return None
    p50, p95, p99 = np.quantile(values, _QUANTILES, weights=weights, method="inverted_cdf")
    mean = float(np.average(values, weights=weights))
    return Spread(mean, float(p50), float(p95), float(p99))


def tokens_between(samples: Iterable[Sample], start: float, end: float) -> float:
    """Tokens of the successful samples whose event lies after ``start`` and not after ``end``."""
    total = 0.0
    for sample in samples:
        if sample.error is None:
            first, last = np.searchsorted(sample.events.times, [start, end], side="right")
            total += float(np.sum(sample.events.tokens[first:last]))
    return total


def mean_in_flight(samples: Iterable[Sample], start: float, end: float) -> float:
    """Requests in flight, on average over the time from ``start`` to ``end``."""
    shared = (min(sample.end, end) - max(sample.start, start) for sample in samples)
    return sum(max(0.0, seconds) for seconds in shared) / (end - start) if end > start else 0.0


def token_gaps(events: TokenEvents) -> tuple[Floats, Floats]:
    """Seconds per token of every event but the first, and how many tokens it stands for.

    An event that brings k tokens a gap g after the one before it counts as k gaps of g / k: that
    is how fast text grows, however many tokens a step emits.
    """
    tokens = np.asarray(events.tokens)[1:]
    return np.diff(np.asarray(events.times)) / tokens, tokens


def mean_accepted_length(samples: Iterable[Sample]) -> float | None:
    """All tokens over all steps, of the samples that report tokens per step."""
    reported = [
        (sample.events.total(), sample.accepted_length)
        for sample in samples
        if sample.accepted_length and sample.events.times
    ]
    if not reported:
        return None
    steps = sum(tokens / length for tokens, length in reported)
    return sum(tokens for tokens, _ in reported) / steps


def inter_token_latency(samples: Iterable[Sample]) -> Spread | None:
    """Over all tokens of the streamed samples, see ``token_gaps``."""
    pairs = [token_gaps(sample.events) for sample in samples if sample.streamed]
    if not pairs:
        return None
    gaps, weights = zip(*pairs, strict=True)
    return weighted_spread(np.concatenate(gaps), np.concatenate(weights))


def inter_token_latency_between(
    samples: Iterable[Sample], start: float, end: float
) -> Spread | None:
    """Over the tokens of the streamed samples that came after ``start`` and not after ``end``."""
    pairs = []
    for sample in samples:
        if sample.streamed and sample.error is None:
            gaps, weights = token_gaps(sample.events)
            first, last = np.searchsorted(sample.events.times[1:], [start, end], side="right")
            pairs.append((gaps[first:last], weights[first:last]))
    if not pairs:
        return None
    gaps, weights = (np.concatenate(values) for values in zip(*pairs, strict=True))
    return weighted_spread(gaps, weights)


def level_stats(run: LevelRun) -> LevelStats:
    """The numbers of one level."""
    measured = run.of_role("measured")
    unmeasured = run.of_role("warmup", "filler")
    ok = [sample for sample in measured if sample.error is None]
    tokens = [sample.events.total() for sample in ok]
    latencies = [sample.end - sample.start for sample in ok]
    ttfts = [sample.events.times[0] - sample.start for sample in ok if sample.streamed]
    window_s = run.window_end - run.window_start
    window_tokens = tokens_between(run.samples, run.window_start, run.window_end)
    sources = Counter(sample.token_source for sample in ok)
    rates = [count / latency for count, latency in zip(tokens, latencies, strict=True)]
    return LevelStats(
        concurrency=run.concurrency,
        requests=len(measured),
        ok=len(ok),
        throughput_tok_s=window_tokens / window_s if window_s > 0 else 0.0,
        per_request_tok_s=sum(rates) / len(rates) if rates else None,
        latency_s=spread(latencies),
        ttft_s=spread(ttfts),
        itl_s=inter_token_latency(ok),
        accepted_length=mean_accepted_length(ok),
        output_tokens=round(sum(tokens)),
        window_s=window_s,
        window_tokens=window_tokens,
        token_source=sources.most_common(1)[0][0] if sources else None,
        client_cpu_share=run.client_cpu_s / window_s if window_s > 0 else None,
        client_cpu_ms_per_1000_tokens=(
            1e6 * run.client_cpu_s / window_tokens if window_tokens else None
        ),
        errors=dict(Counter(sample.error for sample in measured if sample.error is not None)),
        unmeasured=len(unmeasured),
        unmeasured_failed=sum(sample.error is not None for sample in unmeasured),
    )
