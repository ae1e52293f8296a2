"""Checkpoints that several test files read and none changes."""

from pathlib import Path

import pytest

from slipstream.models.default_model import fetch_default_model
from tests.models.tiny import ARCHITECTURES, make_tiny, tiny_model
from tests.models.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder checkpoint of each architecture."""
    base = tmp_path_factory.mktemp("tiny")
    for architecture in ARCHITECTURES:
        make_tiny(architecture, base / architecture)
    return {architecture: base / architecture for architecture in ARCHITECTURES}


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama GGUF of one layer, for tests that break it."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return write_tiny_gguf(path, tiny_model("llama", num_hidden_layers=1))


@pytest.fixture(scope="session")
def default_gguf() -> Path:
    """The default model's file."""
    return fetch_default_model()
