"""Real servers, one per way of serving, shared by all tests of a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.kernels import choose_kernels
from slipstream.models.checkpoint import open_checkpoint
from slipstream.models.transformer import page_bytes
from tests.serving import ServeProcess, serve


@pytest.fixture(scope="session")
def server() -> Iterator[ServeProcess]:
    """The default model, as most people serve it."""
    with serve() as running:
        yield running


@pytest.fixture(scope="session")
def speculating_server() -> Iterator[ServeProcess]:
    """The default model, speculating, with so few pages that requests push each other out."""
    kernels = choose_kernels(threads=1)
    memory = 19 * page_bytes(open_checkpoint("default").config, kernels)
    with serve(
        *("--speculation", "fixed", "--kv-memory", str(memory), "--max-step-rows", "256")
    ) as running:
        yield running


@pytest.fixture
def tiny_server(tiny_llama: Path) -> Iterator[ServeProcess]:
    """A random model that is up quickly, for tests that end their server."""
    with serve("--model", str(tiny_llama)) as running:
        yield running
