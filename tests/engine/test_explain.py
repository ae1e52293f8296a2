"""The engine says how much it speculated, what it expected, and why."""

import logging
from pathlib import Path

import pytest

from slipstream.engine import speculator
from slipstream.engine.engine import Engine
from slipstream.engine.explain import explain
from slipstream.engine.load import load_engine
from slipstream.engine.messages import EngineStats, Submit
from slipstream.engine.options import EngineOptions
from slipstream.engine.params import SamplingParams, Speculation, TreeShape
from slipstream.speculation.policy.adaptive import AdaptivePolicy
from slipstream.speculation.policy.summary import Summary
from tests.engine.driving import drive


def start(model: Path, drafter: Path, speculation: Speculation) -> Engine:
    options = EngineOptions(
        model=str(model),
        drafter=str(drafter),
        threads=1,
        kv_memory=32 << 20,
        speculation=speculation,
        max_running_requests=4,
    )
    return load_engine(options)[0]


def serve(engine: Engine, requests: int = 12, tokens: int = 60) -> EngineStats:
    """The statistics after requests that came one after the other."""
    params = SamplingParams(max_tokens=tokens, temperature=0)
    submits = [Submit(id, [5 + id, 6, 7], params) for id in range(requests)]
    drive(engine, submits, arrivals={id: 4 * id for id in range(requests)})
    return engine.stats()


def test_a_line_says_what_was_predicted_and_what_came() -> None:
    summary = Summary(
        steps=10,
        drafted=70,
        kept=40,
        accepted=15,
        emitted=25,
        expected_tokens=30.0,
        expected_seconds=0.18,
        seconds=0.23,
        draft_seconds=0.02,
    )
    line = explain(summary)
    assert "\n" not in line
    assert "70 proposed, 40 kept, 15 accepted" in line
    assert "18.00 ms predicted, 23.00 ms real" in line and "2.00 ms of drafting" in line
    assert "150.0 tok/s predicted, 100.0 real" in line


def test_nothing_is_divided_by_no_time() -> None:
    assert "0.0 tok/s predicted" in explain(Summary(steps=1))


def test_adaptive_speculation_is_counted(
    tiny_llama: Path, tiny_drafter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A model so small decodes in less time than deciding takes.
    monkeypatch.setattr(AdaptivePolicy, "rests", lambda *_: False)
    engine = start(tiny_llama, tiny_drafter, Speculation("adaptive"))
    stats = serve(engine)
    assert stats.generated_tokens_total == 12 * 60
    assert 0 < stats.draft_nodes_total <= stats.drafted_nodes_total
    assert 0 < stats.draft_seconds_total < stats.step_seconds_total
    assert stats.expected_step_seconds_total > 0
    assert stats.expected_tokens_total > 12
    assert stats.speculation == "idle"
    engine.submit(Submit(99, [1, 2, 3], SamplingParams(max_tokens=40, temperature=0)))
    engine.step()
    assert engine.stats().speculation not in ("", "idle")


def test_fixed_speculation_keeps_what_it_drafts(tiny_llama: Path, tiny_drafter: Path) -> None:
    stats = serve(start(tiny_llama, tiny_drafter, Speculation("fixed", TreeShape(2, 2, 5))))
    assert stats.draft_nodes_total == stats.drafted_nodes_total > 0
    assert stats.draft_seconds_total > 0


def test_off_drafts_nothing(tiny_llama: Path, tiny_drafter: Path) -> None:
    engine = start(tiny_llama, tiny_drafter, Speculation("off"))
    stats = serve(engine)
    assert stats.drafted_nodes_total == stats.draft_nodes_total == stats.draft_seconds_total == 0
    engine.submit(Submit(99, [1, 2, 3], SamplingParams(max_tokens=40, temperature=0)))
    engine.step()
    assert engine.stats().speculation == "nobody asks for it"


def test_the_log_tells_it_to_who_asks(
    tiny_llama: Path,
    tiny_drafter: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = start(tiny_llama, tiny_drafter, Speculation("adaptive"))
    monkeypatch.setattr(speculator, "SUMMED_UP_AFTER", 0.02)
    with caplog.at_level(logging.INFO, "slipstream.engine"):
        serve(engine)
    assert not caplog.messages
    with caplog.at_level(logging.DEBUG, "slipstream.engine"):
        serve(engine)
    assert caplog.messages
    assert all("proposed" in line and "goodput" in line for line in caplog.messages)
