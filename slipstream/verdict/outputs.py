"""Where a verdict's answer goes: the terminal and files."""

import sys
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

import typer
from rich.console import Console

from slipstream.bench.command import check_writable
from slipstream.errors import UserError
from slipstream.verdict.contents import Questions, contents
from slipstream.verdict.html import html
from slipstream.verdict.log import append_entry
from slipstream.verdict.markdown import markdown
from slipstream.verdict.report import Report
from slipstream.verdict.results import Results, write
from slipstream.verdict.terminal import print_report

_WIDTH = 120  # of tables that do not go to a terminal


@dataclass(frozen=True)
class Outputs:
    """Where the answer goes, besides the terminal."""

    json: Path | None
    html: Path | None
    markdown: Path | None
    log: Path | None

    def check(self) -> None:
        """Raise ``UserError`` if one of the files could not be written, or is given twice."""
        taken: dict[Path, str] = {}
        for name in ("json", "html", "markdown", "log"):
            if (path := getattr(self, name)) is None:
                continue
            check_writable(f"--{name}", path)
            other = taken.setdefault(path.resolve(), name)
            if other != name:
                raise UserError(f"--{name} {path}: --{other} goes there; give each its own file")

    def save(self, results: Results) -> None:
        """The JSON, also of partial results. A full disk does not end the measuring."""
        if self.json is None:
            return
        try:
            write(self.json, results)
        except OSError as error:
            typer.echo(f"note: cannot write {self.json}: {error.strerror}", err=True)

    def render(self, results: Results, questions: Questions, data: Path | None) -> None:
        """All reports of these results; ``data`` is where their JSON is.

        Raises ``UserError``, after all others, if a file cannot be written.
        """
        try:
            self.show(contents(results, questions))
        finally:
            if self.log is not None:
                append_entry(self.log, results, questions, data)

    def show(self, report: Report) -> None:
        """On the terminal and as files; the path of the page is the last line."""
        failed = []
        for path, text_of in ((self.markdown, markdown), (self.html, html)):
            if path is not None:
                try:
                    path.write_text(text_of(report), encoding="utf-8")
                except OSError as error:
                    failed.append(f"cannot write {path}: {error.strerror}")
        try:
            print_report(report, console())
        except BrokenPipeError:  # a pager that has seen enough
            raise
        except OSError as error:
            failed.append(f"cannot write to standard output: {error.strerror}")
        if failed:
            raise UserError("; ".join(failed))
        if self.html is not None:
            typer.echo(f"\n{self.html}")


def console(stderr: bool = False) -> Console:
    """Of standard output, or error; wide where it is no terminal, so that tables are whole."""
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")  # not every terminal can show what a model says
    found = Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDTH)
