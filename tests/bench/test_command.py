"""``slipstream bench`` as a program."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from slipstream.bench.command import bench, make_room
from slipstream.errors import UserError
from slipstream.several_values import SeveralValuesCommand

from .fake_server import serving

LINE = re.compile(
    r"C= {0,2}\d+ \| \d+ requests \| throughput: \d+\.\d tok/s \| per-req: \d+\.\d tok/s"
    r" \| latency avg/p50/p99: \d+\.\d/ *\d+\.\d/ *\d+\.\ds \| ok: \d+/\d+"
)
# Only this command, so that the test does not depend on the rest of the program.
PROGRAM = """
import signal, sys, typer
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits "ignored"
from slipstream.bench.command import bench
from slipstream.errors import UserError
from slipstream.several_values import SeveralValuesCommand
assert not {"numpy", "aiohttp", "torch"} & set(sys.modules)
app = typer.Typer(pretty_exceptions_enable=False)
app.command(cls=SeveralValuesCommand)(bench)
try:
    app()
except UserError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""


async def start(*args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        *args,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )


def invoke(*args: str) -> Any:
    """The command in this process, which is quicker."""
    app = typer.Typer()
    app.command(cls=SeveralValuesCommand)(bench)
    return CliRunner().invoke(app, args)


async def test_a_sweep(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    levels = ["--concurrency", "1", "3", "--max-tokens", "4"]
    async with serving(accepted_length=1.5, chunk_seconds=0.001) as fake:
        process = await start("--url", fake.url, *levels, "--json", str(file), "--ignore-eos")
        output, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    first, detail, second, other_detail = output.decode().splitlines()
    for line, start_of_line in ((first, "C=  1 | "), (second, "C=  3 | ")):
        assert LINE.fullmatch(line)
        assert line.startswith(start_of_line)
        assert line.endswith("| ok: 30/30")
    assert "accepted length: 1.50" in detail
    assert "accepted length: 1.50" in other_detail
    document = json.loads(file.read_text())
    assert [level["concurrency"] for level in document["levels"]] == [1, 3]
    assert [level["token_source"] for level in document["levels"]] == ["usage", "usage"]
    assert (document["model"], document["interrupted"]) == ("fake", False)
    assert all(body["ignore_eos"] is True for body in fake.bodies)
    assert all(body["temperature"] == 0 and "seed" not in body for body in fake.bodies)


async def test_options_reach_the_server(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    async with serving() as fake:
        levels = ["--concurrency", "2", "--max-tokens", "2"]
        options = ["--no-stream", "--temperature", "0.7", "--seed", "5", "--model", "mine"]
        result = await asyncio.to_thread(
            invoke, "--url", fake.url, *levels, *options, "--api-key", "k", "--json", str(file)
        )
    assert result.exit_code == 0
    assert "ttft" not in result.stdout
    assert all(
        (body["stream"], body["temperature"], body["seed"], body["model"])
        == (False, 0.7, 5, "mine")
        for body in fake.bodies
    )
    assert all(headers["Authorization"] == "Bearer k" for headers in fake.headers)
    document = json.loads(file.read_text())
    assert (document["stream"], document["temperature"], document["seed"]) == (False, 0.7, 5)
    assert document["levels"][0]["ttft_s"] is None


async def test_prompts_that_run_out_are_mentioned(tmp_path: Path) -> None:
    prompts = tmp_path / "few.jsonl"
    prompts.write_text('"One"\n"Two"\n')
    async with serving() as fake:
        levels = ["--concurrency", "1,2", "--max-tokens", "1", "--requests", "33"]
        result = await asyncio.to_thread(
            invoke, "--url", fake.url, *levels, "--prompts", str(prompts)
        )
    assert result.exit_code == 0
    assert [line[6:19] for line in result.stdout.splitlines()[::2]] == ["| 33 requests"] * 2
    assert result.stderr.count("\n") == 1
    assert "prompts repeat" in result.stderr
    assert {body["messages"][0]["content"] for body in fake.bodies[1:]} == {"One", "Two"}


async def test_failures_are_shown() -> None:
    # Request 0 is the probe, 1 the warm-up, 2 to 31 are measured.
    async with serving(status=lambda number: 500 if number == 9 else 200) as fake:
        result = await asyncio.to_thread(
            invoke, "--url", fake.url, "--concurrency", "1", "--max-tokens", "2"
        )
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].endswith("| ok: 29/30")
    assert lines[2] == "      | 1 failed; the first: HTTP 500: told to fail"


async def test_a_level_of_failures_only_ends_with_status_1(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    async with serving(status=lambda number: 400 if number > 33 else 200) as fake:
        levels = ["--concurrency", "1", "2", "--max-tokens", "1"]
        result = await asyncio.to_thread(invoke, "--url", fake.url, *levels, "--json", str(file))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[2].endswith("| ok: 0/30")
    assert result.stderr == "note: every request failed at concurrency 2\n"
    assert len(json.loads(file.read_text())["levels"]) == 2


async def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    async with serving() as fake:
        levels = ["--concurrency", "1", "2", "--max-tokens", "2"]
        process = await start("--url", fake.url, *levels, "--json", str(file))
        assert process.stdout is not None
        first = (await process.stdout.readline()).decode().strip()
        fake.chunk_seconds = 60.0  # the second level does not get anywhere
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
    assert LINE.fullmatch(first)
    assert process.returncode == 130
    assert errors.decode().splitlines() == ["note: interrupted: 1 of 2 levels are done"]
    document = json.loads(file.read_text())
    assert [level["concurrency"] for level in document["levels"]] == [1]
    assert document["interrupted"] is True


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--url", "ftp://x"], "'ftp://x' is not a server's address"),
        (["--url", "http://127.0.0.1:9"], "no server answers at http://127.0.0.1:9"),
        (["--url", "http://h", "--concurrency", "0"], "--concurrency 0: give whole numbers"),
        (["--url", "http://h", "--concurrency", "1", "x"], "--concurrency x: give whole numbers"),
        (["--url", "http://h", "--prompts", "none"], "no prompt set or file 'none'"),
        (["--url", "http://h", "--json", "no/such/folder/x"], "--json no/such/folder/x: cannot"),
    ],
)
def test_bad_input_gets_one_line(args: list[str], message: str) -> None:
    result = invoke(*args)
    assert isinstance(result.exception, UserError)
    assert str(result.exception).startswith(message)
    assert "\n" not in str(result.exception)
    assert result.stdout == ""


def test_room_for_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr("resource.getrlimit", lambda kind: (1024, 4096))
    monkeypatch.setattr("resource.setrlimit", lambda kind, limits: set_to.append(limits))
    make_room(900)
    assert set_to == []
    make_room(1000)
    assert set_to == [(1100, 4096)]
    with pytest.raises(UserError, match="--concurrency 5000 needs 5100 open files, and the system"):
        make_room(5000)
