"""Models that several folders of tests use."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test may fail because the machine is slow.
settings.register_profile("untimed", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def costs_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the costs that engines keep on disk, so that the user's are left alone."""
    folder = tmp_path_factory.mktemp("costs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPSTREAM_COSTS", str(folder))
        yield folder


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random Llama."""
    from tests.models.tiny import make_tiny  # imports transformers, which takes seconds

    folder = tmp_path_factory.mktemp("tiny") / "llama"
    make_tiny("llama", folder)
    return folder


@pytest.fixture(scope="session")
def tiny_drafter(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an EAGLE-3 drafter for `tiny_llama`, random but for what it has of the target,
    whose draft vocabulary is small enough that some of its guesses are right."""
    from tests.speculation.eagle3.tiny import make_tiny_drafter

    return make_tiny_drafter(tiny_llama, tmp_path_factory.mktemp("tiny") / "drafter")
