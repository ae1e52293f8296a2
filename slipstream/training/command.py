"""``slipstream train``."""

from pathlib import Path
from typing import Annotated

import typer

from slipstream.sizes import parse_size
from slipstream.training.options import TrainingOptions

DEFAULTS = TrainingOptions()


def train(
    model: Annotated[
        str,
        typer.Argument(
            help="The target: 'default', a folder, a .gguf file, or a Hugging Face name."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the corpus, the state and the drafter.")],
    prompts: Annotated[
        list[Path] | None,
        typer.Option(help="JSON lines of your own prompts, in place of those written for this."),
    ] = None,
    conversations: Annotated[
        int, typer.Option(min=1, help="How many prompts the target answers.")
    ] = 5440,
    self_written: Annotated[
        int, typer.Option(min=0, help="How many more prompts it writes itself, and answers.")
    ] = 3392,
    answer_tokens: Annotated[int, typer.Option(min=8, help="Of each answer, at most.")] = 128,
    disk: Annotated[
        str, typer.Option(metavar="SIZE", help="What the corpus may take; prompts are left out.")
    ] = "16GiB",
    draft_vocabulary: Annotated[
        int, typer.Option(min=16, help="Tokens that the drafter can guess.")
    ] = 8192,
    corpus: Annotated[
        Path | None, typer.Option(help="Folder of answers that are there. Default: OUT/corpus.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="A drafter to go on from, in place of a new one.")
    ] = None,
    levels: Annotated[
        int, typer.Option(min=1, max=16, help="Depth trained for.")
    ] = DEFAULTS.levels,
    epochs: Annotated[
        float, typer.Option(min=0.01, max=1000, help="Passes over the corpus.")
    ] = DEFAULTS.epochs,
    learning_rate: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="At its peak.")
    ] = DEFAULTS.learning_rate,
    batch_tokens: Annotated[
        int, typer.Option(min=64, help="Of one optimizer step.")
    ] = DEFAULTS.batch_tokens,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the order of conversations, and of first weights.")
    ] = DEFAULTS.seed,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: all cores.")] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Only measure the drafter in OUT/drafter.")
    ] = False,
) -> None:
    """Train an EAGLE-3 drafter for a model. Stopped at any time, it goes on where it was."""
    from slipstream.training.pipeline import Pipeline, Plan

    plan = Plan(
        model=model,
        folder=out,
        prompts=prompts or [],
        conversations=conversations,
        self_written=self_written,
        answer_tokens=answer_tokens,
        disk_bytes=parse_size("--disk", disk),
        draft_vocab_size=draft_vocabulary,
        training=TrainingOptions(
            levels=levels,
            epochs=epochs,
            learning_rate=learning_rate,
            batch_tokens=batch_tokens,
            threads=threads,
            seed=seed,
        ),
        corpus=corpus,
        start=start,
    )
    pipeline = Pipeline(plan)
    try:
        if not evaluate:
            pipeline.generate()
            pipeline.train()
        pipeline.evaluate()
    except KeyboardInterrupt:
        typer.echo(f"\nStopped. The same command goes on from what is in {out}.")
        raise typer.Exit(130) from None
