"""The native kernels' own tests, in C++: built as shipped, and run for every instruction set."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.kernels.native.isa import ISAS

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "kernel_tests"  # kept, so that only what has changed is compiled again
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "SLIPSTREAM_ISA"}
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**environment, "PATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def output() -> str:
    """What the test program prints: a line per test and instruction set."""
    for tools in (("cmake",), ("ninja",), ("c++", "g++", "clang++")):
        if not any(shutil.which(tool, path=PATH) for tool in tools):
            pytest.skip(f"building the tests needs {' or '.join(tools)}")
    configure = ("cmake", "-S", ".", "-B", BUILD, "-G", "Ninja")
    for command in (configure, ("cmake", "--build", BUILD)):
        built = run(*command)
        assert built.returncode == 0, built.stdout
    ran = run(BUILD / "kernel_tests")
    assert ran.returncode in (0, 1), ran.stdout  # or it crashed
    assert (ran.returncode == 1) == ("FAILED" in ran.stdout), ran.stdout
    return ran.stdout


@pytest.mark.parametrize("isa", ISAS)
def test_kernels(output: str, isa: str) -> None:
    lines = [line for line in output.splitlines() if line.startswith(f"{isa}: ")]
    if lines == [f"{isa}: not on this machine"]:
        pytest.skip(lines[0])
    assert lines and all(line.endswith(" passed") for line in lines), output
