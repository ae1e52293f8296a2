"""``slipstream calibrate`` on a tiny model: every figure is there, kept, and used."""

import math
from pathlib import Path

import msgspec
import pytest

from slipstream.engine import calibrate_command
from slipstream.engine.calibrate import Calibration, fit_passes
from slipstream.engine.calibrate_command import calibrate
from slipstream.engine.load import load
from slipstream.engine.options import EngineOptions
from slipstream.errors import UserError
from slipstream.speculation.policy.cost_model import CostModel, CostTables, DraftWork, Machine
from slipstream.speculation.policy.row_costs import KNOTS, RowCosts


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where costs are kept."""
    monkeypatch.setenv("SLIPSTREAM_COSTS", str(tmp_path / "costs"))
    return tmp_path / "costs"


def run(model: Path, drafter: str, **fields: object) -> None:
    options = {"quantization": "none", "kv_dtype": "auto", "threads": 1, "plot": None, "json": None}
    calibrate(str(model), drafter, **{**options, **fields})  # type: ignore[arg-type]


def test_measured_drawn_written_and_kept(
    tiny_llama: Path,
    tiny_drafter: Path,
    tmp_path: Path,
    kept: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plot, json = tmp_path / "costs.svg", tmp_path / "costs.json"
    run(tiny_llama, str(tiny_drafter), plot=plot, json=json)
    tables = msgspec.json.decode(json.read_bytes(), type=CostTables)
    assert [rows for rows, _, _ in tables.target] == list(KNOTS)
    for table, most in ((tables.target, 512), (tables.drafter, 256)):
        assert all(0 < seconds < 10 for _, seconds, _ in table)
        assert all((evidence > 0) == (rows <= most) for rows, _, evidence in table)
    times = [seconds for _, seconds, _ in tables.target]
    assert times == sorted(times)
    assert tables.attention > 0 and tables.reading > 0 and tables.entry > 0 and tables.call > 0
    assert "<svg" in plot.read_text()
    output = capsys.readouterr().out
    assert "step ms" in output and "512" in output and "1024" not in output
    [file] = kept.iterdir()
    assert str(file) in output.replace("\n", "")
    # The next server with the same options starts from it.
    options = EngineOptions(model=str(tiny_llama), drafter=str(tiny_drafter), threads=1)
    found = load(options).costs.costs.tables()
    assert [evidence for _, _, evidence in found.target] == [e for _, _, e in tables.target]
    assert (found.attention, found.reading) == (tables.attention, tables.reading)


def test_prompt_lookup_has_costs_too(tiny_llama: Path) -> None:
    loaded = load(EngineOptions(model=str(tiny_llama), drafter="ngram", threads=1))
    times, entry = Calibration(loaded).measure_drafts()
    assert entry == 0  # it has nothing to catch up with
    assert {work.first for work, _ in times} >= {1, 8, 32}


def test_too_short_a_model(tiny_llama: Path) -> None:
    loaded = load(EngineOptions(model=str(tiny_llama), threads=1, max_model_len=100))
    with pytest.raises(UserError, match=r"at least 256 tokens.*100"):
        Calibration(loaded)


@pytest.mark.parametrize("field", ["plot", "json"])
def test_a_file_that_cannot_be_written_is_found_before_measuring(
    field: str, tiny_llama: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        run(tiny_llama, "ngram", **{field: tmp_path / "nowhere" / "x.svg"})


def test_passes_add_up_to_drafts() -> None:
    prior = RowCosts(Machine().drafter)

    def true(rows: int) -> float:
        return 0.003 + 0.0004 * rows

    beside = 0.005

    works = [
        DraftWork(requests, (requests * width,) * deeper)
        for requests in (1, 4, 16, 64)
        for width, deeper in ((1, 0), (1, 3), (4, 3))
    ]
    times = [(work, beside + true(work.first) + sum(map(true, work.deeper))) for work in works]
    costs = CostModel(Machine())
    fitted, call = fit_passes(times, prior, costs.call)
    assert call == pytest.approx(beside, rel=0.3)
    assert all(math.isfinite(seconds) and seconds > 0 for _, seconds, _ in fitted)
    costs.drafter.restore(fitted)
    costs.call = call
    for work, seconds in times:
        assert costs.draft(work) == pytest.approx(seconds, rel=0.15)


def test_the_command_imports_nothing_heavy() -> None:
    assert not hasattr(calibrate_command, "load")
