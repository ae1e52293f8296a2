"""``slipstream bench``: the command line of the load generator."""

import asyncio
import json
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.errors import UserError

if TYPE_CHECKING:  # the rest is imported where it is used, so that --help is quick
    from slipstream.bench.client import Target
    from slipstream.bench.level import Load
    from slipstream.bench.prompt_sets import PromptDeck
    from slipstream.bench.report import Result

_LEVELS = ["1", "2", "5", "10", "30", "70", "100", "250"]
_OTHER_FILES = 100  # open ones besides the connections
_FAILED = 1  # the exit status when a level measured nothing
_INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended


def bench(
    url: Annotated[str, typer.Option(help="The server, like http://127.0.0.1:30000.")],
    concurrency: Annotated[
        list[str],
        typer.Option(metavar="N...", help="Requests in flight, one level each: 1 2 5 or 1,2,5."),
    ] = _LEVELS,
    max_tokens: Annotated[int, typer.Option(min=1, help="Output tokens of a request.")] = 512,
    prompts: Annotated[
        str,
        typer.Option(
            metavar="coding|encyclopedic|FILE.jsonl",
            help='A set, or a file: each line a string or an object with "prompt" or "messages".',
        ),
    ] = "coding",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the results here, too.")
    ] = None,
    requests: Annotated[
        int, typer.Option(min=0, help="At least so many a level, where above max(30, 3*N).")
    ] = 0,
    model: Annotated[str, typer.Option(help="Default: the one that the server serves.")] = "",
    api_key: Annotated[str, typer.Option(help="Sent as a bearer token.")] = "",
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    stream: Annotated[
        bool, typer.Option(help="Whether answers come token by token or in one piece.")
    ] = True,
    ignore_eos: Annotated[
        bool, typer.Option(help="Always generate --max-tokens, where the server can.")
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Of the prompts' order, and of sampling if --temperature is not 0.")
    ] = 0,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for one request.")] = 1800.0,
) -> None:
    """Measure any OpenAI-compatible server at several numbers of requests in flight.

    Exit status 1: at some level every request failed.
    """
    from slipstream.bench.client import RequestForm, Target
    from slipstream.bench.http import Endpoint
    from slipstream.bench.level import Load
    from slipstream.bench.prompt_sets import PromptDeck, load_prompts
    from slipstream.bench.report import RunInfo, document, level_text

    loads = [Load(level, max_tokens, requests) for level in levels(concurrency)]
    if not loads:
        raise UserError("no load is given: try --concurrency 1 4 16")
    make_room(max(load.concurrency for load in loads))
    form = RequestForm(model, stream, temperature, seed if temperature else None, ignore_eos)
    target = Target(Endpoint.of(url, api_key or None), form, timeout)
    texts = load_prompts(prompts)
    deck = PromptDeck(texts, seed)
    if json_file is not None:
        check_writable("--json", json_file)

    results: list[Result] = []
    interrupted = False
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            target = _prepare(runner, target)
            for load in loads:
                run, stats = _measure(runner, target, deck, load)
                results.append((run, stats))
                print(level_text(stats), flush=True)
        except KeyboardInterrupt:
            interrupted = True
            _note(f"interrupted: {len(results)} of {len(loads)} levels are done")
    if json_file is not None:
        info = RunInfo(target, prompts, len(texts), deck.repeats, max_tokens, seed, interrupted)
        json_file.write_text(json.dumps(document(info, results), indent=1) + "\n")
    if interrupted:
        raise typer.Exit(_INTERRUPTED)
    if failed := [str(stats.concurrency) for _, stats in results if not stats.ok]:
        _note(f"every request failed at concurrency {', '.join(failed)}")
        raise typer.Exit(_FAILED)


def _prepare(runner: asyncio.Runner, target: "Target") -> "Target":
    from slipstream.bench.probe import prepare

    target, notes = runner.run(prepare(target))
    for note in notes:
        _note(note)
    return target


def _measure(
    runner: asyncio.Runner, target: "Target", deck: "PromptDeck", load: "Load"
) -> "Result":
    from slipstream.bench.level import run_level
    from slipstream.bench.report import ProgressLine
    from slipstream.bench.statistics import level_stats

    repeated = deck.repeats
    with ProgressLine(f"C={load.concurrency:3d}", sys.stderr) as progress:
        run = runner.run(run_level(target, deck, load, progress.update))
    if deck.repeats and not repeated:
        _note("from this level on prompts repeat: the set has fewer than there are requests")
    return run, level_stats(run)


def loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    """The quickest event loop that there is."""
    try:
        from uvloop import Loop
    except ImportError:  # not made for every system
        return None
    return Loop


def levels(values: list[str]) -> list[int]:
    """The numbers in values of ``--concurrency``. Raises ``UserError`` if they are none."""
    words = " ".join(values).replace(",", " ").split()
    for word in words:
        if not word.isdecimal() or int(word) < 1:
            raise UserError(f"--concurrency {word}: give whole numbers from 1 on, like 1 2 5 10")
    return [int(word) for word in words]


def make_room(connections: int) -> None:
    """Let this process hold so many connections. Raises ``UserError`` where the system does not."""
    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard) and needed > hard:
        raise UserError(
            f"--concurrency {connections} needs {needed} open files, and the system allows {hard}: "
            "raise ulimit -Hn, or ask for fewer"
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def check_writable(option: str, path: Path) -> None:
    """Before a long measurement, not after it. Raises ``UserError``."""
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"{option} {path}: cannot write there; give a file in an existing folder")


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)
