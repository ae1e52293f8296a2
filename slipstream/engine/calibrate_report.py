"""Costs as a table and as a plot."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from slipstream.speculation.policy.cost_model import CostTables


def print_costs(tables: CostTables, console: Console) -> None:
    """Milliseconds by rows, evidence (about how many passes it rests on), and relative to one row;
    of the places that were measured."""
    table = Table(
        "rows", *("step ms", "evidence", "to 1 row"), *("draft ms", "evidence", "to 1 row")
    )
    for column in table.columns:
        column.justify = "right"
    one_row = (tables.target[0][1], tables.drafter[0][1])
    for places in zip(tables.target, tables.drafter, strict=True):
        if any(evidence for _, _, evidence in places):
            cells = [str(places[0][0])]
            for (_, seconds, evidence), first in zip(places, one_row, strict=True):
                known = (f"{1e3 * seconds:.2f}", f"{evidence:.0f}", f"{seconds / first:.2f}")
                cells += known if evidence else ("", "", "")
            table.add_row(*cells)
    console.print(table)
    console.print(
        f"A row's attention to 1000 tokens of context takes {1e6 * tables.attention:.3f} ms, and "
        f"reading them, once for all rows of a request, {1e6 * tables.reading:.3f} ms. A draft "
        f"takes {1e3 * tables.call:.3f} ms beside its passes, and {1e5 * tables.entry:.3f} ms more "
        "to catch up with 100 positions."
    )


def plot_costs(tables: CostTables, file: Path) -> None:
    """Milliseconds over rows, measured places only."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, table in (
        ("step of the target", tables.target),
        ("level of the drafter", tables.drafter),
    ):
        measured = [(rows, 1e3 * seconds) for rows, seconds, evidence in table if evidence]
        if measured:
            axes.plot(*zip(*measured, strict=True), marker=".", label=name)
    axes.set(xlabel="rows", ylabel="milliseconds", xscale="log", yscale="log")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file)
    plt.close(figure)
