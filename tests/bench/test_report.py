"""The lines and the JSON that others read."""

import io
import json
import re
from typing import Any

import pytest

from slipstream.bench.client import RequestForm, Target
from slipstream.bench.http import Endpoint
from slipstream.bench.report import (
    ProgressLine,
    RunInfo,
    detail_line,
    document,
    failure_lines,
    level_line,
    level_text,
)
from slipstream.bench.samples import LevelRun, Sample, TokenEvents
from slipstream.bench.statistics import LevelStats, Spread, level_stats


def stats(**changes: Any) -> LevelStats:
    fields: dict[str, Any] = {
        "concurrency": 1,
        "requests": 30,
        "ok": 30,
        "throughput_tok_s": 80.9,
        "per_request_tok_s": 81.3,
        "latency_s": Spread(6.3, 6.4, 7.1, 7.2),
        "ttft_s": Spread(0.12, 0.11, 0.3, 0.35),
        "itl_s": Spread(0.0123, 0.012, 0.015, 0.0151),
        "accepted_length": 2.345,
        "output_tokens": 15360,
        "window_s": 190.0,
        "window_tokens": 15371.0,
        "token_source": "usage",
        "client_cpu_share": 0.012,
        "client_cpu_ms_per_1000_tokens": 20.0,
        "errors": {},
        "unmeasured": 1,
        "unmeasured_failed": 0,
    }
    return LevelStats(**fields | changes)


def test_the_line_in_its_exact_form() -> None:
    assert level_line(stats()) == (
        "C=  1 | 30 requests | throughput: 80.9 tok/s | per-req: 81.3 tok/s"
        " | latency avg/p50/p99: 6.3/ 6.4/ 7.2s | ok: 30/30"
    )


def test_the_line_with_large_numbers_and_failures() -> None:
    line = level_line(
        stats(
            concurrency=250,
            requests=750,
            ok=749,
            throughput_tok_s=1234.56,
            per_request_tok_s=4.94,
            latency_s=Spread(103.27, 104.0, 130.0, 131.9),
        )
    )
    assert line == (
        "C=250 | 750 requests | throughput: 1234.6 tok/s | per-req: 4.9 tok/s"
        " | latency avg/p50/p99: 103.3/104.0/131.9s | ok: 749/750"
    )


def test_the_line_without_a_success() -> None:
    line = level_line(stats(ok=0, throughput_tok_s=0.0, per_request_tok_s=None, latency_s=None))
    assert line.endswith("per-req: - tok/s | latency avg/p50/p99: -/   -/   -s | ok: 0/30")


def test_the_detail_line() -> None:
    assert detail_line(stats()) == (
        "      | ttft avg/p50/p99: 120/110/350 ms | itl avg/p50/p99: 12.3/12.0/15.1 ms"
        " | accepted length: 2.35 | client cpu: 1.2% of a core"
    )
    bare = stats(ttft_s=None, itl_s=None, accepted_length=None)
    assert detail_line(bare) == "      | client cpu: 1.2% of a core"


def test_failures_are_shown() -> None:
    assert failure_lines(stats()) == []
    failed = stats(ok=27, errors={"HTTP 500: oops": 2, "HTTP 429: full": 1}, unmeasured_failed=1)
    assert level_text(failed).splitlines()[2:] == [
        "      | 3 failed, 2 kinds of error; the first: HTTP 500: oops",
        "      | 1 of 1 warm-up and filler requests failed",
    ]


def test_json() -> None:
    events = TokenEvents()
    for time in (11.0, 12.0, 14.0):
        events.add(time, 1)
    run = LevelRun(1, [Sample("measured", 10.0, 14.0, events)], 10.0, 14.0, 0.01)
    target = Target(Endpoint.of("http://h:1", "secret"), RequestForm("m"))
    info = RunInfo(target, "coding", 300, False, 3, 7, False)
    text = json.dumps(document(info, [(run, level_stats(run))]))
    assert "secret" not in text
    read = json.loads(text)
    level = read["levels"][0]
    assert level["throughput_tok_s"] == 0.75
    assert level["per_request_tok_s"] == 0.75
    for name in ("latency_s", "ttft_s", "itl_s"):
        assert level[name].keys() == {"avg", "p50", "p95", "p99"}
    assert level["itl_s"]["avg"] == 1.5
    assert (level["concurrency"], level["requests"], level["ok"]) == (1, 1, 1)
    assert level["accepted_length"] is None
    assert level["samples"] == [
        {
            "start_s": 0.0,
            "latency_s": 4.0,
            "ttft_s": 1.0,
            "tokens": 3,
            "accepted_length": None,
            "error": None,
        }
    ]
    assert read["url"] == "http://h:1/v1"
    assert (read["model"], read["prompts"], read["max_tokens"]) == ("m", "coding", 3)
    assert read["versions"].keys() == {"slipstream", "python", "platform"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", read["date"])


@pytest.mark.parametrize("tty", [True, False])
def test_progress_is_for_terminals(tty: bool) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return tty

    screen = Screen()
    with ProgressLine("C=  1", screen) as progress:
        progress.update(1, 30)
    assert bool(screen.getvalue()) is tty
    assert not tty or screen.getvalue().endswith("\r\x1b[K")
