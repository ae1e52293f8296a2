"""A tiny target and a tiny corpus for the training's tests."""

from pathlib import Path

import numpy as np
import torch

from slipstream.speculation.eagle3.config import Eagle3Config
from slipstream.training.corpus import FEATURES, PROMPTS_PER_SHARD, ShardWriter
from slipstream.training.target import TargetTensors

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM = 24, 40, 4, 2, 6
VOCABULARY = 50
STEP = 5


def tiny_config(draft_vocab_size: int) -> Eagle3Config:
    return Eagle3Config(
        hidden_size=HIDDEN,
        target_hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_heads=HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        rope_scaling=None,
        vocab_size=VOCABULARY,
        draft_vocab_size=draft_vocab_size,
        max_position_embeddings=128,
    )


def tiny_target(seed: int = 0) -> TargetTensors:
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * columns**-0.5

    def norm() -> torch.Tensor:
        return 1 + 0.2 * torch.randn(HIDDEN, generator=generator)

    embedding = torch.randn(VOCABULARY, HIDDEN, generator=generator)
    return TargetTensors(
        embedding=embedding,
        head=embedding,
        norm=norm(),
        eps=1e-5,
        last_layer={
            "input_layernorm.weight": norm(),
            "post_attention_layernorm.weight": norm(),
            "self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN),
            "self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            "mlp.gate_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            "mlp.up_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            "mlp.down_proj.weight": matrix(HIDDEN, INTERMEDIATE),
        },
    )


def write_counting_corpus(folder: Path, target: TargetTensors, prompts: int = 80) -> None:
    """Conversations in which every token is `STEP` more than the one before, and residuals that
    say so; the first three features are noise."""
    rng = np.random.default_rng(0)
    embedding = target.embedding.numpy()
    for shard in range(-(-prompts // PROMPTS_PER_SHARD)):
        first = shard * PROMPTS_PER_SHARD
        members = range(first, min(first + PROMPTS_PER_SHARD, prompts))
        writer = ShardWriter(folder, shard, len(members))
        for prompt in members:
            length = int(rng.integers(8, 20))
            first_token = STEP * rng.integers(VOCABULARY // STEP)
            tokens = ((first_token + STEP * np.arange(length)) % VOCABULARY).astype(np.int32)
            features = rng.standard_normal((length, FEATURES * HIDDEN)).astype(np.float32)
            # The head's row of the next token, undoing the final norm: the target is sure.
            following = embedding[(tokens + STEP) % VOCABULARY] / target.norm.numpy()
            features[:, -HIDDEN:] = 4 * following
            writer.add(tokens, 4, prompt, features)
        assert writer.full
        writer.close()
