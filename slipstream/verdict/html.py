"""A report as one HTML file that needs nothing else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from slipstream.verdict.plots import COLOURS, svg
from slipstream.verdict.report import Chart, Part, Report


def html(report: Report) -> str:
    """A page for screens of any width, dark ones too, and for paper."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = lambda chart: Markup(svg(chart))
    sections = [(one.title, list(_grouped(one.parts))) for one in report.sections]
    page = environment.get_template("page.html.jinja")
    return page.render(report=report, sections=sections, colours=COLOURS)


def _grouped(parts: tuple[Part, ...]) -> Iterator[tuple[str, Any]]:
    """Each part with its kind, charts that follow one another as one list."""
    charts: list[Chart] = []
    for part in parts:
        if isinstance(part, Chart):
            charts.append(part)
            continue
        if charts:
            yield "charts", charts
            charts = []
        yield type(part).__name__.lower(), part
    if charts:
        yield "charts", charts
