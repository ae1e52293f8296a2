"""What tests of several kernel sets share."""

import subprocess
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", params=["idle", "busy"])
def machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """With and without another process that eats a core."""
    if request.param == "idle":
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield
        process.kill()
