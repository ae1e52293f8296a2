"""``slipstream verdict`` as a program."""

import asyncio
import fcntl
import os
import re
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from slipstream.bench.process_tree import members
from slipstream.errors import UserError
from slipstream.several_values import SeveralValuesCommand
from slipstream.verdict.command import verdict
from slipstream.verdict.results import Load, read

from ..bench.fake_server import serving

PROGRAM = str(Path(__file__).with_name("launched.py"))
SMALL = ["--max-tokens", "2", "--concurrency", "1", "2", "--rounds", "2", "--answers", "1"]
# Only this command, so that the test does not depend on the rest of the program.
MAIN = """
import signal, sys, typer
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits "ignored"
from slipstream.several_values import SeveralValuesCommand
from slipstream.verdict.command import verdict
assert not {"numpy", "aiohttp", "torch", "yaml"} & set(sys.modules)
app = typer.Typer(pretty_exceptions_enable=False)
app.command(cls=SeveralValuesCommand)(verdict)
app()
"""
IN_BACKGROUND = MAIN.replace("signal.default_int_handler", "signal.SIG_IGN")


def invoke(*args: str) -> Any:
    """The command in this process, which is quicker."""
    app = typer.Typer()
    app.command(cls=SeveralValuesCommand)(verdict)
    return CliRunner().invoke(app, args)


async def test_from_measuring_to_comparing(tmp_path: Path) -> None:
    """Once through all of it; what reports say is tested with them."""
    files = {name: tmp_path / f"it.{name}" for name in ("json", "html", "markdown", "log")}
    outputs = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    asked = ["--objective", "p95 itl 1s", "--load-distribution", "1:1,2:1", "--price", "2"]
    async with serving() as a, serving(chunk_seconds=0.002) as b:
        words = [f"fast={a.url}", f"slow={b.url}", "--baseline", "slow"]
        result = await asyncio.to_thread(invoke, *words, *SMALL, *asked, *outputs)
    assert (result.exception, result.exit_code) == (None, 0)
    results = read(files["json"])
    assert results.complete
    assert [c.name for c in results.configurations] == ["slow", "fast"]
    assert results.loads == [Load(concurrency=1), Load(concurrency=2)]
    assert len(results.measurements) == 8
    assert results.differences[0].different == 0
    assert "cpu" in results.hardware
    assert result.stdout.splitlines()[-1] == str(files["html"])
    assert files["html"].read_text().startswith("<!")
    for name in ("markdown", "log"):
        assert "fast" in files[name].read_text()
    assert "round 2: fast at C=2 | " in result.stderr

    again = invoke("--from", str(files["json"]), *asked)
    assert again.exit_code == 0
    assert again.stdout.strip() == result.stdout[: -len(f"{files['html']}\n")].strip()
    both = invoke("--compare", str(files["json"]), str(files["json"]))
    assert (both.exception, both.exit_code) == (None, 0)
    assert "Two verdicts" in both.stdout


async def test_something_that_fails_gives_status_1(tmp_path: Path) -> None:
    file = tmp_path / "it.json"
    broken = f"broken={sys.executable} -c 'print(\"no such flag\"); exit(2)' {{port}}"
    async with serving() as a:
        words = [f"a={a.url}", broken]
        result = await asyncio.to_thread(invoke, *words, *SMALL, "--json", str(file))
    assert result.exit_code == 1
    assert len(read(file).measurements) == 4
    assert len(read(file).failures) == 2
    assert "no such flag" in result.stderr


@pytest.mark.parametrize(
    ("number", "main"),
    [(signal.SIGINT, MAIN), (signal.SIGTERM, MAIN), (signal.SIGTERM, IN_BACKGROUND)],
)
async def test_ctrl_c_keeps_what_is_done_and_stops_servers(
    tmp_path: Path, number: signal.Signals, main: str
) -> None:
    file = tmp_path / "it.json"
    command = f"{sys.executable} {PROGRAM} {{port}} child"
    words = [f"a={command}", f"b={command}", *SMALL, "--rounds", "50", "--json", str(file)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", main, *words,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert process.stderr is not None
    async with asyncio.timeout(60):
        assert re.match(rb"round 1: a at C=1 \| ", await process.stderr.readline())
        marks = launch_marks()
        assert marks
        process.send_signal(number)
        output, _ = await process.communicate()
    assert process.returncode == 128 + number
    assert not any(members(mark) for mark in marks)
    results = read(file)
    assert results.measurements
    assert not results.complete
    assert output  # the report of what there is


@pytest.mark.parametrize("ignored", [False, True])
async def test_a_closed_terminal_leaves_the_reports(tmp_path: Path, ignored: bool) -> None:
    file, page = tmp_path / "it.json", tmp_path / "it.html"
    command = f"{sys.executable} {PROGRAM} {{port}}"
    words = [f"a={command}", f"b={command}", *SMALL, "--json", str(file), "--html", str(page)]
    words += ["--rounds", "2" if ignored else "50"]
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    process = await asyncio.create_subprocess_exec(
        *(["nohup"] if ignored else []), sys.executable, "-c", MAIN, *words,
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path,
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY),
    )  # fmt: skip
    os.close(theirs)
    async with asyncio.timeout(60):
        while not file.exists() or "tok_s" not in file.read_text():
            with suppress(OSError):  # nothing to read, or, under nohup, nobody who writes
                os.read(ours, 65536)
            await asyncio.sleep(0.02)
        os.close(ours)
        await process.wait()
    assert process.returncode == (0 if ignored else 128 + signal.SIGHUP)
    assert read(file).complete == ignored
    assert page.read_text().startswith("<!")


def launch_marks() -> set[str]:
    """Of all servers of these tests that run."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if PROGRAM.encode() in command:
            marks = [line for line in environment if line.startswith(b"SLIPSTREAM_LAUNCH=")]
            found |= {mark.partition(b"=")[2].decode() for mark in marks}
    return found


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give configurations to measure, such as self:off self:adaptive, or --from"),
        (["self:off", "--from", "x"], "give configurations to measure"),
        (["self:off"], "a verdict needs at least two configurations"),
        (["a=http://h", "b=http://g", "--concurrency", "0"], "--concurrency 0: give whole numbers"),
        (["a=http://h", "b=http://g", "--concurrency", ""], "no load is given: try --concurrency"),
        (["a=http://h", "b=http://g", "--price", "inf"], "--temperature and --price should be"),
        (["a=http://h", "b=http://g", "--log", "x", "--html", "./x"], "--log x: --html goes there"),
        (["--from", "x.json", "--json", "y.json"], "--json is for what is measured"),
        (["--compare", "x", "y", "--log", "z"], "--log takes verdicts"),
        (["a=http://h", "b=http://g", "--rate", "no"], "--rate no: give requests per second"),
        (["a=http://h", "b=http://g", "--html", "no/such/x"], "--html no/such/x: cannot write"),
        (["a=http://h", "b=http://g", "--log", "/"], "--log /: cannot write there"),
        (["a=http://h", "b=http://g", "--objective", "fast"], "the objective 'fast' should be"),
        (["a=http://h", "b=http://g", "--prompts", "x"], "no prompt set or file 'x'"),
        (["self:off", "it=serv {port}"], "it: there is no program serv along the PATH /"),
        (["self:off", "it=./serv {port}"], "it: there is no program /"),
        (["--from", "no/such.json"], "no/such.json: no such file"),
        (["--compare", "one.json"], "--compare takes two files, not 1"),
    ],
)
def test_bad_input_gets_one_line(args: list[str], message: str) -> None:
    result = invoke(*args)
    assert isinstance(result.exception, UserError)
    assert str(result.exception).startswith(message)
    assert "\n" not in str(result.exception)
    assert result.stdout == ""
