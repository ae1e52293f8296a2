from pathlib import Path

import numpy as np
import pytest
import torch

from slipstream.training.batch import Batch
from slipstream.training.corpus import Corpus
from slipstream.training.network import Folded, Network, Weights, initial_weights
from tests.training.reference_drafter import ReferenceDrafter
from tests.training.tiny import tiny_config, tiny_target, write_counting_corpus

LEVELS = 4


def shaken(weights: Weights) -> Weights:
    """Weights among which no half, and no norm, is as it began."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: weight + 0.1 * torch.randn(weight.shape, generator=generator)
        for name, weight in weights.items()
    }


@pytest.mark.parametrize("prompt_share", [0.0, 0.5, 1.0])
def test_all_levels_compute_what_drafting_computes(tmp_path: Path, prompt_share: float) -> None:
    target, vocabulary = tiny_target(), torch.arange(30)
    config = tiny_config(len(vocabulary))
    write_counting_corpus(tmp_path, target, prompts=6)
    conversations = Corpus(tmp_path).training[:3]
    batch = Batch.of(conversations, prompt_share, np.random.default_rng(0))
    weights = shaken(initial_weights(config, target, vocabulary, torch.Generator()))
    network = Network(config, target, Folded.of(weights))
    outputs = list(network.levels(batch, LEVELS))
    reference = ReferenceDrafter(config, weights, target.embedding)
    compared = 0
    for span in batch.spans:
        tokens, features = batch.tokens[span.tokens], batch.features[span.tokens]
        for index in range(span.rows.start, span.rows.stop):
            row = int(batch.rows[index]) - span.tokens.start
            levels = min(LEVELS, len(tokens) - 1 - row)
            for level, x in enumerate(reference.run(tokens, features, row, levels), start=1):
                assert batch.inside(level)[index]
                torch.testing.assert_close(outputs[level - 1][index], x, rtol=1e-4, atol=1e-5)
                logits = network.normalized(outputs[level - 1][index]) @ network.folded.head.T
                torch.testing.assert_close(logits, reference.logits(x), rtol=1e-4, atol=1e-4)
                compared += 1
            for level in range(levels + 1, LEVELS + 1):
                assert not batch.inside(level)[index]
    assert compared > 3 * LEVELS


def test_a_new_drafter_passes_the_last_feature_through_the_targets_last_layer() -> None:
    target, vocabulary = tiny_target(), torch.tensor([3, 5, 8])
    weights = initial_weights(tiny_config(3), target, vocabulary, torch.Generator())
    features = torch.randn(2, 3 * target.embedding.shape[1])
    last = features.chunk(3, dim=1)[-1]
    torch.testing.assert_close(features @ weights["fc.weight"].T, last)
    torch.testing.assert_close(weights["lm_head.weight"], target.head[vocabulary])
    weights["lm_head.weight"].zero_()
    assert target.head[vocabulary].abs().min() > 0  # a copy
