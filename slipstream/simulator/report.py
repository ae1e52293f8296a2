"""What a simulation says, for people: tables and a plot."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from slipstream.simulator import fit
from slipstream.simulator.machine import Machine


class Level(msgspec.Struct, frozen=True):
    """Tokens per second of each configuration with so many requests in flight, and draft nodes that
    a request had verified in a step of the adaptive one."""

    concurrency: int
    tok_s: dict[str, float]
    nodes: float

    @property
    def adaptive_to_best(self) -> float:
        """Adaptive to the best of the others."""
        others = [rate for name, rate in self.tok_s.items() if name != "adaptive"]
        return self.tok_s["adaptive"] / max(others)


def levels_table(levels: Sequence[Level]) -> Table:
    """A row for each level."""
    table = Table("C", *levels[0].tok_s, "adaptive / best", "adaptive / off", "nodes")
    for level in levels:
        best = max(level.tok_s, key=lambda name: level.tok_s[name])
        rates = [
            f"[bold]{rate:.1f}[/]" if name == best else f"{rate:.1f}"
            for name, rate in level.tok_s.items()
        ]
        to_off = level.tok_s["adaptive"] / level.tok_s["off"]
        ratios = [f"{level.adaptive_to_best:.2f}", f"{to_off:.2f}", f"{level.nodes:.1f}"]
        table.add_row(str(level.concurrency), *rates, *ratios)
    return table


def fit_tables(machine: Machine, rates: Sequence[float]) -> tuple[Table, Table]:
    """The fitted numbers with their bounds, and what was measured beside the ``rates`` that the
    machine gives."""
    numbers = Table("number", "fitted", "at least", "at most", "why")
    for parameter, value in zip(fit.PARAMETERS, fit.values_of(machine), strict=True):
        bounds = [f"{bound:.4g}" for bound in (parameter.least, parameter.most)]
        numbers.add_row(parameter.name, f"{value:.4g}", *bounds, parameter.reason)
    table = Table("tok/s", "measured", "simulated", "error", "")
    for measurement, rate in zip(fit.MEASUREMENTS, rates, strict=True):
        error = f"{rate / measurement.rate - 1:+.1%}"
        use = "fitted" if measurement.fitted else "predicted"
        table.add_row(measurement.name, f"{measurement.rate}", f"{rate:.1f}", error, use)
    return numbers, table


def plot_levels(levels: Sequence[Level], title: str, file: Path) -> None:
    """Throughput over concurrency, as SVG or what the name's ending says."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    concurrency = [level.concurrency for level in levels]
    for name in levels[0].tok_s:
        width = 2.5 if name == "adaptive" else 1.2
        rates = [level.tok_s[name] for level in levels]
        axes.plot(concurrency, rates, marker="o", markersize=4, linewidth=width, label=name)
    axes.set(xlabel="requests in flight", ylabel="tokens per second", title=title)
    axes.set(xscale="log", yscale="log", xticks=concurrency, xticklabels=map(str, concurrency))
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(file)
    plt.close(figure)
