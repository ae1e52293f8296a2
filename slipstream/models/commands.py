"""``slipstream pull`` and ``slipstream export``."""

from pathlib import Path
from typing import Annotated

import typer

_MODEL_HELP = "'default', a folder, a .gguf file, or a Hugging Face name like owner/name."


def pull(model: Annotated[str, typer.Argument(help=_MODEL_HELP)] = "default") -> None:
    """Fetch a model, so that serving it later needs no network, and check that it is whole."""
    from slipstream.models.checkpoint import open_checkpoint
    from slipstream.models.tokenizer import load_tokenizer

    checkpoint = open_checkpoint(model)
    load_tokenizer(checkpoint)
    typer.echo(f"{checkpoint.name} is ready.")


def export(
    model: Annotated[str, typer.Argument(help=_MODEL_HELP)],
    out: Annotated[Path, typer.Option(help="Folder to write; it must be new or empty.")],
) -> None:
    """Write a model as a Hugging Face folder: bf16 safetensors, configuration and tokenizer."""
    from slipstream.models.checkpoint import open_checkpoint
    from slipstream.models.export import export_checkpoint

    checkpoint = open_checkpoint(model)
    export_checkpoint(checkpoint, out)
    typer.echo(f"Wrote {checkpoint.name} to {out}.")
