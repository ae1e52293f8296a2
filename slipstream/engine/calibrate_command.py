"""``slipstream calibrate``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from slipstream.errors import UserError


def calibrate(
    model: Annotated[
        str, typer.Option(help="'default', a folder, a .gguf file, or a Hugging Face name.")
    ] = "default",
    drafter: Annotated[str, typer.Option(help="As for serve.")] = "auto",
    quantization: Annotated[
        Literal["none", "int8", "int4"], typer.Option(help="As for serve.")
    ] = "none",
    kv_dtype: Annotated[
        Literal["auto", "bf16", "int8"], typer.Option(help="As for serve.")
    ] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Default: all cores.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the costs: a .svg, .png or .pdf file.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the costs to a file.")] = None,
) -> None:
    """Measure what steps and drafts cost here, and keep it for servers with the same options."""
    for file in (plot, json):
        if file is not None and not file.absolute().parent.is_dir():
            raise UserError(f"cannot write {file}: there is no folder {file.absolute().parent}")
    import msgspec
    from rich.console import Console

    from slipstream.engine.calibrate import Calibration
    from slipstream.engine.calibrate_report import plot_costs, print_costs
    from slipstream.engine.load import load
    from slipstream.engine.options import EngineOptions

    options = EngineOptions(
        model=model,
        drafter=drafter,
        quantization=quantization,
        kv_dtype=kv_dtype,
        threads=threads,
        max_running_requests=64,
    )
    console = Console(soft_wrap=True, highlight=False)
    with console.status("loading the model"):
        loaded = load(options)
    with console.status("measuring"):
        tables = Calibration(loaded).run()
    print_costs(tables, console)
    try:
        if json is not None:
            json.write_bytes(msgspec.json.format(msgspec.json.encode(tables)) + b"\n")
        if plot is not None:
            plot_costs(tables, plot)
    except (OSError, ValueError) as error:  # matplotlib's, for an ending that it does not know
        raise UserError(f"cannot write the costs: {error}") from None
    loaded.costs.costs.restore(tables)
    if not loaded.costs.save():
        raise UserError("the costs could not be kept; set SLIPSTREAM_COSTS to a folder for them")
    console.print(f"Kept in {loaded.costs.path}")
