"""A report as Markdown."""

import re
from collections.abc import Iterator

from slipstream.verdict.report import Chart, Code, Items, Part, Report, Table, Text

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def markdown(report: Report) -> str:
    """Everything but the charts."""
    lines = [f"# {_escaped(report.title)}", "", _escaped(report.subtitle), ""]
    for section in report.sections:
        lines += [f"## {_escaped(section.title)}", ""]
        for part in section.parts:
            lines += lines_of(part)
    return "\n".join(lines)


def lines_of(part: Part) -> list[str]:
    """One part, with an empty line after it."""
    match part:
        case Text(text):
            return [_escaped(text), ""]
        case Items(items, warning):
            mark = "- **Note:** " if warning else "- "
            return [*(mark + _escaped(item) for item in items), ""]
        case Table():
            return [*_table(part), ""]
        case Code(title, text):
            return [f"{_escaped(title)}:", "", *_fenced(text), ""]
        case Chart():
            return []


def _table(table: Table) -> Iterator[str]:
    yield _row(table.columns)
    yield _row(
        tuple("---" if n < table.names else "---:" for n in range(len(table.columns))), raw=True
    )
    for row in table.rows:
        yield _row(row)


def _row(cells: tuple[str, ...], *, raw: bool = False) -> str:
    return f"| {' | '.join(cells if raw else map(_escaped, cells))} |"


def _fenced(text: str) -> list[str]:
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, text, fence]


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
