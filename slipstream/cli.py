"""The command line. Each command lives in the folder of its concern."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from slipstream import __version__
from slipstream.api.command import serve
from slipstream.bench.command import bench
from slipstream.engine.calibrate_command import calibrate
from slipstream.errors import UserError
from slipstream.info import info
from slipstream.models.commands import export, pull
from slipstream.several_values import SeveralValuesCommand
from slipstream.simulator.command import simulate
from slipstream.training.command import train
from slipstream.verdict.command import verdict

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A serving engine for large language models in which speculation can be left on.",
)
for command in (serve, bench, verdict, simulate, train, calibrate, pull, export, info):
    app.command(cls=SeveralValuesCommand)(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print it and exit."),
    ] = False,
) -> None:
    """What may stand before a command."""


def main() -> None:
    """Run the command line; bad input prints one line and exits with status 2."""
    try:
        app()
    except UserError as error:
        console = Console(stderr=True, soft_wrap=True, highlight=False)
        console.print(f"[bold red]error:[/] {escape(str(error))}")
        sys.exit(2)
