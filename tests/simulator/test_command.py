"""``slipstream simulate``: what it prints and writes, and what it refuses."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from slipstream.cli import app
from slipstream.errors import UserError
from slipstream.simulator.machine import TWO_AMX_CORES, load_machine

QUICK = ["simulate", "--concurrency", "1", "30", "--seconds", "2"]


def test_a_table_a_file_and_a_plot(tmp_path: Path) -> None:
    results, plot = tmp_path / "results.json", tmp_path / "plot.svg"
    run = CliRunner().invoke(app, [*QUICK, "--json", str(results), "--plot", str(plot)])
    assert run.exit_code == 0, run.output
    document = msgspec.json.decode(results.read_bytes())
    assert [level["concurrency"] for level in document["levels"]] == [1, 30]
    names = ["off", "fixed 4,4,16", "fixed 2,1,3", "schedule", "adaptive"]
    assert list(document["levels"][0]["tok_s"]) == names
    assert document["machine"]["weight_bytes"] == 96e6
    assert "<svg" in plot.read_text()


def test_a_machine_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(msgspec.json.encode(TWO_AMX_CORES))
    machine = load_machine(str(file), ["tile=32", "acceptance=0.9,0.8"])
    assert (machine.tile, machine.acceptance) == (32, (0.9, 0.8))
    assert machine.memory_rate == TWO_AMX_CORES.memory_rate


@pytest.mark.parametrize(
    ("content", "changes", "complaint"),
    [
        ("{}", [], "weight_bytes"),
        ("[1]", [], "give an object"),
        ("{", [], "truncated"),
        (None, [], "no such file"),
        ("", ["tile"], "write NAME=VALUE"),
        ("", ["colour=1"], "with one of"),
        ("", ["tile=many"], "not a number"),
        ("", ["tile=0"], "at least 1"),
        ("", ["memory_rate=0"], "memory_rate must be above 0"),
        ("", ["jitter=-1"], "jitter must not be below 0"),
        ("", ["acceptance=1.5"], "acceptance"),
    ],
)
def test_machines_that_make_no_sense(
    tmp_path: Path, content: str | None, changes: list[str], complaint: str
) -> None:
    file = tmp_path / "machine.json"
    if content:
        file.write_text(content)
    source = "two-amx-cores" if content == "" else str(file)
    with pytest.raises(UserError, match=complaint):
        load_machine(source, changes)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tree", "4,4"],
        ["--tree", "4,4,1"],
        ["--schedule", "8=x"],
        ["--concurrency", "0"],
        ["--json", "/no/such/folder/file"],
    ],
)
def test_options_that_make_no_sense(arguments: list[str]) -> None:
    run = CliRunner().invoke(app, ["simulate", *arguments])
    assert isinstance(run.exception, UserError)
    assert "\n" not in str(run.exception)
