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


@pytest.mark.parametrize(("prompt_share", "deep_share"), [(0.0, 1.0), (0.5, 0.5), (1.0, 1.0)])
def test_all_levels_compute_what_drafting_computes(
    tmp_path: Path, prompt_share: float, deep_share: float
) -> None:
    target, vocabulary = tiny_target(), torch.arange(30)
    config = tiny_config(len(vocabulary))
    write_counting_corpus(tmp_path, target, prompts=6)
    batch = Batch.of(
        Corpus(tmp_path).training[:3],
        prompt_share=prompt_share,
        deep_share=deep_share,
        rng=np.random.default_rng(0),
    )
    weights = shaken(initial_weights(config, target, vocabulary, torch.Generator()))
    network = Network(config, target, Folded.of(weights))
    reference = ReferenceDrafter(config, weights, target.embedding)
    compared = 0
    for level, outputs in enumerate(network.levels(batch, LEVELS), start=1):
        rows = batch.rows(level)
        for span in rows.spans:
            tokens, features = batch.tokens[span.tokens], batch.features[span.tokens]
            for index in range(span.rows.start, span.rows.stop):
                row = int(rows.at[index]) - span.tokens.start
                assert rows.inside(level)[index] == (row + level < len(tokens))
                if row + level < len(tokens):
                    x = reference.run(tokens, features, row, level)
                    torch.testing.assert_close(outputs[index], x, rtol=1e-4, atol=1e-5)
                    logits = network.normalized(outputs[index]) @ network.folded.head.T
                    torch.testing.assert_close(logits, reference.logits(x), rtol=1e-4, atol=1e-4)
                    compared += 1
    assert compared > 50
    assert (len(batch.deep) < len(batch.first)) == (deep_share < 1)


def test_rows_are_those_that_draft_answers_and_some_of_the_prompt(tmp_path: Path) -> None:
    write_counting_corpus(tmp_path, tiny_target(), prompts=30)
    conversations = Corpus(tmp_path).training
    batch = Batch.of(conversations, prompt_share=0.5, deep_share=0.3, rng=np.random.default_rng(0))
    answers = sum(len(c.tokens) - c.prompt_length for c in conversations)
    prompts = sum(c.prompt_length - 1 for c in conversations)
    assert batch.first.drafted.sum() == answers
    assert 0.3 * prompts < len(batch.first) - answers < 0.7 * prompts
    assert 0.2 < len(batch.deep) / len(batch.first) < 0.4
    assert torch.equal(batch.first.at[batch.deep_of_first], batch.deep.at)


def test_a_new_drafter_passes_the_last_feature_through_the_targets_last_layer() -> None:
    target, vocabulary = tiny_target(), torch.tensor([3, 5, 8])
    weights = initial_weights(tiny_config(3), target, vocabulary, torch.Generator())
    features = torch.randn(2, 3 * target.embedding.shape[1])
    last = features.chunk(3, dim=1)[-1]
    torch.testing.assert_close(features @ weights["fc.weight"].T, last)
    torch.testing.assert_close(weights["lm_head.weight"], target.head[vocabulary])
    weights["lm_head.weight"].zero_()
    assert target.head[vocabulary].abs().min() > 0  # a copy
