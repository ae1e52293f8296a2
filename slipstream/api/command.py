"""``slipstream serve``."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from slipstream.errors import UserError
from slipstream.sizes import parse_size

if TYPE_CHECKING:
    from slipstream.engine.params import Speculation


class LogLevel(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def serve(
    model: Annotated[
        str, typer.Option(help="'default', a folder, a .gguf file, or a Hugging Face name.")
    ] = "default",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 30000,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="SLIPSTREAM_API_KEY", help="Clients must send it as a bearer token."),
    ] = None,
    quantization: Annotated[
        Literal["none", "int8", "int4"],
        typer.Option(help="Round the weights to fewer bits while loading."),
    ] = "none",
    max_model_len: Annotated[
        int | None, typer.Option(min=2, help="Prompt and output together, in tokens.")
    ] = None,
    max_running_requests: Annotated[int, typer.Option(min=1, help="Run at once.")] = 256,
    max_queued_requests: Annotated[
        int, typer.Option(min=0, help="Wait beyond those; more get status 429.")
    ] = 1024,
    kv_memory: Annotated[
        str | None, typer.Option(help="For keys and values, such as 2GiB.", metavar="SIZE")
    ] = None,
    kv_dtype: Annotated[
        Literal["auto", "bf16", "int8"],
        typer.Option(help="Of keys and values. auto is bf16, or float32 with the torch kernels."),
    ] = "auto",
    max_step_rows: Annotated[
        int, typer.Option(min=16, help="Tokens of one step, drafts apart.")
    ] = 256,
    served_model_name: Annotated[str | None, typer.Option(help="What clients call it.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: all cores.")] = None,
    no_prefix_cache: Annotated[
        bool, typer.Option("--no-prefix-cache", help="Compute every prompt anew.")
    ] = False,
    speculation: Annotated[
        str,
        typer.Option(
            help="For requests that do not say: adaptive, off, fixed, or draft tokens by running "
            "requests, such as schedule:1-8=16,9-32=4,33-=1.",
            metavar="MODE",
        ),
    ] = "adaptive",
    speculative_num_steps: Annotated[int | None, typer.Option(help="Levels of the tree.")] = None,
    speculative_eagle_topk: Annotated[int | None, typer.Option(help="Branches per node.")] = None,
    speculative_num_draft_tokens: Annotated[
        int | None, typer.Option(help="Nodes of the tree, the root included.")
    ] = None,
    drafter: Annotated[
        str,
        typer.Option(
            help="ngram, or an EAGLE-3 drafter as a folder or a Hugging Face name. auto is the one "
            "that was trained for the default model, and ngram for other models."
        ),
    ] = "auto",
    log_level: Annotated[LogLevel, typer.Option(help="debug logs every request.")] = LogLevel.info,
) -> None:
    """Serve a model over an OpenAI-compatible HTTP API."""
    from slipstream.api.launch import launch_engine, listen
    from slipstream.engine.options import EngineOptions

    if api_key is not None and not (api_key and api_key.isascii() and api_key.isprintable()):
        raise UserError("the API key must be printable ASCII, at least one character")
    shape = (speculative_num_steps, speculative_eagle_topk, speculative_num_draft_tokens)
    engine = EngineOptions(
        model=model,
        quantization=quantization,
        max_model_len=max_model_len,
        max_running_requests=max_running_requests,
        kv_memory=None if kv_memory is None else parse_size("--kv-memory", kv_memory),
        kv_dtype=kv_dtype,
        max_step_rows=max_step_rows,
        prefix_cache=not no_prefix_cache,
        speculation=parse_speculation(speculation, *shape, max_step_rows=max_step_rows),
        drafter=drafter,
        threads=threads,
        log_level=log_level.value,
    )
    with listen(host, port) as listener:
        launched = launch_engine(engine)
        try:
            from slipstream.api.server import ServeOptions, run_server

            options = ServeOptions(
                engine=engine,
                api_key=api_key,
                served_model_name=served_model_name,
                max_queued_requests=max_queued_requests,
                log_level=log_level.value,
            )
            raise typer.Exit(run_server(options, listener, launched))
        finally:
            launched.kill()


def parse_speculation(
    text: str,
    num_steps: int | None,
    topk: int | None,
    num_draft_tokens: int | None,
    *,
    max_step_rows: int,
) -> "Speculation":
    """The server's default speculation. Raises UserError for what is unknown or does not fit."""
    from slipstream.api.tree_shape import tree_shape
    from slipstream.engine.params import Speculation
    from slipstream.speculation.policy.settings import EXAMPLE, parse_schedule

    mode, _, steps = text.partition(":")
    if text in ("off", "adaptive"):
        if any(number is not None for number in (num_steps, topk, num_draft_tokens)):
            raise UserError("the --speculative-* options need --speculation fixed or schedule:...")
        return Speculation("off" if text == "off" else "adaptive")
    if text != "fixed" and mode != "schedule":
        raise UserError(
            f"--speculation {text} is unknown; it should be adaptive, off, fixed, or a schedule "
            f"such as {EXAMPLE}"
        )
    if mode == "schedule" and num_draft_tokens is not None:
        raise UserError(
            "a schedule says how many draft tokens there are; leave "
            "--speculative-num-draft-tokens out"
        )
    try:
        shape = tree_shape(num_steps, topk, num_draft_tokens, max_step_rows)
        if mode == "schedule":
            return Speculation("schedule", shape, parse_schedule(steps, max_step_rows))
    except ValueError as error:
        raise UserError(f"--speculation {mode}: {error}") from None
    return Speculation("fixed", shape)
