"""What is in the report of a verdict: the answer first, how it was measured last."""

import shlex
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from slipstream.verdict.analysis import (
    answer,
    answers,
    baseline,
    confidence,
    looks,
    names,
    of,
    ratio,
    tok_s,
)
from slipstream.verdict.load_distribution import Distribution, expected
from slipstream.verdict.objectives import WORDS, Metric, Most, Objective, most_under, percentile
from slipstream.verdict.report import (
    Chart,
    Code,
    Items,
    Part,
    Point,
    Report,
    Section,
    Series,
    Table,
    Text,
)
from slipstream.verdict.results import Configuration, Load, Results
from slipstream.verdict.schedules import settings_to_paste
from slipstream.verdict.sentences import between, conclusions, different, times, warnings


@dataclass(frozen=True)
class Questions:
    """What the user also wants to know."""

    objectives: tuple[Objective, ...] = ()
    distribution: Distribution | None = None
    dollars_per_hour: float | None = None


def contents(results: Results, questions: Questions | None = None) -> Report:
    """The report of any results, also of partial ones."""
    asked = questions or Questions()
    sections = (
        Section("Answer", tuple(_answer(results))),
        Section("Settings to paste", tuple(_settings(results))),
        Section("Your load", tuple(_load(results, asked))),
        Section("Latency objectives", tuple(_objectives(results, asked))),
        Section("Throughput", tuple(_throughput(results))),
        Section("Latency", tuple(_latency(results))),
        Section("Same answers", tuple(_same_answers(results))),
        Section("How it was measured", tuple(_method(results))),
    )
    about = (models(results), day(results), " / ".join(names(results)))
    return Report(
        "Does speculation pay?",
        ", ".join(filter(None, about)),
        tuple(section for section in sections if section.parts),
    )


def models(results: Results) -> str:
    """Their names, as far as they are known."""
    return ", ".join(dict.fromkeys(c.model for c in results.configurations if c.model))


def day(results: Results) -> str:
    return results.created[:16].replace("T", " ") + " UTC"


def _answer(results: Results) -> Iterator[Part]:
    yield Items(conclusions(results))
    if any(load.concurrency for load in results.loads):
        yield Text("C: requests in flight.")
    found = warnings(results)
    if found:
        yield Items(found, warning=True)
    for failure in results.failures:
        _, _, log = failure.reason.strip().partition("\n")
        if log.strip():
            title = f"The last lines of {failure.configuration} in round {failure.round + 1}"
            yield Code(title, textwrap.dedent(log))


def _settings(results: Results) -> Iterator[Part]:
    for setting in settings_to_paste(results):
        yield Code(setting.title, setting.text)
        if setting.notes:
            yield Text(" ".join(setting.notes))


def _load(results: Results, asked: Questions) -> Iterator[Part]:
    if asked.distribution is None:
        return
    found = expected(results, asked.distribution, asked.dollars_per_hour)
    if not found:
        yield Text("Nothing was measured at a fixed concurrency.")
        return
    shares = ", ".join(f"{n}: {share:.0%}" for n, share in asked.distribution.items())
    yield Text(f"Running requests and their share of the time: {shares}.")
    base = baseline(results)
    columns = ["configuration", "expected tok/s", f"to {base}"]
    if asked.dollars_per_hour is not None:
        columns.append("$ per million tokens")
    yield Table(
        tuple(columns),
        tuple(
            (
                one.configuration,
                f"{one.tok_s:.1f}",
                "1" if one.configuration == base else between(one.ratio, one.low, one.high),
                *([f"{one.dollars_per_million:.3g}"] if one.dollars_per_million else []),
            )
            for one in found
        ),
        names=1,
    )
    beyond = max(one.beyond for one in found)
    if beyond:
        yield Text(
            f"{beyond:.0%} of the time there are more requests than were measured; for these the "
            "highest measured load's tokens per second are taken."
        )


def _objectives(results: Results, asked: Questions) -> Iterator[Part]:
    for objective in asked.objectives:
        found = most_under(results, objective)
        best = max(found, key=lambda one: one.tok_s or 0)
        winner = f" Most: {best.configuration}." if best.tok_s else ""
        yield Text(f"{objective.label}.{winner}")
        yield Table(
            ("configuration", "tok/s at most", "requests in flight"),
            tuple((one.configuration, *_most(one)) for one in found),
            names=1,
        )
    if asked.objectives:
        yield Text("~: between two measured loads, interpolated.")


def _most(one: Most) -> tuple[str, str]:
    if one.tok_s is None or one.concurrency is None:
        least = "not measured" if one.best_seconds is None else f"{1000 * one.best_seconds:.0f} ms"
        return "missed", f"least {least}"
    sign = "~" if one.interpolated else ""
    return f"{sign}{one.tok_s:.1f}", f"{sign}{one.concurrency:.3g}"


def _throughput(results: Results) -> Iterator[Part]:
    yield from charts(results, "tokens per second", lambda n, load: tok_s(results, n, load))
    yield from _ratio_charts(results)
    yield from charts(
        results,
        "tokens per second of one request",
        lambda n, load: median(
            [m.per_request_tok_s for m in of(results, n, load) if m.per_request_tok_s] or [0.0]
        ),
    )
    base = baseline(results)
    rows = []
    for load in results.loads:
        best = answer(results, load)
        for name in names(results):
            found = of(results, name, load)
            if found:
                lead = "* " if name in best.best and best.kind in ("winner", "several") else ""
                rows.append(
                    (
                        load.label,
                        lead + name,
                        f"{tok_s(results, name, load) or 0:.1f}",
                        "1" if name == base else times(ratio(results, name, base, load)),
                        _median([m.per_request_tok_s for m in found], "{:.1f}"),
                        _median([m.accepted_length for m in found], "{:.2f}"),
                        str(len(found)),
                    )
                )
    columns = ("load", "configuration", "tok/s", f"to {base}", "per request", "accepted", "rounds")
    if rows:
        yield Table(columns, tuple(rows))
        yield Text(
            "tok/s: of all requests together. * The fastest, or one of those that cannot be told "
            "apart from it. accepted: tokens that a request emits in a step, where reported."
        )


def _median(values: list[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(median(known)) if known else "-"


_AXES = (("requests in flight", "concurrency"), ("requests arriving per second", "rate"))


def charts(
    results: Results, title: str, value: Callable[[str, Load], float | None], suffix: str = ""
) -> Iterator[Chart]:
    """One over the concurrencies and one over the rates, where there are such loads."""
    for label, field in _AXES:
        series = tuple(_series(results, name, field, value, suffix) for name in names(results))
        known = tuple(one for one in series if one.points)
        if known:
            yield Chart(title, label, known)


def _series(
    results: Results,
    name: str,
    field: str,
    value: Callable[[str, Load], float | None],
    suffix: str,
) -> Series:
    points = [
        Point(float(x), y)
        for load in results.loads
        if (x := getattr(load, field)) and (y := value(name, load))
    ]
    ordered = tuple(sorted(points, key=lambda point: point.x))
    return Series(name + suffix, names(results).index(name), ordered, dashed=bool(suffix))


def _ratio_charts(results: Results) -> Iterator[Chart]:
    base = baseline(results)
    for label, field in _AXES:
        series = []
        for number, name in enumerate(names(results)[1:], start=1):
            points = [
                Point(float(x), found.mean, found.low, found.high)
                for load in results.loads
                if (x := getattr(load, field)) and (found := ratio(results, name, base, load))
            ]
            ordered = tuple(sorted(points, key=lambda point: point.x))
            series.append(Series(name, number, ordered))
        known = tuple(one for one in series if one.points)
        if known:
            title = f"speed relative to {base}, with intervals"
            yield Chart(title, label, known, 1.0, "linear")


_UNITS: dict[Metric, tuple[str, float]] = {
    "ttft": ("ms", 1000.0),
    "itl": ("ms", 1000.0),
    "latency": ("s", 1.0),
}


def _latency(results: Results) -> Iterator[Part]:
    rows = []
    for load in results.loads:
        for name in names(results):
            cells = [_percentiles(results, name, load, metric) for metric in _UNITS]
            if any(cell != "-" for cell in cells):
                rows.append((load.label, name, *cells))
    if not rows:
        return
    for metric in _UNITS:
        yield from _latency_charts(results, metric)
    columns = (f"{WORDS[metric]} ({unit})" for metric, (unit, _) in _UNITS.items())
    yield Table(("load", "configuration", *columns), tuple(rows))
    yield Text("50th / 95th / 99th percentile, each the median over rounds.")


def _percentiles(results: Results, name: str, load: Load, metric: Metric) -> str:
    factor = _UNITS[metric][1]
    found = [percentile(results, name, load, metric, which) for which in ("p50", "p95", "p99")]
    if any(value is None for value in found):
        return "-"
    scaled = [factor * (value or 0) for value in found]
    digits = 0 if scaled[0] >= 100 else 1 if scaled[0] >= 10 else 2
    return " / ".join(f"{value:.{digits}f}" for value in scaled)


def _latency_charts(results: Results, metric: Metric) -> Iterator[Chart]:
    unit, factor = _UNITS[metric]

    def of_percentile(which: str) -> Callable[[str, Load], float | None]:
        def value(name: str, load: Load) -> float | None:
            seconds = percentile(results, name, load, metric, which)
            return None if seconds is None else factor * seconds

        return value

    title = f"{WORDS[metric]} in {unit}: p50, dashed p95"
    middle = charts(results, title, of_percentile("p50"))
    upper = charts(results, title, of_percentile("p95"), suffix=" p95")
    for chart, dashed in zip(middle, upper, strict=True):
        yield Chart(chart.title, chart.x_label, chart.series + dashed.series, scale="log")


def _same_answers(results: Results) -> Iterator[Part]:
    if results.differences:
        yield Items(tuple(different(one) for one in results.differences))
    for one in results.differences:
        if one.first:
            prompt = f"prompt: {one.first_prompt}\n" if one.first_prompt else ""
            texts = f"{one.baseline}: {one.first[0]}\n{one.configuration}: {one.first[1]}"
            yield Code(f"The first difference of {one.configuration}", prompt + texts)


def _method(results: Results) -> Iterator[Part]:
    settings = results.settings
    yield Items(tuple(facts(results)))
    yield Table(
        ("configuration", "draft tokens", "engine", "versions", "command or address"),
        tuple(_described(one) for one in results.configurations),
        names=5,
    )
    early = looks(settings.rounds)
    level = settings.confidence
    text = (
        f"Ratios are of pairs measured in the same round; intervals are of {level:.0%} "
        "(Student's below six rounds, from six on by resampling rounds). A winner is better than "
        "every other configuration with all pairs held to that confidence together (Bonferroni). "
    )
    if settings.stop_early and len(early) > 1:
        text += (
            f"A load may end after {early[0]} of {early[1]} rounds; each of the two looks has "
            f"{confidence(results):.1%}, so that both together have {level:.0%}. "
        )
    text += "Crossovers are interpolated between loads, logarithms on both axes."
    yield Text(text)


def facts(results: Results) -> Iterator[str]:
    """Where, with what and how, a line each."""
    settings = results.settings
    yield "Hardware: " + (", ".join(f"{k} {v}" for k, v in results.hardware.items()) or "unknown")
    yield f"Measured {day(results)} by slipstream {results.slipstream}"
    ending = "to the end (ignore_eos)" if settings.ignore_eos else "until the answer ends"
    yield (
        f"Prompts: {settings.prompts}{', repeated' if settings.repeated_prompts else ''}; at most "
        f"{settings.max_tokens} tokens, {ending}; temperature {settings.temperature:g}"
    )
    order = "side by side" if settings.side_by_side else "one server at a time"
    yield f"At most {settings.rounds} rounds, {order}"
    for label, why in results.stopped_early.items():
        yield f"{label} ended early: {why}"
    if results.measurements:
        busy = max(m.client_cpu_share for m in results.measurements)
        late = max(m.event_loop_lag_s for m in results.measurements)
        yield f"Load generator: at most {busy:.0%} of a core, at most {1000 * late:.0f} ms late"


def _described(one: Configuration) -> tuple[str, ...]:
    versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
    how = shlex.join(one.command) if one.command else one.url
    k = "?" if one.draft_tokens is None else str(one.draft_tokens)
    return one.name, k, one.engine, versions or "-", how


def summary(results: Results) -> Table:
    """The table for a log: loads down, configurations across."""
    base = baseline(results)
    columns = ["load", f"{base} tok/s", *(f"{name} to {base}" for name in names(results)[1:])]
    rows = []
    for found in answers(results):
        speed = tok_s(results, base, found.load)
        ratios = (times(found.ratios.get(name)) for name in names(results)[1:])
        best = ", ".join(found.best) if found.kind in ("winner", "several") else found.kind
        rows.append((found.load.label, f"{speed:.1f}" if speed else "-", *ratios, best))
    return Table((*columns, "best"), tuple(rows), names=1)
