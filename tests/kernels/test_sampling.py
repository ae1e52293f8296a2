"""Drawing tokens: a row's token depends on nothing but its own logits and rules."""

import numpy as np

from slipstream.kernels.sampling_rows import SamplingRows
from slipstream.kernels.torch.sampling import sample


def rows_of(rows: SamplingRows, index: np.ndarray) -> SamplingRows:
    return SamplingRows(*(getattr(rows, name)[index] for name in SamplingRows.__slots__))


def test_rows_do_not_see_each_other() -> None:
    generator = np.random.default_rng(0)
    count = 60
    logits = generator.normal(scale=3, size=(count, 500)).astype(np.float32)
    rows = SamplingRows(
        temperature=generator.choice([0, 0.7, 1.5], count),
        top_p=generator.choice([0.5, 0.9, 1], count),
        min_p=generator.choice([0, 0.05], count),
        top_k=generator.choice([0, 5, 50], count).astype(np.int32),
        seed=generator.integers(0, 2**64, count, dtype=np.uint64),
        position=generator.integers(0, 1000, count).astype(np.int32),
    )
    together = sample(logits, rows)
    assert together.dtype == np.int32
    assert 0 < (together == logits.argmax(axis=1)).sum() < count
    alone = [sample(logits[i : i + 1], rows_of(rows, np.array([i])))[0] for i in range(count)]
    assert together.tolist() == alone
    order = generator.permutation(count)
    assert sample(logits[order], rows_of(rows, order)).tolist() == together[order].tolist()


def test_no_rows() -> None:
    none = np.empty(0)
    rows = SamplingRows(
        none, none, none, none.astype(np.int32), none.astype(np.uint64), none.astype(np.int32)
    )
    assert sample(np.empty((0, 7), dtype=np.float32), rows).tolist() == []
