"""``slipstream info`` and ``--version``, without a server."""

import os
import subprocess
import sys

import slipstream
from slipstream.kernels.native.isa import ISAS


def slipstream_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "slipstream", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


def test_info_says_what_runs_and_imports_nothing_heavy() -> None:
    done = slipstream_command("info", SLIPSTREAM_KERNELS="torch", SLIPSTREAM_ISA="")
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert lines["slipstream"] == slipstream.__version__
    assert lines["kernels"] == "torch: SLIPSTREAM_KERNELS asks for them"
    assert f"{len(os.sched_getaffinity(0))} cores" in lines["machine"]
    assert lines["torch"][0].isdigit() and lines["python"] and lines["threads"]
    assert ("compiler" in lines) == set(ISAS).issubset(lines)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "slipstream.info" in imported
    assert not imported & {"torch", "fastapi", "transformers"}


def test_info_refuses_what_there_is_not() -> None:
    done = slipstream_command("info", SLIPSTREAM_KERNELS="", SLIPSTREAM_ISA="sse9")
    assert done.returncode == 2
    assert "SLIPSTREAM_ISA=sse9" in done.stderr


def test_version() -> None:
    done = slipstream_command("--version")
    assert (done.returncode, done.stdout.strip()) == (0, slipstream.__version__)
