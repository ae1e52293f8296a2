"""Latency objectives and load distributions."""

from pathlib import Path

import pytest

from slipstream.errors import UserError
from slipstream.verdict.load_distribution import expected, parse_distribution
from slipstream.verdict.objectives import Objective, most_under, parse_objective
from tests.verdict.synthetic import off, paying_until, results


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("p95 itl 50ms", Objective("p95", "itl", 0.05)),
        ("p99 ttft <= 2 s", Objective("p99", "ttft", 2.0)),
        ("avg latency at most 1.5s", Objective("avg", "latency", 1.5)),
        ("P50 ITL < 10MS", Objective("p50", "itl", 0.01)),
    ],
)
def test_objectives_are_read(text: str, parsed: Objective) -> None:
    assert parse_objective(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "itl 50ms", "p90 itl 50ms", "p95 itl 50", "p95 itl 0ms", "p95 itl 1.2.3s"]
)
def test_bad_objectives_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="p95 itl 50ms"):
        parse_objective(text)


def test_the_most_under_an_objective_lies_between_loads() -> None:
    speeds = {"off": off, "fixed": lambda c: 2 * off(c)}
    found = results(speeds, (1, 2, 3, 5, 10, 25, 30), noise=0.0, drift=0.0)
    # The gap between off's tokens is (1 + c/20) / 40 s, between fixed's half of it; p95 is 1.5
    # times as much.
    most = {m.configuration: m for m in most_under(found, Objective("p95", "itl", 0.045))}
    assert most["off"].concurrency == pytest.approx(4.0, rel=0.03)
    assert most["off"].tok_s == pytest.approx(off(4), rel=0.03)
    assert most["fixed"].concurrency == pytest.approx(28.0, rel=0.03)
    assert most["fixed"].interpolated


def test_beyond_the_highest_load_nothing_is_assumed() -> None:
    found = results({"off": off}, noise=0.0, drift=0.0)
    (most,) = most_under(found, Objective("p95", "itl", 10.0))
    assert (most.concurrency, most.interpolated) == (30, False)


def test_an_objective_that_is_missed_everywhere() -> None:
    found = results({"off": off}, noise=0.0, drift=0.0)
    (most,) = most_under(found, Objective("p95", "itl", 0.001))
    assert most.tok_s is None
    assert most.best_seconds == pytest.approx(0.039, rel=0.02)


def test_distributions_are_read(tmp_path: Path) -> None:
    assert parse_distribution("10:0.6,1:0.6") == {1: 0.5, 10: 0.5}
    file = tmp_path / "histogram.json"
    file.write_text('{"0": 50, "1": 100, "30": 50}')
    assert parse_distribution(str(file)) == {0: 0.25, 1: 0.5, 30: 0.25}


@pytest.mark.parametrize("text", ["", "1", "1:x", "x:1", "1:-1", "0:1", "1:0", "1:nan", "1:inf"])
def test_bad_distributions_are_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_distribution(text)


@pytest.mark.parametrize("content", ["[1]", "{", '{"x": 1}', '{"1": null}'])
def test_bad_histograms_are_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "histogram.json"
    file.write_text(content)
    with pytest.raises(UserError, match="running requests"):
        parse_distribution(str(file))
    with pytest.raises(UserError, match="no such file"):
        parse_distribution(str(tmp_path / "none.json"))


def test_expected_speed_and_cost() -> None:
    found = results({"off": lambda c: 10.0 * c, "fixed": lambda c: 20.0 * c}, noise=0.0)
    fixed, base = expected(found, {0: 0.5, 1: 0.25, 4: 0.25}, dollars_per_hour=3.6)
    assert (fixed.configuration, base.configuration) == ("fixed", "off")
    assert base.tok_s == pytest.approx(12.5, rel=0.15)  # the rounds drift
    assert fixed.ratio == pytest.approx(2.0)
    assert fixed.low == pytest.approx(2.0)
    assert base.dollars_per_million == pytest.approx(1000 / base.tok_s)


def test_the_best_choice_depends_on_the_load() -> None:
    found = results({"off": off, "fixed": paying_until(4.0)})
    assert expected(found, {1: 0.9, 10: 0.1})[0].configuration == "fixed"
    assert expected(found, {10: 0.1, 30: 0.9})[0].configuration == "off"


def test_more_requests_than_were_measured_are_told_of() -> None:
    found = results({"off": off})
    (one,) = expected(found, {10: 0.75, 100: 0.25})
    assert one.beyond == 0.25
