"""The drafter's passes compute what the reference computes, whatever the ring went through."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from slipstream.engine.engine import Engine
from slipstream.engine.messages import Submit
from slipstream.engine.params import SamplingParams, Speculation, TreeShape
from slipstream.kernels import StepBatch
from slipstream.kernels.interface import Program
from slipstream.models.checkpoint import open_checkpoint
from slipstream.speculation.drafter import Draft, DraftTask
from slipstream.speculation.eagle3.checkpoint import open_drafter
from slipstream.speculation.eagle3.drafter import WINDOW, Eagle3Drafter
from slipstream.speculation.eagle3.growth import LevelGrower
from tests import kernel_sets
from tests.engine.driving import start_engine
from tests.speculation.eagle3.reference import Reference, State
from tests.speculation.eagle3.tiny import make_tiny_drafter

SHAPE = TreeShape(num_steps=4, topk=3, num_draft_tokens=12)
SWITCHES: list[dict[str, Any]] = [
    {},
    {"norm_before_residual": True},
    {"norm_before_fc": True},
    {"fc_norm": True},
    {"norm_output": True},
    {"feature_layers": (0, 4)},
]


@dataclass
class Spy:
    """Watches a drafter's passes and compares them with the reference, row by row."""

    drafter: Eagle3Drafter
    reference: Reference
    read_features: Callable[[NDArray[np.int32]], NDArray[np.float32]]
    passes: list[tuple[str, StepBatch, NDArray[np.float32]]] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # first position that each draft saw

    def __post_init__(self) -> None:
        network = self.drafter._network
        first = self._watched("first", network._first)
        network.grow = LevelGrower(first, self._watched("deeper", network._deeper), network._rank)

    def _watched(self, name: str, program: Program) -> Program:
        def watched(batch: StepBatch) -> NDArray[np.float32]:
            logits = program(batch)
            self.passes.append((name, batch, logits.copy()))
            return logits

        return watched

    def draft(self, tasks: list[DraftTask]) -> list[Draft]:
        self.passes.clear()
        drafts = self.drafter.draft(tasks)
        for index, task in enumerate(tasks):
            if self.passes:
                self._check(index, task)
        return drafts

    def forget(self, request_id: int) -> None:
        self.drafter.forget(request_id)

    def _check(self, index: int, task: DraftTask) -> None:
        """Follow one request of the step from its ring's first entry to its deepest node."""
        ring = self.drafter._rings.of(task.request_id)
        self.starts.append(ring.start)
        pages = np.array(task.pages)
        positions = np.arange(ring.start, task.committed)
        features = self.read_features((pages[positions // 32] * 32 + positions % 32).astype("i4"))
        state = State.empty()
        for position, feature in zip(positions.tolist(), features, strict=True):
            token = int(task.tokens[position + 1])
            state = self.reference.first(feature.astype(np.float64), token, position, state)
        (name, batch, logits), *further = self.passes
        assert name == "first"
        self._compare(state, logits[index])
        states = {int(batch.slots[batch.logit_rows[index]]): state}
        for name, batch, logits in further:
            assert name == "deeper"
            deeper = {}
            for row in np.flatnonzero(batch.requests == index):
                assert batch.rotary_positions is not None and batch.sources is not None
                position = int(batch.rotary_positions[row])
                above = states[int(batch.sources[row])]
                below = self.reference.deeper(int(batch.tokens[row]), position, above)
                self._compare(below, logits[row])
                deeper[int(batch.slots[row])] = below
            states = deeper

    def _compare(self, state: State, logits: NDArray[np.float32]) -> None:
        expected = self.reference.logits(state)
        self.errors.append(float(np.abs(logits - expected).max() / expected.std()))


def spied(target: Path, folder: Path, kernel_set: str, **options: Any) -> tuple[Engine, Spy]:
    engine = start_engine(
        target, drafter=folder, kernel_set=kernel_set, speculation=SHAPE, **options
    )
    drafter = engine._speculator._drafter
    assert isinstance(drafter, Eagle3Drafter)
    reference = Reference(open_drafter(str(folder)), open_checkpoint(str(target)))
    spy = Spy(drafter, reference, engine._model.read_features)
    engine._speculator._drafter = spy  # type: ignore[assignment]
    return engine, spy


def tokens(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(3, 340, count).tolist()


def finish(engine: Engine) -> None:
    while engine.busy:
        engine.step()


def tolerance(kernel_set: str) -> float:
    """Of the logits' spread. Native kernels round what a product reads and what is kept."""
    return 1e-3 if kernel_set == kernel_sets.TORCH else 0.15


@pytest.fixture(params=kernel_sets.params(kernel_sets.EVERY_KIND))
def kernel_set(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_every_kind_of_drafter(
    tiny_llama: Path, tmp_path: Path, kernel_set: str, switches: dict[str, Any]
) -> None:
    folder = make_tiny_drafter(tiny_llama, tmp_path / "drafter", switches=switches)
    engine, spy = spied(tiny_llama, folder, kernel_set)
    for id in range(3):
        engine.submit(Submit(id, tokens(20 + 17 * id, id), SamplingParams(10, temperature=0)))
    finish(engine)
    assert len(spy.errors) > 100
    assert max(spy.errors) < tolerance(kernel_set)


def test_a_long_context_is_seen_through_a_window(
    tiny_llama: Path, tiny_drafter: Path, kernel_set: str
) -> None:
    engine, spy = spied(tiny_llama, tiny_drafter, kernel_set, max_step_rows=64)
    engine.submit(Submit(0, tokens(WINDOW + 100), SamplingParams(6, temperature=0)))
    finish(engine)
    assert min(spy.starts) >= 100
    assert max(spy.errors) < tolerance(kernel_set)


def test_steps_that_did_not_draft_are_made_up_for(
    tiny_llama: Path, tiny_drafter: Path, kernel_set: str
) -> None:
    engine, spy = spied(tiny_llama, tiny_drafter, kernel_set)
    off = SamplingParams(70, temperature=0, speculation=Speculation("off"))
    engine.submit(Submit(0, tokens(30), off))
    request = engine._requests[0]
    while engine.busy:
        engine.step()
        deep = request.length % 23 == 0
        request.speculation = Speculation("fixed", SHAPE) if deep else Speculation("off")
    assert 2 <= len(spy.starts) < 10
    assert max(spy.errors) < tolerance(kernel_set)


def test_a_prefix_hit_brings_its_features_along(
    tiny_llama: Path, tiny_drafter: Path, kernel_set: str
) -> None:
    engine, spy = spied(tiny_llama, tiny_drafter, kernel_set, prefix_cache=True)
    for id in range(2):
        engine.submit(Submit(id, tokens(100), SamplingParams(8, temperature=0)))
        finish(engine)
    assert engine.stats().cached_tokens_total >= 64
    assert spy.starts.count(0) == len(spy.starts)
    assert max(spy.errors) < tolerance(kernel_set)


def test_rings_that_changed_hands(tiny_llama: Path, tiny_drafter: Path, kernel_set: str) -> None:
    """More requests than rings, taking turns."""
    engine, spy = spied(tiny_llama, tiny_drafter, kernel_set, max_running_requests=4)
    rings = spy.drafter._rings
    del rings._free[:2]
    for id in range(4):
        params = SamplingParams(12, temperature=0)
        engine.submit(Submit(id, tokens(40, id), params))
    drafting = Speculation("fixed", SHAPE)
    for step in range(24):
        for id, request in engine._requests.items():
            request.speculation = drafting if id // 2 == step // 4 % 2 else Speculation("off")
        if engine.busy:
            engine.step()
    assert max(spy.errors) < tolerance(kernel_set)


def test_nothing_is_drafted_beyond_the_last_token(
    tiny_llama: Path, tiny_drafter: Path, kernel_set: str
) -> None:
    engine, spy = spied(tiny_llama, tiny_drafter, kernel_set)
    engine.submit(Submit(0, tokens(30), SamplingParams(3, temperature=0)))
    request = engine._requests[0]
    while engine.busy:
        spy.passes.clear()
        may_draft = request.remaining - 1 if request.pending == 1 else 0
        engine.step()
        assert len(spy.passes) <= may_draft
    assert spy.errors
