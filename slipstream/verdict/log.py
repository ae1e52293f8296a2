"""A living record: each verdict as a dated entry at the end of a Markdown file."""

from pathlib import Path

from slipstream.errors import UserError
from slipstream.verdict.contents import Questions, contents, day, facts, models, summary
from slipstream.verdict.markdown import lines_of
from slipstream.verdict.report import Items, Table
from slipstream.verdict.results import Results
from slipstream.verdict.sentences import conclusions, warnings

_KEPT = ("Settings to paste", "Your load", "Latency objectives")


def append_entry(
    path: Path, results: Results, questions: Questions | None = None, data: Path | None = None
) -> None:
    """Adds an entry; the file begins with a heading if it is new. ``data`` is the JSON's path.

    Failures and dead ends are in it as well. Raises ``UserError`` if it cannot be written.
    """
    try:
        new = not path.exists() or not path.stat().st_size
        with path.open("a", encoding="utf-8") as file:
            file.write("# Verdicts\n\nThe newest is last.\n" if new else "")
            file.write("\n" + entry(results, questions, data))
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def entry(results: Results, questions: Questions | None = None, data: Path | None = None) -> str:
    """One entry: the date and models, conclusion, table, what went wrong, how it was measured."""
    lines = [f"## {': '.join(filter(None, (day(results), models(results))))}", ""]
    lines += lines_of(Items(conclusions(results)))
    lines += lines_of(summary(results))
    if found := warnings(results):
        lines += lines_of(Items(found, warning=True))
    for section in contents(results, questions).sections:
        if section.title in _KEPT:
            for part in section.parts:
                lines += lines_of(part)
    lines += lines_of(Items(tuple(facts(results)) + ((f"Data: {data}",) if data else ())))
    lines += lines_of(_versions(results))
    return "\n".join(lines)


def _versions(results: Results) -> Table:
    rows = tuple(
        (
            one.name,
            " ".join(f"{name} {version}" for name, version in one.versions.items()) or "-",
            " ".join(one.command) if one.command else one.url,
        )
        for one in results.configurations
    )
    return Table(("configuration", "versions", "command or address"), rows, names=3)
