"""The same report in four forms, of whole and of partial results."""

import html.parser
import io
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from slipstream.errors import UserError
from slipstream.verdict.contents import Questions, contents
from slipstream.verdict.difference_report import difference_report
from slipstream.verdict.html import html as page
from slipstream.verdict.load_distribution import parse_distribution
from slipstream.verdict.log import append_entry, entry
from slipstream.verdict.markdown import markdown
from slipstream.verdict.objectives import parse_objective
from slipstream.verdict.plots import svg
from slipstream.verdict.report import Chart, Point, Report, Series
from slipstream.verdict.results import Difference, Failure, Load, Results, Settings
from slipstream.verdict.sentences import conclusions
from slipstream.verdict.terminal import print_report
from tests.verdict.synthetic import configuration, measurement, off, paying_until, results

QUESTIONS = Questions(
    (parse_objective("p95 itl 50ms"), parse_objective("p99 ttft 1s")),
    parse_distribution("1:0.5,10:0.3,300:0.2"),
    2.4,
)


def whole() -> Results:
    found = results({"off": off, "fixed": paying_until(6.0), "adaptive": lambda c: 1.1 * off(c)})
    found.differences = [
        Difference("fixed", "off", 40, 2, "Reverse a list.", ("two <b>pointers</b>", "an index")),
        Difference("adaptive", "off", 40, 0),
    ]
    found.failures = [Failure("fixed", Load(30), 3, "it ended with status 137\nOut of memory")]
    found.notes = ["Answers of fixed were 3% shorter."]
    return found


def one_round() -> Results:
    return results({"off": off, "fixed": paying_until(6.0)}, rounds=1)


def all_failed() -> Results:
    found = results({"off": off, "fixed": off}, rounds=0)
    found.failures = [Failure(name, None, 0, "never became ready") for name in ("off", "fixed")]
    found.complete = False
    return found


def nothing_yet() -> Results:
    found = all_failed()
    found.failures = []
    return found


def no_latency() -> Results:
    found = results({"off": off, "fixed": off}, (1, 5), rounds=0)
    for round_ in range(3):
        for name in ("off", "fixed"):
            for load in found.loads:
                found.measurements.append(measurement(name, load, round_, 40.0, latency=False))
    return found


def one_missing() -> Results:
    found = whole()
    found.measurements = [
        m for m in found.measurements if m.configuration != "fixed" or m.load.concurrency == 1
    ]
    return found


def no_baseline() -> Results:
    found = whole()
    found.measurements = [m for m in found.measurements if m.configuration != "off"]
    return found


def one_configuration() -> Results:
    return results({"off": off}, rounds=2)


def by_rate() -> Results:
    found = results({"off": off, "fixed": off}, (), rounds=2)
    found.loads = [Load(rate=0.5), Load(rate=2.5)]
    for round_ in range(2):
        for load in found.loads:
            for name, speed in (("off", 40.0), ("fixed", 41.0 + round_)):
                found.measurements.append(measurement(name, load, round_, speed))
    return found


def ended_early() -> Results:
    found = results({"off": off, "fixed": lambda c: 1.5 * off(c)}, rounds=3, noise=0.0)
    found.settings = Settings("coding", 64, 0.8, False, 6, side_by_side=True, repeated_prompts=True)
    found.stopped_early = {"C=1": "after 3 rounds every ratio was known to within 0.5%"}
    found.hardware = {}
    return found


def saturated() -> Results:
    found = results({"off": off, "fixed": off}, (250,), rounds=2)
    found.measurements = [
        msgspec.structs.replace(m, client_cpu_share=0.97, event_loop_lag_s=0.4, in_flight=100.0)
        for m in found.measurements
    ]
    found.notes = ["the load generator was near its own limit at C=250"]
    return found


CASES: list[Callable[[], Results]] = [
    whole,
    one_round,
    all_failed,
    nothing_yet,
    no_latency,
    one_missing,
    no_baseline,
    one_configuration,
    by_rate,
    ended_early,
    saturated,
]


def terminal(report: Report, width: int = 100) -> str:
    file = io.StringIO()
    print_report(report, Console(file=file, width=width))
    return file.getvalue()


FORMS: dict[str, Callable[[Results], str]] = {
    "terminal": lambda found: terminal(contents(found, QUESTIONS)),
    "markdown": lambda found: markdown(contents(found, QUESTIONS)),
    "html": lambda found: page(contents(found, QUESTIONS)),
    "log": lambda found: entry(found, QUESTIONS),
}


def plain(text: str) -> str:
    """Without what a form adds: escapes and line ends."""
    return " ".join(re.sub(r"\\(?=\W)", "", text).split()).replace("&#39;", "'")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_all_results_can_be_shown(form: str, case: Callable[[], Results]) -> None:
    text = FORMS[form](case())
    assert "SmolLM2-135M-Instruct" in text
    assert "nan" not in re.findall(r"\bnan\b|\binf\b", text)


@pytest.mark.parametrize("form", FORMS)
def test_what_went_wrong_is_in_each_form(form: str) -> None:
    text = plain(FORMS[form](whole()))
    assert "fixed failed at C=30, round 4: it ended with status 137" in text
    assert "Answers of fixed were 3% shorter." in text
    assert "2 of 40 answers differ from off's" in text
    text = plain(FORMS[form](saturated()))
    assert "near its own limit at C=250" in text
    assert "at most 97% of a core, at most 400 ms late" in text
    assert "only 100.0 requests were in flight" in text
    text = plain(FORMS[form](all_failed()))
    assert "never became ready" in text
    assert "ended before it was complete" in text


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_is_in_each_form(form: str) -> None:
    text = plain(FORMS[form](whole()))
    assert re.search(r"fixed stops being faster than off at about (5\.\d|6\.\d) requests", text)
    assert re.search(
        r"C=5: adaptive is ahead, 1\.10 .* but not surely faster than fixed 1\.04", text
    )
    assert "As one setting for all of these loads: adaptive" in text
    assert "--speculation adaptive" in text
    text = plain(FORMS[form](one_round()))
    assert "could not tell, one round is too few" in text


def test_an_interval_that_convinces_only_alone_is_told() -> None:
    """Three rounds, three configurations: 1.13 to 1.62, but each of three pairs might be luck."""
    found = results(dict.fromkeys(("off", "fixed", "adaptive"), off), [1], rounds=3)
    found.settings = msgspec.structs.replace(found.settings, rounds=6, stop_early=True)
    speeds = {
        "off": (96.4, 84.1, 79.8),
        "fixed": (108.4, 93.2, 94.8),
        "adaptive": (127.0, 110.0, 114.4),
    }
    found.measurements = [
        measurement(name, Load(1), number, speed)
        for name, measured in speeds.items()
        for number, speed in enumerate(measured)
    ]
    [answer, *_] = conclusions(found)
    assert "adaptive is ahead, 1.35" in answer
    assert answer.endswith("not surely faster than off once all pairs are compared.")


def test_failed_requests_are_counted() -> None:
    found = one_round()
    bad = msgspec.structs.replace(found.measurements[0].samples[0], error="status 500")
    found.measurements[0] = msgspec.structs.replace(found.measurements[0], samples=[bad])
    text = markdown(contents(found))
    assert "off at C=1: 1 of 1 requests failed; the first: status 500" in plain(text)


class Checker(html.parser.HTMLParser):
    """Every element that is opened is closed."""

    VOID = frozenset({"meta", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("case", CASES)
def test_the_page_is_well_formed_and_needs_nothing_else(case: Callable[[], Results]) -> None:
    checker = Checker()
    text = page(contents(case(), QUESTIONS))
    checker.feed(text)
    assert not checker.open
    assert checker.addresses == ["data:,"]
    assert "url(" not in text and "@import" not in text
    assert "script" not in checker.seen


def test_the_page_shows_text_as_it_is() -> None:
    text = page(contents(whole()))
    assert "two &lt;b&gt;pointers&lt;/b&gt;" in text
    assert "<b>" not in text


def test_there_are_charts_of_everything() -> None:
    text = page(contents(whole()))
    assert text.count("<svg") == 6
    for title in (
        "tokens per second",
        "speed relative to off",
        "tokens per second of one request",
        "time to first token",
        "inter-token latency",
        "latency of a request",
    ):
        assert re.search(f"<figcaption>{title}", text)
    assert "interval" in text
    assert page(contents(no_latency())).count("<svg") == 3
    assert "<svg" not in page(contents(all_failed()))


def test_a_chart_holds_any_numbers() -> None:
    for values in ([1.0], [0.001, 0.001], [3.0, 40000.0], [1e-6, 1e6]):
        points = tuple(
            Point(n + 1.0, value, value / 3, 9 * value) for n, value in enumerate(values)
        )
        for scale in ("zero", "linear", "log"):
            text = svg(Chart("any", "load", (Series("a & b", 9, points),), 1.0, scale))  # type: ignore[arg-type]
            assert "a &amp; b" in text and "nan" not in text and "inf" not in text
            ys = [float(y) for y in re.findall(r'c?y1?="([-\d.]+)"', text)]
            assert all(0 <= y <= 270 for y in ys)


def test_code_on_a_terminal_is_not_wrapped() -> None:
    command = ["serve", *["--long"] * 40]
    found = results({"off": off, "fixed": lambda c: 1.2 * off(c)})
    found.configurations = [
        configuration("off", None, ["serve"], "unknown"),
        configuration("fixed", None, command, "unknown"),
    ]
    assert " ".join(command) in terminal(contents(found), width=60)


def test_names_with_markup_do_no_harm() -> None:
    found = results({"off": off, "[red]a|b*[/]": off}, (1,), rounds=2)
    assert "[red]a|b*[/]" in terminal(contents(found))
    assert "\\[red\\]a\\|b\\*\\[/\\]" in markdown(contents(found))


def test_markdown_tables_have_as_many_cells_as_columns() -> None:
    for case in CASES:
        rows = [
            line for line in markdown(contents(case(), QUESTIONS)).splitlines() if line[:1] == "|"
        ]
        previous = 0
        for row in rows:
            cells = len(re.findall(r"(?<!\\)\|", row))
            assert previous in (0, cells) or row.startswith(("| load", "| conf"))
            previous = cells


def test_the_log_grows(tmp_path: Path) -> None:
    path = tmp_path / "LOG.md"
    append_entry(path, whole(), QUESTIONS, Path("first.json"))
    first = path.read_text()
    append_entry(path, all_failed())
    text = path.read_text()
    assert text.startswith(first)
    assert text.count("\n## 2026-11-30 12:00 UTC: SmolLM2-135M-Instruct\n") == 2
    assert text.count("# Verdicts\n") == 1
    for word in (
        "Testium 4000",
        "slipstream 0.1.0",
        "| C=10 |",
        "Data: first.json",
        "--speculation",
    ):
        assert word in text
    with pytest.raises(UserError, match="is a directory"):
        append_entry(tmp_path, whole())


def test_the_lines_of_a_log_are_shown_once_with_their_round() -> None:
    found = all_failed()
    reason = "fixed ended (exit status 1); its last lines:\n  out of\n    memory"
    found.failures = [Failure("fixed", None, 0, reason), Failure("fixed", None, 1, reason)]
    text = terminal(contents(found))
    assert "! fixed failed, round 1: fixed ended (exit status 1)\n" in re.sub(" +\n", "\n", text)
    assert "The last lines of fixed in round 2\nout of\n  memory\n" in text


def test_models_that_are_not_known_are_left_out() -> None:
    found = all_failed()
    found.configurations = [msgspec.structs.replace(c, model="") for c in found.configurations]
    assert contents(found).subtitle == "2026-11-30 12:00 UTC, off / fixed"


def test_a_wide_interval_is_told_as_a_factor() -> None:
    found = results({"off": off, "fixed": off}, (1,), rounds=2, noise=0.5, seed=2)
    assert re.search(r"there may be differences of a factor of \d", conclusions(found)[0])


def test_two_verdicts_compared() -> None:
    before = results({"off": off, "fixed": off, "old": off}, noise=0.005, drift=0.005, seed=1)
    after = results(
        {"off": off, "fixed": lambda c: 1.2 * off(c), "new": off},
        (1, 5, 70),
        noise=0.005,
        drift=0.005,
        seed=2,
    )
    after.hardware = {"cpu": "Testium 5000", "cores": "2"}
    report = difference_report(before, after)
    text = plain(markdown(report))
    assert "hardware, cpu: Testium 4000 before, Testium 5000 after" in text
    assert "old, measured: yes before, nothing after" in text
    assert re.search(r"\| C=1 \| fixed \| 1\.\d\d \(1\.1\d to 1\.2\d\)", text)
    assert "| C=10 |" not in text  # only in one of them
    assert "changed |" in text
    assert page(report).count("<svg") == 1
    assert "after / before" in terminal(report)


@pytest.mark.parametrize("before", CASES)
@pytest.mark.parametrize("after", [whole, all_failed])
def test_any_two_can_be_compared(
    before: Callable[[], Results], after: Callable[[], Results]
) -> None:
    report = difference_report(before(), after())
    assert "Two verdicts" in markdown(report)
    assert "Two verdicts" in page(report)
