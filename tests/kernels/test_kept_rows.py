"""Activations kept by slot: what one step keeps, another gathers."""

import numpy as np
import pytest

from slipstream.kernels import StepBatch, Weight
from slipstream.kernels.interface import Operations, Rows
from tests import kernel_sets

HIDDEN, SLOTS = 40, 64  # not a multiple of what rows are padded to


@pytest.fixture(params=kernel_sets.params(kernel_sets.EVERY))
def kernel_set(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def step(tokens: list[int], slots: list[int], sources: list[int] | None = None) -> StepBatch:
    rows = len(tokens)
    positions = np.arange(rows, dtype=np.int32)
    return StepBatch(
        tokens=np.array(tokens, dtype=np.int32),
        positions=positions,
        slots=np.array(slots, dtype=np.int32),
        requests=np.zeros(rows, dtype=np.int32),
        follows=positions > 0,
        page_tables=np.zeros((1, 1), dtype=np.int32),
        tail_starts=np.zeros(1, dtype=np.int32),
        tail_slots=np.tile(np.array(slots, dtype=np.int32), (rows, 1)),
        logit_rows=positions,
        sources=None if sources is None else np.array(sources, dtype=np.int32),
    )


def test_kept_moved_and_gathered(kernel_set: str) -> None:
    kernels = kernel_sets.make(kernel_set)
    # Values that bfloat16 holds exactly, and a product that returns them.
    table = np.random.default_rng(0).integers(-9, 9, (50, HIDDEN)).astype(np.float32)
    embedding = kernels.pack_embedding(Weight.of(table))
    identity = kernels.pack_linear([Weight.of(np.eye(HIDDEN, dtype=np.float32))], None)
    twice = kernels.pack_linear([Weight.of(2 * np.eye(HIDDEN, dtype=np.float32))], None)
    ones = kernels.pack_vector(np.ones(HIDDEN, dtype=np.float32))
    kept = kernels.new_kept_rows(SLOTS, 2, HIDDEN)

    def keep(ops: Operations) -> Rows:
        x = ops.embed(embedding)
        ops.keep(x, kept, 0)
        ops.keep(ops.linear(x, twice, residual=x), kept, 1)
        return ops.logits(x, ones, 1e-5, identity)

    def gather(ops: Operations) -> Rows:
        x = ops.linear(ops.gather(kept, [1]), identity, residual=ops.gather(kept, [0]))
        ops.keep(x, kept, 0)
        return ops.logits(x, ones, 1e-5, identity)

    slots = [3, 60, 17]
    kernels.record(keep)(step([5, 6, 7], slots))
    read = kernels.read_kept(kept, np.array(slots, dtype=np.int32))
    assert read[:, 0].tolist() == table[5:8].tolist()
    assert read[:, 1].tolist() == (3 * table[5:8]).tolist()

    kernels.move_kept(kept, [60, 3], [3, 4])  # all reads come first
    read = kernels.read_kept(kept, np.array([3, 4, 60], dtype=np.int32))
    assert read[:, 0].tolist() == table[[6, 5, 6]].tolist()

    kernels.record(gather)(step([1, 1, 1], [10, 11, 12], sources=[4, 17, 4]))
    read = kernels.read_kept(kept, np.array([10, 11, 12], dtype=np.int32))
    assert read[:, 0].tolist() == (4 * table[[5, 7, 5]]).tolist()


def test_parts_side_by_side_and_normed(kernel_set: str) -> None:
    kernels = kernel_sets.make(kernel_set)
    table = np.random.default_rng(1).integers(1, 9, (50, HIDDEN)).astype(np.float32)
    embedding = kernels.pack_embedding(Weight.of(table))
    weight = np.arange(1, 2 * HIDDEN + 1, dtype=np.float32)
    norm = kernels.pack_vector(weight)
    halves = kernels.pack_linear(
        [Weight.of(np.eye(2 * HIDDEN, dtype=np.float32)[HIDDEN - 3 :])], None
    )
    kept = kernels.new_kept_rows(SLOTS, 2, HIDDEN)
    wide = kernels.new_kept_rows(SLOTS, 1, 2 * HIDDEN)

    def forward(ops: Operations) -> Rows:
        ops.keep(ops.embed(embedding), kept, 1)
        both = ops.gather(kept, [1, 0])
        ops.keep(ops.norm(both, norm, 1e-5), wide, 0)
        return ops.linear(both, halves)

    output = kernels.record(forward)(step([5, 6], [0, 1]))
    assert output[:2, :3].tolist() == table[5:7, HIDDEN - 3 :].tolist()
    assert not output[:2, 3:].any()
    expected = np.concatenate([table[5:7], np.zeros((2, HIDDEN))], axis=1)
    expected *= weight / np.sqrt((expected**2).mean(1, keepdims=True) + 1e-5)
    read = kernels.read_kept(wide, np.array([0, 1], dtype=np.int32))
    np.testing.assert_allclose(read[:, 0], expected, rtol=2**-7)


def test_memory_of_a_slot(kernel_set: str) -> None:
    kernels = kernel_sets.make(kernel_set)
    assert kernels.kept_slot_bytes(0, HIDDEN) == 0
    assert kernels.kept_slot_bytes(3, HIDDEN) >= 3 * HIDDEN * 2
