"""Results for people (two lines a level) and for programs (JSON)."""

import platform
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Self, TextIO

from slipstream import __version__
from slipstream.bench.client import Target
from slipstream.bench.samples import LevelRun, Sample
from slipstream.bench.statistics import LevelStats, Spread


def level_line(stats: LevelStats) -> str:
    """The line that scripts may parse: its form does not change."""
    latency = _spread(stats.latency_s, 1, width=4)
    return (
        f"C={stats.concurrency:3d} | {stats.requests} requests"
        f" | throughput: {stats.throughput_tok_s:.1f} tok/s"
        f" | per-req: {_number(stats.per_request_tok_s, 1)} tok/s"
        f" | latency avg/p50/p99: {latency}s | ok: {stats.ok}/{stats.requests}"
    )


def detail_line(stats: LevelStats) -> str:
    """What else was measured, indented below the level's line."""
    parts = []
    if stats.ttft_s:
        parts.append(f"ttft avg/p50/p99: {_spread(stats.ttft_s, 0, scale=1000)} ms")
    if stats.itl_s:
        parts.append(f"itl avg/p50/p99: {_spread(stats.itl_s, 1, scale=1000)} ms")
    if stats.accepted_length is not None:
        parts.append(f"accepted length: {stats.accepted_length:.2f}")
    if stats.client_cpu_share is not None:
        parts.append(f"client cpu: {stats.client_cpu_share:.1%} of a core")
    return "      | " + " | ".join(parts)


def failure_lines(stats: LevelStats) -> list[str]:
    """What went wrong, a line each; empty if nothing did."""
    lines = []
    failed = stats.requests - stats.ok
    if failed:
        kinds = f", {len(stats.errors)} kinds of error" if len(stats.errors) > 1 else ""
        lines.append(f"      | {failed} failed{kinds}; the first: {next(iter(stats.errors))}")
    if stats.unmeasured_failed:
        lines.append(
            f"      | {stats.unmeasured_failed} of {stats.unmeasured} warm-up and filler requests "
            "failed"
        )
    return lines


def level_text(stats: LevelStats) -> str:
    """All lines of a level."""
    return "\n".join([level_line(stats), detail_line(stats), *failure_lines(stats)])


def _number(value: float | None, digits: int, width: int = 0) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}.{digits}f}"


def _spread(spread: Spread | None, digits: int, width: int = 0, scale: float = 1.0) -> str:
    values = (spread.avg, spread.p50, spread.p99) if spread else (None, None, None)
    scaled = [None if value is None else value * scale for value in values]
    first, *others = (_number(value, digits, width) for value in scaled)
    return "/".join([first.lstrip(), *others])


Result = tuple[LevelRun, LevelStats]


@dataclass(frozen=True)
class RunInfo:
    """What the JSON says about a run besides its levels."""

    target: Target
    prompts: str
    distinct_prompts: int
    prompts_repeated: bool
    max_tokens: int
    seed: int
    interrupted: bool


def document(info: RunInfo, results: Iterable[Result]) -> dict[str, Any]:
    """Everything as JSON-ready data; times in seconds, rates in tokens per second."""
    form, endpoint = info.target.form, info.target.endpoint
    return {
        "levels": [level_document(run, stats) for run, stats in results],
        "url": f"http{'s' if endpoint.tls else ''}://{endpoint.authority}{endpoint.base}",
        "model": form.model,
        "prompts": info.prompts,
        "distinct_prompts": info.distinct_prompts,
        "prompts_repeated": info.prompts_repeated,
        "max_tokens": info.max_tokens,
        "temperature": form.temperature,
        "stream": form.stream,
        "ignore_eos": form.ignore_eos,
        "seed": info.seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "interrupted": info.interrupted,
        "versions": {
            "slipstream": __version__,
            "python": platform.python_version(),
            "platform": sys.platform,
        },
    }


def level_document(run: LevelRun, stats: LevelStats) -> dict[str, Any]:
    """One level: its numbers and, for each measured request, its sample."""
    return asdict(stats) | {
        "samples": [_sample(sample, run.window_start) for sample in run.of_role("measured")]
    }


def _sample(sample: Sample, origin: float) -> dict[str, Any]:
    streamed = sample.streamed and sample.events.times
    return {
        "start_s": sample.start - origin,
        "latency_s": sample.end - sample.start,
        "ttft_s": sample.events.times[0] - sample.start if streamed else None,
        "tokens": round(sample.events.total()),
        "accepted_length": sample.accepted_length,
        "error": sample.error,
    }


class ProgressLine:
    """A line on a terminal that is rewritten at most once a second, and wiped at the end."""

    def __init__(self, label: str, terminal: TextIO) -> None:
        self._label = label
        self._terminal = terminal if terminal.isatty() else None
        self._shown = 0.0

    def __enter__(self) -> Self:
        self._write(f"{self._label} | warming up")
        return self

    def __exit__(self, *exc: object) -> None:
        self._write("")

    def update(self, ended: int, requests: int) -> None:
        """Show how many measured requests have ended."""
        if monotonic() - self._shown >= 1:
            self._write(f"{self._label} | {ended}/{requests} requests")

    def _write(self, text: str) -> None:
        if self._terminal:
            self._terminal.write(f"\r\x1b[K{text}")
            self._terminal.flush()
            self._shown = monotonic()
