"""Costs on disk: kept, found again, and never in the way."""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from slipstream.speculation.policy.cost_model import CostModel, CostTables, Machine
from slipstream.speculation.policy.cost_store import CostKey, CostStore, costs_folder

KEY = CostKey(
    model="org/some model",
    parameters=1000,
    quantization="int8",
    kernels="native (avx2)",
    threads=2,
    machine="A CPU",
    drafter="ngram",
    kv_dtype="auto",
)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the costs are kept, not there yet."""
    monkeypatch.setenv("SLIPSTREAM_COSTS", str(tmp_path / "costs"))
    return tmp_path / "costs"


def slower(tables: CostTables, factor: float) -> CostTables:
    """As if it had been learned that everything takes longer."""

    def scale(table: list[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
        return [(rows, factor * seconds, 7.0) for rows, seconds, _ in table]

    return CostTables(scale(tables.target), scale(tables.drafter), 1e-7, 1e-6, 1e-5, 1e-3)


def learned(factor: float = 2.0) -> CostModel:
    costs = CostModel(Machine())
    costs.restore(slower(costs.tables(), factor))
    return costs


def store(
    costs: CostModel, key: CostKey = KEY, clock: Callable[[], float] = time.monotonic
) -> CostStore:
    """A store that believes that nothing of these costs is on disk."""
    result = CostStore(key, CostModel(Machine()), clock)
    result.costs = costs
    return result


def test_what_one_server_learned_the_next_one_starts_from() -> None:
    store(learned()).save()
    fresh = CostStore(KEY, CostModel(Machine()))
    assert fresh.load()
    assert fresh.costs.tables() == learned().tables()
    assert fresh.costs.step(4, 100, 50) == pytest.approx(learned().step(4, 100, 50))


def test_the_file_is_in_the_users_cache_unless_said_otherwise(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert costs_folder() == folder
    monkeypatch.delenv("SLIPSTREAM_COSTS")
    monkeypatch.setenv("SLIPSTREAM_CACHE", "/somewhere")
    assert costs_folder() == Path("/somewhere/costs")


@pytest.mark.parametrize(
    "other",
    [
        {"model": "org/other"},
        {"model": "org/some_model"},
        {"parameters": 1001},
        {"quantization": "none"},
        {"kernels": "native (amx)"},
        {"threads": 1},
        {"machine": "Another CPU"},
        {"drafter": "eagle3"},
        {"kv_dtype": "int8"},
    ],
)
def test_each_setting_has_costs_of_its_own(other: dict[str, object]) -> None:
    store(learned()).save()
    key = msgspec.structs.replace(KEY, **other)
    assert not CostStore(key, CostModel(Machine())).load()
    store(learned(3), key).save()
    first, second = (CostStore(k, CostModel(Machine())) for k in (KEY, key))
    assert first.load() and second.load()
    assert first.costs.tables() == learned().tables()
    assert second.costs.tables() == learned(3).tables()


def test_any_name_of_a_model_is_a_name_of_a_file(folder: Path) -> None:
    for name in ("../../x", "", "ä/ö" * 200, "."):
        store(learned(), msgspec.structs.replace(KEY, model=name)).save()
    assert len(list(folder.iterdir())) == 4


def test_nothing_new_is_not_written(folder: Path) -> None:
    CostStore(KEY, CostModel(Machine())).save()
    assert not folder.exists()
    kept = store(learned())
    kept.save()
    kept.path.unlink()
    kept.save()
    assert list(folder.iterdir()) == []


def test_written_at_most_every_30_seconds() -> None:
    clock = Clock()
    kept = store(learned(), clock=clock)
    clock.now += 29
    kept.save_if_due()
    assert not kept.path.exists()
    clock.now += 2
    kept.save_if_due()
    first = kept.path.read_bytes()
    kept.costs = learned(3)
    clock.now += 29
    kept.save_if_due()
    assert kept.path.read_bytes() == first
    clock.now += 2
    kept.save_if_due()
    assert kept.path.read_bytes() != first


def broken_files() -> list[bytes]:
    tables = CostModel(Machine()).tables()
    other = msgspec.structs.replace(KEY, threads=9)
    bad = [
        CostTables(
            tables.target[:-1],
            tables.drafter,
            tables.attention,
            tables.reading,
            tables.entry,
            tables.call,
        ),
        CostTables(
            tables.target,
            [(1, -1.0, 0.0)],
            tables.attention,
            tables.reading,
            tables.entry,
            tables.call,
        ),
        CostTables(tables.target, tables.drafter, -1.0, tables.reading, tables.entry, tables.call),
        CostTables(
            tables.target, tables.drafter, tables.attention, tables.reading, tables.entry, 0.0
        ),
    ]
    documents = [{"key": KEY, "tables": each} for each in bad] + [{"key": other, "tables": tables}]
    whole = [msgspec.json.encode(document) for document in documents]
    return [b"", b"{", b"\xff\xfe", b"[]", b'{"key": 3}', whole[0][: len(whole[0]) // 2], *whole]


@pytest.mark.parametrize("content", broken_files())
def test_a_broken_file_is_ignored_with_a_line_and_replaced(
    content: bytes, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fresh = CostStore(KEY, CostModel(Machine()))
    folder.mkdir()
    fresh.path.write_bytes(content)
    with caplog.at_level(logging.INFO):
        assert not fresh.load()
    [line] = caplog.messages
    assert str(fresh.path) in line and "\n" not in line
    assert fresh.costs.tables() == CostModel(Machine()).tables()
    store(learned()).save()
    assert CostStore(KEY, CostModel(Machine())).load()


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A file stands where the folder should be: not even root can write there.
    (tmp_path / "file").touch()
    monkeypatch.setenv("SLIPSTREAM_COSTS", str(tmp_path / "file" / "costs"))
    kept = store(learned())
    assert not kept.load()
    kept.save()
    kept.save()
    [line] = caplog.messages
    assert "cannot" in line and "costs" in line


def test_a_write_that_fails_leaves_the_old_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store(learned()).save()

    def full(*of_file: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    store(learned(3)).save()
    assert "No space left on device" in caplog.messages[0]
    assert len(list(folder.iterdir())) == 1
    fresh = CostStore(KEY, CostModel(Machine()))
    assert fresh.load() and fresh.costs.tables() == learned().tables()
