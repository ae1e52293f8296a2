"""A report on a terminal."""

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as RichText

from slipstream.verdict.report import Chart, Code, Items, Part, Report, Table, Text


def print_report(report: Report, console: Console) -> None:
    """Everything but the charts."""
    console.print(RichText(f"\n{report.title}", style="bold"), RichText(report.subtitle))
    for section in report.sections:
        console.print(RichText(f"\n{section.title}", style="bold"))
        for part in section.parts:
            _print(part, console)


def _print(part: Part, console: Console) -> None:
    match part:
        case Text(text):
            console.print(RichText(text, style="dim"))
        case Items(items, warning):
            for item in items:
                style = "yellow" if warning else ""
                grid = RichTable.grid(padding=(0, 1))
                grid.add_row("!" if warning else "-", RichText(item, style=style))
                console.print(grid)
        case Table():
            console.print(_table(part))
        case Code(title, text):
            console.print(RichText(title))
            # Not wrapped, so that it can be copied.
            console.print(RichText(text, style="cyan"), soft_wrap=True)
        case Chart():
            pass


def _table(table: Table) -> RichTable:
    found = RichTable(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for number, column in enumerate(table.columns):
        found.add_column(RichText(column), justify="left" if number < table.names else "right")
    previous = ""
    for row in table.rows:
        first = "" if row[0] == previous else row[0]
        previous = row[0]
        found.add_row(RichText(first), *(RichText(cell) for cell in row[1:]))
    return found
