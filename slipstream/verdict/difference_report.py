"""Two verdicts side by side: what has become faster or slower, and what else had changed."""

import math
from collections.abc import Iterator
from statistics import fmean

from slipstream.bench.comparison import unpaired_difference
from slipstream.verdict.analysis import Ratio, answer, baseline, names, of, ratio
from slipstream.verdict.contents import charts, day
from slipstream.verdict.report import Chart, Items, Part, Report, Section, Series, Table, Text
from slipstream.verdict.results import Load, Results
from slipstream.verdict.sentences import times, warnings


def difference_report(before: Results, after: Results) -> Report:
    """For configurations and loads of the same names. They were not measured in pairs, so drift
    of the machine from one to the other is not in the intervals."""
    sections = (
        Section("What has changed", tuple(_changes(before, after))),
        Section("Speed", tuple(_speed(before, after))),
        Section("Answers", tuple(_answers(before, after))),
        Section("Notes", tuple(_notes(before, after))),
    )
    return Report(
        "Two verdicts",
        f"{day(before)} (before) and {day(after)} (after)",
        tuple(section for section in sections if section.parts),
    )


def _changes(before: Results, after: Results) -> Iterator[Part]:
    lines = []
    for title, old, new in (
        ("hardware", before.hardware, after.hardware),
        ("settings", _settings(before), _settings(after)),
        *(
            (f"{name}", _configuration(before, name), _configuration(after, name))
            for name in dict.fromkeys(names(before) + names(after))
        ),
    ):
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key):
                was, now = old.get(key, "nothing"), new.get(key, "nothing")
                lines.append(f"{title}, {key}: {was} before, {now} after")
    yield Items(tuple(lines)) if lines else Text("Nothing: same hardware, settings and versions.")


def _settings(results: Results) -> dict[str, str]:
    settings = results.settings
    found = {name: str(getattr(settings, name)) for name in settings.__struct_fields__}
    return found | {"slipstream": results.slipstream, "baseline": baseline(results)}


def _configuration(results: Results, name: str) -> dict[str, str]:
    found = next((c for c in results.configurations if c.name == name), None)
    if found is None:
        return {}
    how = " ".join(found.command) if found.command else found.url
    return {"measured": "yes", "model": found.model, "command": how, **found.versions}


def _speed(before: Results, after: Results) -> Iterator[Part]:
    rows = []
    for load in _loads(before, after):
        for name in names(before):
            change = _change(before, after, name, load)
            if change:
                old = _to_baseline(before, name, load)
                new = _to_baseline(after, name, load)
                rows.append((load.label, name, times(change), old, new))
    if not rows:
        yield Text("No configuration was measured at the same load in both.")
        return
    columns = ("load", "configuration", "after / before", "to baseline before", "to baseline after")
    yield Table(columns, tuple(rows))
    yield Text(
        "after / before: tokens per second. The two were not measured in pairs: what happened to "
        "the machine between them is not in these intervals. Ratios to the baseline are paired."
    )
    yield from _charts(before, after)


def _change(before: Results, after: Results, name: str, load: Load) -> Ratio | None:
    old = [math.log(m.tok_s) for m in of(before, name, load)]
    new = [math.log(m.tok_s) for m in of(after, name, load)]
    if not old or not new:
        return None
    mean = math.exp(fmean(new) - fmean(old))
    found = unpaired_difference(new, old, after.settings.confidence)
    if found is None:
        return Ratio(mean, None, None, min(len(old), len(new)))
    return Ratio(mean, math.exp(found[0]), math.exp(found[1]), min(len(old), len(new)))


def _to_baseline(results: Results, name: str, load: Load) -> str:
    return (
        "1" if name == baseline(results) else times(ratio(results, name, baseline(results), load))
    )


def _loads(before: Results, after: Results) -> list[Load]:
    return [load for load in before.loads if load in after.loads]


def _charts(before: Results, after: Results) -> Iterator[Chart]:
    common = [name for name in names(before) if name in names(after)]

    def value(results: Results, name: str, load: Load) -> float | None:
        speeds = [m.tok_s for m in of(results, name, load)] if name in common else []
        return fmean(speeds) if speeds else None

    title = "tokens per second: before dashed, after solid"
    new = charts(after, title, lambda name, load: value(after, name, load))
    old = charts(before, title, lambda name, load: value(before, name, load), suffix=" before")
    found = {chart.x_label: chart for chart in new}
    for chart in old:
        if chart.x_label in found:
            solid = found[chart.x_label].series
            numbers = {one.name: one.number for one in solid}
            dashed = tuple(
                Series(
                    one.name,
                    numbers.get(one.name.removesuffix(" before"), one.number),
                    one.points,
                    dashed=True,
                )
                for one in chart.series
            )
            yield Chart(title, chart.x_label, solid + dashed)


def _answers(before: Results, after: Results) -> Iterator[Part]:
    rows = []
    for load in _loads(before, after):
        old, new = answer(before, load), answer(after, load)
        cells = (f"{one.kind}: {', '.join(one.best)}" for one in (old, new))
        same = (old.kind, set(old.best)) == (new.kind, set(new.best))
        rows.append((load.label, *cells, "" if same else "changed"))
    if rows:
        yield Table(("load", "before", "after", ""), tuple(rows), names=4)


def _notes(before: Results, after: Results) -> Iterator[Part]:
    for when, results in (("before", before), ("after", after)):
        if found := warnings(results):
            yield Items(tuple(f"{when}: {line}" for line in found), warning=True)
