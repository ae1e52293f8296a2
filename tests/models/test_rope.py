"""Rotary frequencies equal those of transformers."""

from typing import Any

import numpy as np
import pytest
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from slipstream.models.config import ModelConfig
from slipstream.models.rope import attention_factor, inverse_frequencies

SCALINGS: dict[str, dict[str, Any]] = {
    "plain": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
    "yarn, all fields": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "mscale": 1.0,
        "mscale_all_dim": 0.8,
        "truncate": False,
    },
}


@pytest.mark.parametrize("theta", [10_000.0, 100_000.0, 1_000_000.0])
@pytest.mark.parametrize("head_dim", [16, 64, 128])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_equals_transformers(scaling: str, head_dim: int, theta: float) -> None:
    theirs = LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        max_position_embeddings=131072,
        rope_parameters=SCALINGS[scaling] | {"rope_theta": theta},
    )
    config = ModelConfig.from_hf(theirs.to_dict())
    embedding = LlamaRotaryEmbedding(theirs)
    ours = inverse_frequencies(config)
    assert ours.dtype == np.float32
    assert ours.shape == (head_dim // 2,)
    # Two units in the last place: powers and quotients are rounded in another order.
    np.testing.assert_allclose(ours, embedding.inv_freq.numpy(), rtol=2.4e-7)
    assert attention_factor(config) == pytest.approx(embedding.attention_scaling)
