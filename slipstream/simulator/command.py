"""``slipstream simulate``: the command line of the simulator."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.errors import UserError

if TYPE_CHECKING:  # the rest is imported where it is used, so that --help is quick
    from rich.console import Console

    from slipstream.simulator.machine import Machine
    from slipstream.simulator.report import Level
    from slipstream.speculation.policy.settings import Speculation

_LEVELS = ["1", "2", "5", "10", "30", "70", "100", "250"]
_TREES = ["4,4,16", "2,1,3"]
_MOST_ROWS = 256  # of one tree


def simulate(
    machine: Annotated[
        str,
        typer.Option(
            metavar="two-amx-cores|eight-pcie-gpus|FILE.json",
            help="A machine with its model and drafter; a file has the numbers that --json writes.",
        ),
    ] = "two-amx-cores",
    changes: Annotated[
        list[str],
        typer.Option("--set", metavar="NAME=VALUE...", help="Numbers of the machine to change."),
    ] = [],  # noqa: B006
    concurrency: Annotated[
        list[str], typer.Option(metavar="N...", help="Requests in flight: 1 2 5 or 1,2,5.")
    ] = _LEVELS,
    tree: Annotated[
        list[str],
        typer.Option(metavar="L,K,N...", help="Fixed trees: levels, topk, draft tokens with root."),
    ] = _TREES,
    schedule: Annotated[
        str, typer.Option(help="Draft tokens by running requests, in the first fixed tree.")
    ] = "1-4=16,5-16=4,17-=1",
    output_tokens: Annotated[int, typer.Option(min=1, help="Of a request.")] = 512,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Simulated for each level; the first quarter warms up.")
    ] = 40.0,
    seed: Annotated[int, typer.Option(min=0, help="Of lengths and of what is accepted.")] = 0,
    fit: Annotated[
        bool,
        typer.Option("--fit", help="How the numbers of eight-pcie-gpus were found, and how good."),
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the results here, too.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw throughput over concurrency.")
    ] = None,
) -> None:
    """Predict throughput with and without speculation on a machine described by a few numbers.

    The policy is the server's own; time is simulated.
    """
    import msgspec
    from rich.console import Console

    from slipstream.simulator.machine import load_machine
    from slipstream.simulator.report import levels_table, plot_levels

    for name, file in (("--json", json_file), ("--plot", plot)):
        _check_writable(name, file)
    console = Console()
    if fit:
        _fit(console)
        return
    described = load_machine(machine, changes)
    configurations = _configurations(tree, schedule)
    levels: list[Level] = []
    with Console(stderr=True).status("simulating") as status:
        for count in _levels(concurrency):
            status.update(f"simulating {count} requests in flight")
            levels.append(_level(described, configurations, count, output_tokens, seconds, seed))
    console.print(levels_table(levels))
    if json_file is not None:
        document = {"machine": described, "levels": levels}
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    if plot is not None:
        plot_levels(levels, f"simulated: {Path(machine).stem}", plot)


def _level(
    machine: "Machine",
    configurations: "dict[str, Speculation]",
    concurrency: int,
    output: int,
    seconds: float,
    seed: int,
) -> "Level":
    from slipstream.simulator.report import Level
    from slipstream.simulator.run import simulate as run
    from slipstream.simulator.workload import Workload

    workload = Workload(load=((0.0, concurrency),), output=(output, output))
    traces = {
        name: run(machine, workload, speculation, seconds, seed=seed)
        for name, speculation in configurations.items()
    }
    adaptive, start = traces["adaptive"], seconds / 4
    return Level(
        concurrency,
        {name: trace.rate(start) for name, trace in traces.items()},
        adaptive.mean(adaptive.kept, start) / concurrency,
    )


def _fit(console: "Console") -> None:
    from slipstream.simulator.fit import MEASUREMENTS, fit, predicted
    from slipstream.simulator.machine import EIGHT_PCIE_GPUS
    from slipstream.simulator.report import fit_tables

    fitted = fit(EIGHT_PCIE_GPUS)
    for table in fit_tables(fitted, [predicted(fitted, each) for each in MEASUREMENTS]):
        console.print(table)


def _configurations(trees: list[str], schedule: str) -> "dict[str, Speculation]":
    from slipstream.speculation.policy.settings import OFF, Speculation, parse_schedule
    from slipstream.speculation.tree import TreeShape

    shapes = {text: TreeShape(*numbers) for text, numbers in _trees(trees)}
    if not shapes:
        raise UserError("--tree: give at least one, like 4,4,16")
    first = next(iter(shapes.values()))
    try:
        steps = parse_schedule(schedule, _MOST_ROWS)
    except ValueError as error:
        raise UserError(f"--schedule: {error}") from None
    fixed = {f"fixed {text}": Speculation("fixed", shape) for text, shape in shapes.items()}
    scheduled = Speculation("schedule", first, steps)
    return {"off": OFF, **fixed, "schedule": scheduled, "adaptive": Speculation("adaptive")}


def _trees(values: list[str]) -> Iterator[tuple[str, list[int]]]:
    for value in values:
        numbers = [int(word) if word.isdecimal() else 0 for word in value.split(",")]
        if len(numbers) != 3 or min(numbers) < 1 or not 2 <= numbers[2] <= _MOST_ROWS:
            raise UserError(
                f"--tree {value}: give levels, topk and draft tokens, the root included, like "
                f"4,4,16; at least 1, 1, 2 and at most {_MOST_ROWS} draft tokens"
            )
        yield value, numbers


def _levels(values: list[str]) -> list[int]:
    words = " ".join(values).replace(",", " ").split()
    for word in words:
        if not word.isdecimal() or int(word) < 1:
            raise UserError(f"--concurrency {word}: give whole numbers from 1 on, like 1 2 5 10")
    return [int(word) for word in words]


def _check_writable(name: str, file: Path | None) -> None:
    """Before a long simulation, not after it."""
    if file is not None and (
        file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK)
    ):
        raise UserError(f"{name} {file}: cannot write there; give a file in an existing folder")
