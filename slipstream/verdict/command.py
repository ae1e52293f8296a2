"""``slipstream verdict``: the command line."""

import asyncio
import os
import signal
import stat
import threading
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.errors import UserError

if TYPE_CHECKING:  # the rest is imported where it is used, so that --help is quick
    from slipstream.verdict.contents import Questions
    from slipstream.verdict.outputs import Outputs
    from slipstream.verdict.results import Load, Settings
    from slipstream.verdict.rounds import Plan, Rounds

_LEVELS = ["1", "4", "16", "64"]
_INCOMPLETE = 1  # the exit status when something could not be measured
_SIGNALLED = 128  # and the signal's number: the exit status of a program that one ended

_HOW = "How it is measured"
_WHAT = "What else you want to know"
_WHERE = "Where it goes"


def verdict(
    configurations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONFIGURATION...",
            help="A YAML file; a template such as self:off, self:fixed:4,4,16, self:adaptive, "
            "vllm:3, sglang:4,4,16, llama-server:off; NAME=http://host:port; or "
            "'NAME=command ... {port}'. They come before the options.",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to compare with. Default: the first.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="For templates.")] = None,
    drafter: Annotated[str | None, typer.Option(help="For templates.")] = None,
    concurrency: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N...",
            help=f"Requests in flight: 1 2 5 or 1,2,5. Default: {' '.join(_LEVELS)}.",
            rich_help_panel=_HOW,
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="R...",
            help="Or requests that arrive at random, so many a second.",
            rich_help_panel=_HOW,
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="At most; a load may end early.", rich_help_panel=_HOW)
    ] = 6,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Output tokens of a request.", rich_help_panel=_HOW)
    ] = 128,
    requests: Annotated[
        int,
        typer.Option(
            min=0, help="At least so many a load; 30 and 3*N at least.", rich_help_panel=_HOW
        ),
    ] = 0,
    prompts: Annotated[
        str,
        typer.Option(
            metavar="coding|encyclopedic|FILE.jsonl",
            help='A set, or a file: each line a string or an object with "prompt" or "messages".',
            rich_help_panel=_HOW,
        ),
    ] = "coding",
    repeat_prompts: Annotated[
        bool,
        typer.Option(
            "--repeat-prompts",
            help="The same prompts in each round, as they are: prefix caches help.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 is greedy.", rich_help_panel=_HOW)
    ] = 0.0,
    ignore_eos: Annotated[
        bool,
        typer.Option(
            help="Always generate --max-tokens, where the server can.", rich_help_panel=_HOW
        ),
    ] = True,
    side_by_side: Annotated[
        bool,
        typer.Option(
            "--side-by-side", help="Run all servers at once, ask in turn.", rich_help_panel=_HOW
        ),
    ] = False,
    all_rounds: Annotated[
        bool, typer.Option("--all-rounds", help="End no load early.", rich_help_panel=_HOW)
    ] = False,
    answers: Annotated[
        int,
        typer.Option(min=0, help="Prompts whose answers are compared.", rich_help_panel=_HOW),
    ] = 8,
    silence: Annotated[
        float,
        typer.Option(min=1.0, help="Seconds without a byte: it hangs.", rich_help_panel=_HOW),
    ] = 300.0,
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="MINUTES",
            help="Start no round that would end later.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    api_key: Annotated[
        str, typer.Option(help="Sent as a bearer token.", rich_help_panel=_HOW)
    ] = "",
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help="Such as 'p95 itl 50ms': the most tokens per second that keep to it.",
            rich_help_panel=_WHAT,
            show_default=False,
        ),
    ] = None,
    load_distribution: Annotated[
        str | None,
        typer.Option(
            metavar="N:SHARE,...|FILE.json",
            help="How often so many requests run, such as 1:0.5,10:0.3,30:0.2.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option(min=0.0, help="Dollars per hour of the machine.", rich_help_panel=_WHAT),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="FILE", help="All samples, after each load.", rich_help_panel=_WHERE
        ),
    ] = None,
    html_file: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="One page.", rich_help_panel=_WHERE),
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", rich_help_panel=_WHERE)
    ] = None,
    log_file: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", help="Add a dated entry.", rich_help_panel=_WHERE),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE.json",
            help="Render it; measure nothing.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="A.json B.json",
            help="What has changed from A to B.",
            rich_help_panel=_WHERE,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Find out whether speculation pays here, at your load, and what should be set.

    Exit status 1: something could not be measured. 2: bad input. 129, 130, 143: interrupted; what
    was measured before is kept and shown.
    """
    from slipstream.verdict.contents import Questions
    from slipstream.verdict.load_distribution import parse_distribution
    from slipstream.verdict.objectives import parse_objective
    from slipstream.verdict.outputs import Outputs

    if sum(map(bool, (configurations, from_file, compare))) != 1:
        raise UserError(
            "give configurations to measure, such as self:off self:adaptive, or --from FILE.json, "
            "or --compare A.json B.json"
        )
    if not all(isfinite(number) for number in (temperature, price or 0.0)):
        raise UserError("--temperature and --price should be finite numbers")
    questions = Questions(
        tuple(parse_objective(text) for text in objective or ()),
        parse_distribution(load_distribution) if load_distribution else None,
        price,
    )
    outputs = Outputs(json_file, html_file, markdown_file, log_file)
    outputs.check()
    if json_file and (compare or from_file):
        raise UserError("--json is for what is measured; --from and --compare read such files")
    if compare and log_file:
        raise UserError("--log takes verdicts; for --compare give --markdown or --html")
    if compare:
        raise typer.Exit(_compare(compare, outputs))
    if from_file:
        from slipstream.verdict.results import read

        results = read(from_file)
        outputs.render(results, questions, from_file)
        raise typer.Exit(0)

    from slipstream.bench.client import RequestForm
    from slipstream.bench.prompt_sets import load_prompts
    from slipstream.verdict.configuration import candidates_of
    from slipstream.verdict.results import Settings
    from slipstream.verdict.rounds import Plan
    from slipstream.verdict.templates import Ingredients

    plan = Plan(
        candidates=candidates_of(configurations or [], Ingredients(model, drafter), baseline),
        prompts=load_prompts(prompts),
        form=RequestForm(
            "", temperature=temperature, seed=0 if temperature else None, ignore_eos=ignore_eos
        ),
        requests=requests,
        answers=answers,
        silence_s=silence,
        time_limit_s=None if time_limit is None else 60 * time_limit,
        api_key=api_key or None,
    )
    for candidate in plan.candidates:
        if candidate.command:
            candidate.launch().check()
    settings = Settings(
        prompts=prompts,
        max_tokens=max_tokens,
        temperature=temperature,
        ignore_eos=ignore_eos,
        rounds=rounds,
        side_by_side=side_by_side,
        repeated_prompts=repeat_prompts,
        stop_early=not all_rounds,
    )
    raise typer.Exit(_measure(plan, settings, _loads(concurrency, rate), questions, outputs))


def _compare(files: list[Path], outputs: "Outputs") -> int:
    from slipstream.verdict.difference_report import difference_report
    from slipstream.verdict.results import read

    if len(files) != 2:
        raise UserError(f"--compare takes two files, not {len(files)}: the earlier, then the later")
    outputs.show(difference_report(read(files[0]), read(files[1])))
    return 0


def _loads(concurrency: list[str] | None, rate: list[str] | None) -> "list[Load]":
    """Each once, in the order in which they were given."""
    from slipstream.bench.arrivals import MOST_IN_FLIGHT
    from slipstream.bench.command import levels, make_room
    from slipstream.verdict.results import Load

    wanted = concurrency or ([] if rate else _LEVELS)
    loads = [Load(concurrency=level) for level in levels(wanted)]
    for word in " ".join(rate or []).replace(",", " ").split():
        try:
            value = float(word)
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise UserError(f"--rate {word}: give requests per second, like 0.5 2 10")
        loads.append(Load(rate=value))
    if not loads:
        raise UserError("no load is given: try --concurrency 1 4 16, or --rate 0.5 2")
    make_room(max(load.concurrency or MOST_IN_FLIGHT for load in loads))
    return list(dict.fromkeys(loads))


def _measure(
    plan: "Plan",
    settings: "Settings",
    loads: "list[Load]",
    questions: "Questions",
    outputs: "Outputs",
) -> int:
    """Measure and render; gives the exit status."""
    from slipstream import __version__
    from slipstream.bench.command import loop_factory
    from slipstream.verdict.measurement import hardware
    from slipstream.verdict.outputs import console
    from slipstream.verdict.progress import Display
    from slipstream.verdict.results import Results
    from slipstream.verdict.rounds import Rounds

    results = Results(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        slipstream=__version__,
        hardware=hardware(),
        settings=settings,
        configurations=[candidate.described() for candidate in plan.candidates],
        loads=loads,
    )
    ended_by: list[int] = []
    try:
        with (
            Display(console(stderr=True)) as display,
            asyncio.Runner(loop_factory=loop_factory()) as runner,
        ):
            rounds = Rounds(plan, results, display, lambda: outputs.save(results))
            runner.run(_until_ended(rounds, ended_by))
    except (KeyboardInterrupt, asyncio.CancelledError):
        ended_by.append(signal.SIGINT)
    if results.measurements or not ended_by:
        outputs.render(results, questions, outputs.json)
    if ended_by:
        typer.echo(
            "interrupted" if results.measurements else "interrupted before any result", err=True
        )
        return _SIGNALLED + ended_by[0]
    measured = {(m.configuration, m.load) for m in results.measurements}
    return 0 if len(measured) == len(plan.candidates) * len(loads) else _INCOMPLETE


async def _until_ended(rounds: "Rounds", ended_by: list[int]) -> None:
    """What asks this process to end does what Ctrl-C does, and is noted."""
    loop, measuring = asyncio.get_running_loop(), asyncio.current_task()

    def end(number: int) -> None:
        ended_by.append(number)
        if number == signal.SIGHUP:
            _leave_terminal()
        if measuring:
            measuring.cancel()

    if threading.current_thread() is threading.main_thread():  # only that one may ask for it
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                loop.add_signal_handler(number, end, number)
    await rounds.run()


def _leave_terminal() -> None:
    """It is gone: writing to it would raise errors, and the reports are still to be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):  # a closed terminal is no tty any more
            os.dup2(nowhere, stream)
    os.close(nowhere)
