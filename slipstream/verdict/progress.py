"""What a verdict shows while it measures: a line for each result, and below them how far it is."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from slipstream.verdict.results import Failure, Measurement

_PATIENCE_S = 60.0  # why a server is not ready is printed so often where there is no terminal


class Display:
    """An ``Observer`` (see ``rounds``) on a terminal; elsewhere only the lines are printed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            # It alone gets narrower where the terminal is.
            TextColumn("{task.fields[state]}", table_column=Column(ratio=1, no_wrap=True)),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            expand=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=None, state="")
        self._left = ""
        self._what = ""
        self._patience_until = time.monotonic() + _PATIENCE_S

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def doing(self, what: str, left_s: float | None) -> None:
        """See ``Observer``."""
        self._what, self._patience_until = what, time.monotonic() + _PATIENCE_S
        self._left = f", {duration(left_s)} left" if left_s is not None else ""
        self._progress.reset(self._task, total=None, description=escape(what))
        self._progress.update(self._task, state=f"starting{self._left}")

    def waiting(self, reason: str) -> None:
        """See ``Observer``."""
        first = reason.splitlines()[0]
        if not self._console.is_terminal and time.monotonic() > self._patience_until:
            self._patience_until = time.monotonic() + _PATIENCE_S
            self._console.print(escape(f"{self._what}: not ready: {first}"), soft_wrap=True)
        self._progress.update(self._task, state=escape(f"not ready: {first[:80]}{self._left}"))

    def requests(self, ended: int, of: int) -> None:
        """See ``Observer``."""
        state = f"{ended}/{of} requests{self._left}"
        self._progress.update(self._task, completed=ended, total=of, state=state)

    def found(self, result: Measurement | Failure) -> None:
        """See ``Observer``."""
        if isinstance(result, Failure):
            at = f" at {result.load.label}" if result.load else ""
            line = f"round {result.round + 1}: {result.configuration}{at}: {result.reason}"
            self._console.print(f"[bold red]failed[/] {escape(line)}", soft_wrap=True)
        else:
            self._console.print(escape(measured_line(result)), soft_wrap=True, highlight=False)


def measured_line(measurement: Measurement) -> str:
    """One measurement in one line."""
    parts = [
        f"round {measurement.round + 1}: {measurement.configuration} at {measurement.load.label}",
        f"{measurement.tok_s:.1f} tok/s",
    ]
    if measurement.itl_s:
        parts.append(f"itl p50/p95 {_ms(measurement.itl_s.p50)}/{_ms(measurement.itl_s.p95)} ms")
    if measurement.accepted_length:
        parts.append(f"accepted length {measurement.accepted_length:.2f}")
    return " | ".join(parts)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"


def duration(seconds: float) -> str:
    """For people: ``40 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
