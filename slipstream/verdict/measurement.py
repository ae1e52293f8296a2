"""From what the load generator saw to what the results hold, and what there is to say about it."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from statistics import fmean

from slipstream import machine
from slipstream.bench.samples import LevelRun, Sample
from slipstream.bench.statistics import LevelStats, Spread, mean_in_flight
from slipstream.verdict.results import (
    Load,
    Measurement,
    Percentiles,
    RequestSample,
    Results,
)

BUSY_SHARE = 0.7
"""Of a core: a load generator that uses more is near its limit."""

LATE_S = 0.1
"""A load generator that is later than this saw tokens late."""

UNEQUAL = 1.02
"""Ratio of mean lengths above which answers are called unequal."""

BEHIND = 0.9
"""Share of the arriving requests that must end, or the server does not keep up."""


def measurement(
    configuration: str,
    load: Load,
    number: int,
    run: LevelRun,
    stats: LevelStats,
    accepted: float | None = None,
) -> Measurement:
    """Of one run at one load in round ``number``; ``accepted`` length if answers do not tell."""
    return Measurement(
        configuration=configuration,
        load=load,
        round=number,
        window_s=stats.window_s,
        tok_s=stats.throughput_tok_s,
        per_request_tok_s=stats.per_request_tok_s,
        latency_s=_percentiles(stats.latency_s),
        ttft_s=_percentiles(stats.ttft_s),
        itl_s=_percentiles(stats.itl_s),
        accepted_length=stats.accepted_length or accepted,
        in_flight=mean_in_flight(run.samples, run.window_start, run.window_end),
        client_cpu_share=stats.client_cpu_share or 0.0,
        event_loop_lag_s=run.event_loop_lag_s,
        samples=[_sample(sample, run.window_start) for sample in run.samples],
    )


def _percentiles(spread: Spread | None) -> Percentiles | None:
    return Percentiles(spread.avg, spread.p50, spread.p95, spread.p99) if spread else None


def _sample(sample: Sample, origin: float) -> RequestSample:
    streamed = sample.streamed and sample.events.times
    return RequestSample(
        start=round(sample.start - origin, 6),
        end=round(sample.end - origin, 6),
        first_token=round(sample.events.times[0] - origin, 6) if streamed else None,
        tokens=round(sample.events.total(), 3),
        measured=sample.role == "measured",
        error="cut off at the end" if sample.cut_off else sample.error,
    )


def notes(results: Results) -> list[str]:
    """What a reader must know about the measuring, a line each."""
    found = []
    for load in results.loads:
        here = [m for m in results.measurements if m.load == load]
        found += [*_saturated(load, here), *_unequal(load, here), *_behind(load, here)]
    return found


def _saturated(load: Load, here: Sequence[Measurement]) -> Iterable[str]:
    cpu = max((m.client_cpu_share for m in here), default=0.0)
    lag = max((m.event_loop_lag_s for m in here), default=0.0)
    if cpu > BUSY_SHARE or lag > LATE_S:
        yield (
            f"the load generator was short of time at {load.label} (up to {cpu:.0%} of a core, "
            f"up to {1000 * lag:.0f} ms late): fast servers may be faster than it says"
        )


def _unequal(load: Load, here: Sequence[Measurement]) -> Iterable[str]:
    lengths = {}
    for name in dict.fromkeys(m.configuration for m in here):
        tokens = [
            sample.tokens
            for m in here
            if m.configuration == name
            for sample in m.samples
            if sample.measured and sample.error is None
        ]
        if tokens:
            lengths[name] = fmean(tokens)
    if lengths and max(lengths.values()) > UNEQUAL * min(lengths.values()):
        said = ", ".join(f"{name} {length:.1f}" for name, length in lengths.items())
        yield (
            f"answers at {load.label} differ in length ({said} tokens on average): "
            "not all servers did the same work"
        )


def _behind(load: Load, here: Sequence[Measurement]) -> Iterable[str]:
    if load.rate is None:
        return
    for name in dict.fromkeys(m.configuration for m in here):
        ours = [m for m in here if m.configuration == name]
        ended = sum(0 < sample.end <= m.window_s for m in ours for sample in m.samples)
        arrived = sum(0 <= sample.start <= m.window_s for m in ours for sample in m.samples)
        if ended < BEHIND * arrived:
            yield (
                f"{name} does not keep up with {load.label}: {ended} requests ended while "
                f"{arrived} arrived, so its latencies only grow"
            )


def hardware() -> dict[str, str]:
    """This machine: where launched servers run, too."""
    found = {
        "cpu": machine.cpu_model(),
        "cores": str(machine.cores()),
        "memory": f"{machine.machine_memory() / 2**30:.1f} GiB",
        "system": f"{platform.system()} {os.uname().release}",
    }
    if gpus := _gpus():
        found["gpu"] = gpus
    return found


def _gpus() -> str | None:
    """As NVIDIA's tool lists them."""
    if (tool := shutil.which("nvidia-smi")) is None:
        return None
    query = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    names = [line.strip() for line in told.stdout.splitlines() if line.strip()]
    counted = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    return ", ".join(counted) or None
