"""Trees that kernels grow in one call are those grown level by level, to the last bit."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slipstream.engine.engine import Engine
from slipstream.engine.messages import Submit
from slipstream.engine.params import SamplingParams, Speculation, TreeShape
from slipstream.kernels.growth import GrownTree, TreeGrower, TreeGrowth
from slipstream.speculation.eagle3.drafter import WINDOW, Eagle3Drafter
from tests import kernel_sets
from tests.engine.driving import start_engine

SHAPES = [
    TreeShape(4, 4, 16),
    TreeShape(1, 1, 2),
    TreeShape(3, 1, 4),
    TreeShape(5, 2, 40),  # more nodes than there are
    TreeShape(6, 3, 5),  # levels that are not worth it
    TreeShape(2, 8, 30),
    TreeShape(40, 40, 300),  # beyond all limits
    TreeShape(6, 3, 40, -9.0),  # not all paths are followed
    TreeShape(8, 1, 9, -20.0),
]


@dataclass
class Both:
    """Grows every tree in both ways, and compares."""

    grow: TreeGrower
    reference: TreeGrower
    seen: list[tuple[TreeGrowth, list[GrownTree]]] = field(default_factory=list)

    def __call__(self, growth: TreeGrowth) -> list[GrownTree]:
        expected, grown = self.reference(growth), self.grow(growth)
        for (tokens, parents, scores), wanted in zip(grown, expected, strict=True):
            assert (tokens, parents) == wanted[:2]
            assert scores.dtype == wanted[2].dtype == np.float32
            assert scores.tolist() == wanted[2].tolist()
        self.seen.append((growth, grown))
        return grown


@pytest.fixture(params=kernel_sets.params(kernel_sets.NATIVE))
def kernel_set(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def watched(target: Path, folder: Path, kernel_set: str, **options: Any) -> tuple[Engine, Both]:
    engine = start_engine(target, drafter=folder, kernel_set=kernel_set, **options)
    assert isinstance(engine._speculator._drafter, Eagle3Drafter)
    network = engine._speculator._drafter._network
    both = Both(network.grow, network.level_grower())
    network.grow = both
    return engine, both


def submit(engine: Engine, id: int, length: int, shape: TreeShape, **sampling: Any) -> None:
    tokens = np.random.default_rng(id).integers(3, 340, length).tolist()
    params = SamplingParams(12, speculation=Speculation("fixed", shape), **sampling)
    engine.submit(Submit(id, tokens, params))


def finish(engine: Engine) -> None:
    while engine.busy:
        engine.step()


def test_one_request_of_each_shape(tiny_llama: Path, tiny_drafter: Path, kernel_set: str) -> None:
    for id, shape in enumerate(SHAPES):
        engine, both = watched(tiny_llama, tiny_drafter, kernel_set)
        submit(engine, id, 10 + 13 * id, shape, temperature=0)
        finish(engine)
        assert both.seen


def test_many_requests_of_all_shapes(tiny_llama: Path, tiny_drafter: Path, kernel_set: str) -> None:
    engine, both = watched(tiny_llama, tiny_drafter, kernel_set)
    for id in range(2 * len(SHAPES)):
        submit(engine, id, 5 + 11 * id, SHAPES[id % len(SHAPES)], temperature=0)
        engine.step()
    finish(engine)
    trees = [tree for _, grown in both.seen for tree in grown]
    assert max(len(growth.roots) for growth, _ in both.seen) > len(SHAPES)
    assert len({len(tokens) for tokens, _, _ in trees}) > len(SHAPES)
    assert any(max(parents, default=0) > 0 for _, parents, _ in trees)


def test_sampled_requests(tiny_llama: Path, tiny_drafter: Path, kernel_set: str) -> None:
    engine, both = watched(tiny_llama, tiny_drafter, kernel_set)
    rules: list[dict[str, float]] = [
        {"temperature": 1.0},
        {"temperature": 0.6, "top_p": 0.8},
        {"temperature": 1.5, "top_k": 2},  # fewer tokens than children
        {"temperature": 1.0, "min_p": 0.2},
        {"temperature": 0},
    ]
    for id, rule in enumerate(rules):
        submit(engine, id, 30 + 7 * id, SHAPES[id], seed=2**63 + id, **rule)
    finish(engine)
    assert any(len(set(growth.sampling.temperature)) > 2 for growth, _ in both.seen)


def test_a_ring_that_has_gone_round(tiny_llama: Path, tiny_drafter: Path, kernel_set: str) -> None:
    engine, both = watched(tiny_llama, tiny_drafter, kernel_set)
    submit(engine, 0, WINDOW + 400, SHAPES[0], temperature=0)
    submit(engine, 1, 40, SHAPES[5], temperature=0)
    finish(engine)
    assert max(growth.rings.starts.max() for growth, _ in both.seen) > WINDOW - 150


def test_fewer_rings_than_requests(tiny_llama: Path, tiny_drafter: Path, kernel_set: str) -> None:
    engine, both = watched(tiny_llama, tiny_drafter, kernel_set, rings=2)
    for id in range(4):
        submit(engine, id, 20 + 9 * id, SHAPES[id], temperature=0)
    finish(engine)
    assert max(len(growth.roots) for growth, _ in both.seen) == 2


def test_scores_are_of_paths(tiny_llama: Path, tiny_drafter: Path, kernel_set: str) -> None:
    engine, both = watched(tiny_llama, tiny_drafter, kernel_set)
    submit(engine, 0, 30, SHAPES[0], temperature=0)
    finish(engine)
    for _, grown in both.seen:
        for _, parents, scores in grown:
            above = np.concatenate([[0], scores])[parents]
            assert (scores <= above).all() and (np.diff(scores) <= 0).all()
