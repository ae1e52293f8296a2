"""Ranking tokens as a drafter does, in every kernel set."""

from dataclasses import replace

import numpy as np
import pytest

from slipstream.kernels import SamplingRows
from slipstream.kernels.noise import gumbel
from slipstream.kernels.torch import sampling
from tests import kernel_sets

COUNT = 40  # rows


@pytest.fixture(params=kernel_sets.params(kernel_sets.EVERY))
def kernel_set(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rules(seed: int) -> SamplingRows:
    generator = np.random.default_rng(seed)
    return SamplingRows(
        temperature=generator.choice([0, 0.3, 1, 1.7], COUNT),
        top_p=generator.choice([0.5, 0.9, 1], COUNT),
        min_p=generator.choice([0, 0.05], COUNT),
        top_k=generator.choice([0, 3, 50], COUNT).astype(np.int32),
        seed=generator.integers(0, 2**64, COUNT, dtype=np.uint64),
        position=generator.integers(0, 1000, COUNT).astype(np.int32),
    )


def plain(temperature: float, rows: int = 1) -> SamplingRows:
    return SamplingRows(
        temperature=np.full(rows, temperature),
        top_p=np.ones(rows),
        min_p=np.zeros(rows),
        top_k=np.zeros(rows, dtype=np.int32),
        seed=np.full(rows, 5, dtype=np.uint64),
        position=np.full(rows, 9, dtype=np.int32),
    )


@pytest.mark.parametrize("vocabulary", [1, 5, 37, 1000])
@pytest.mark.parametrize("count", [1, 4, 16])
def test_as_defined(kernel_set: str, vocabulary: int, count: int) -> None:
    generator = np.random.default_rng(vocabulary)
    logits = generator.normal(scale=3, size=(COUNT, vocabulary)).astype(np.float32)
    logits[:, vocabulary // 2] = logits[:, 0]  # a tie
    ids = np.sort(generator.choice(5000, vocabulary, replace=False)).astype(np.int32)
    expected = sampling.rank(logits, rules(1), ids, count)
    tokens, logprobs = kernel_sets.make(kernel_set).rank(logits, rules(1), ids, count)
    assert tokens.tolist() == expected[0].tolist()
    np.testing.assert_allclose(logprobs, expected[1], atol=1e-5)


def test_the_first_is_what_sampling_would_give(kernel_set: str) -> None:
    """A drafter with the target's own logits guesses every draw."""
    logits = np.random.default_rng(2).normal(scale=2, size=(COUNT, 300)).astype(np.float32)
    kernels = kernel_sets.make(kernel_set)
    tokens, _ = kernels.rank(logits, rules(3), np.arange(300, dtype=np.int32), 4)
    assert tokens[:, 0].tolist() == kernels.sample(logits, rules(3)).tolist()


def test_noise_belongs_to_the_token_not_to_its_place(kernel_set: str) -> None:
    ids = np.array([7, 3000, 40000], dtype=np.int32)
    tokens, _ = kernel_sets.make(kernel_set).rank(
        np.zeros((1, 3), dtype=np.float32), plain(1.0), ids, 3
    )
    noise = gumbel(5, 9, ids.astype(np.int64))
    assert tokens[0].tolist() == ids[np.argsort(-noise)].tolist()


def test_greedy_log_probabilities_are_the_drafters_own(kernel_set: str) -> None:
    logits = np.random.default_rng(4).normal(size=(1, 50)).astype(np.float32)
    tokens, logprobs = kernel_sets.make(kernel_set).rank(
        logits, plain(0.0), np.arange(50, dtype=np.int32), 50
    )
    expected = logits[0] - np.log(np.exp(logits[0]).sum())
    np.testing.assert_allclose(logprobs[0], expected[tokens[0]], atol=1e-5)
    assert (np.diff(logprobs[0]) <= 0).all()


def test_what_is_left_over_is_no_token(kernel_set: str) -> None:
    two_best = replace(plain(0.7), top_k=np.array([2], dtype=np.int32))
    tokens, logprobs = kernel_sets.make(kernel_set).rank(
        np.array([[1.0, 0.5, 2.0]], dtype=np.float32),
        two_best,
        np.array([10, 11, 12], dtype=np.int32),
        4,
    )
    assert sorted(tokens[0, :2].tolist()) == [10, 12]
    assert tokens[0, 2:].tolist() == [-1, -1]
    assert np.isneginf(logprobs[0, 2:]).all()


def test_no_rows(kernel_set: str) -> None:
    tokens, logprobs = kernel_sets.make(kernel_set).rank(
        np.empty((0, 7), dtype=np.float32), plain(0.0, 0), np.arange(7, dtype=np.int32), 3
    )
    assert tokens.shape == logprobs.shape == (0, 3)
