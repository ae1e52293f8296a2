"""Costs on disk: what one server learned about this machine, for the next one to start from."""

import hashlib
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from slipstream.models.default_model import cache_folder
from slipstream.speculation.policy.cost_model import CostModel, CostTables

SECONDS_BETWEEN_SAVES = 30.0

_log = logging.getLogger(__name__)


class CostKey(msgspec.Struct, frozen=True, kw_only=True):
    """What costs depend on. One file for each."""

    model: str
    parameters: int  # of the model's matrices: two folders may have one name
    quantization: str
    kernels: str
    threads: int
    machine: str  # the processor's name
    drafter: str
    kv_dtype: str


class _File(msgspec.Struct, frozen=True):
    key: CostKey
    tables: CostTables


def costs_folder() -> Path:
    """Where costs are kept: $SLIPSTREAM_COSTS, else a folder beside the fetched models."""
    if own := os.environ.get("SLIPSTREAM_COSTS"):
        return Path(own).expanduser()
    return cache_folder() / "costs"


class CostStore:
    """The file of one `CostModel`. Trouble with the disk is a log line and nothing else."""

    def __init__(
        self, key: CostKey, costs: CostModel, clock: Callable[[], float] = time.monotonic
    ) -> None:
        name = re.sub(r"[^\w.-]+", "-", key.model).strip("-.")[-60:]
        digest = hashlib.sha256(msgspec.json.encode(key)).hexdigest()[:16]
        self.path = costs_folder() / f"{name}-{digest}.json"
        self.costs = costs
        self._key = key
        self._clock = clock
        self._due = clock() + SECONDS_BETWEEN_SAVES
        self._saved = costs.tables()
        self._complained = False

    def load(self) -> bool:
        """Let the costs go on from the file; whether there was one that could be used."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return False
        except OSError as error:
            self._complain("read", error.strerror or str(error))
            return False
        try:
            file = msgspec.json.decode(content, type=_File)
            if file.key != self._key:
                raise ValueError("they are of another model or machine")
            self.costs.restore(file.tables)
        except (msgspec.MsgspecError, ValueError) as error:
            self.costs.restore(self._saved)
            _log.warning("ignoring the costs in %s, they will be learned: %s", self.path, error)
            return False
        self._saved = self.costs.tables()
        return True

    def save_if_due(self) -> None:
        """`save`, but at most every 30 seconds."""
        now = self._clock()
        if now >= self._due:
            self._due = now + SECONDS_BETWEEN_SAVES
            self.save()

    def save(self) -> bool:
        """Write the file, if there is anything new: whole or not at all. False if that failed."""
        tables = self.costs.tables()
        if tables == self._saved:
            return True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _write(self.path, msgspec.json.encode(_File(self._key, tables)))
        except OSError as error:
            self._complain("keep", error.strerror or str(error))
            return False
        self._saved = tables
        return True

    def _complain(self, verb: str, reason: str) -> None:
        if not self._complained:
            self._complained = True
            _log.warning(
                "cannot %s costs in %s: %s; they are learned anew at every start",
                verb,
                self.path.parent,
                reason,
            )


def _write(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=".costs-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
