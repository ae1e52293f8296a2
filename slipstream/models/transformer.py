"""The decoder of all supported architectures, written once against the kernel interface."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from slipstream.kernels.interface import Embedding, Kernels, Linear, Vector
from slipstream.kernels.step_batch import StepBatch
from slipstream.memory.pool import PAGE_SIZE
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.config import ModelConfig
from slipstream.models.rope import attention_factor, inverse_frequencies


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer's packed weights."""

    attention_norm: Vector
    qkv: Linear
    qk_norms: tuple[Vector, Vector, float] | None
    attention_output: Linear
    mlp_norm: Vector
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Weights:
    """All packed weights; the head may share the embedding's values."""

    embedding: Embedding
    layers: list[Layer]
    norm: Vector
    head: Linear

    @classmethod
    def load(cls, checkpoint: Checkpoint, kernels: Kernels) -> Self:
        """Pack a checkpoint's tensors, one layer's float32 values at a time."""
        config = checkpoint.config
        embedding = checkpoint.tensor("model.embed_tokens.weight")
        head = embedding if config.tie_word_embeddings else checkpoint.tensor("lm_head.weight")
        return cls(
            embedding=kernels.pack_embedding(embedding),
            layers=[_load_layer(checkpoint, kernels, i) for i in range(config.num_layers)],
            norm=kernels.pack_vector(checkpoint.tensor("model.norm.weight")),
            head=kernels.pack_linear([head], None),
        )


class Transformer:
    """A target: weights, K/V memory, and the forward pass.

    ``max_model_len`` tokens of one request, at most, fit the pages and the rotary tables.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        kernels: Kernels,
        *,
        pages: int,
        max_model_len: int,
    ) -> None:
        self.max_model_len = max_model_len
        self._config = config
        self._weights = weights
        self._kernels = kernels
        self._cache = kernels.new_kv_cache(
            config.num_layers, config.num_kv_heads, config.head_dim, pages * PAGE_SIZE
        )
        self._rotary = kernels.pack_rotary(*_rotary_tables(config, max_model_len))

    @torch.inference_mode()
    def forward(self, batch: StepBatch) -> NDArray[np.float32]:
        """Compute all rows, store their K and V; logits ``[L, vocabulary]`` of the logit rows."""
        config, weights, kernels = self._config, self._weights, self._kernels
        eps = config.rms_norm_eps
        step = kernels.begin(
            batch, config.num_heads, config.num_kv_heads, config.head_dim, self._rotary
        )
        x = kernels.embed(weights.embedding, step)
        for index, layer in enumerate(weights.layers):
            qkv = kernels.norm_linear(x, layer.attention_norm, eps, layer.qkv)
            mixed = kernels.attention(qkv, layer.qk_norms, self._cache, index, step)
            x = kernels.linear_add(mixed, layer.attention_output, x)
            gate_up = kernels.norm_linear(x, layer.mlp_norm, eps, layer.gate_up)
            x = kernels.linear_add(kernels.swiglu(gate_up), layer.down, x)
        return kernels.logits(x, weights.norm, eps, weights.head, step)

    def move_slots(self, sources: list[int], targets: list[int]) -> None:
        """Copy K and V of all layers between slots, all reads before all writes."""
        self._kernels.move_slots(self._cache, sources, targets)


def page_bytes(config: ModelConfig, kernels: Kernels) -> int:
    """K/V memory of one page over all layers."""
    slot = kernels.slot_bytes(config.num_layers, config.num_kv_heads, config.head_dim)
    return PAGE_SIZE * slot


def _load_layer(checkpoint: Checkpoint, kernels: Kernels, index: int) -> Layer:
    config = checkpoint.config
    prefix = f"model.layers.{index}."

    def tensor(name: str) -> torch.Tensor:
        return checkpoint.tensor(prefix + name)

    def linear(names: list[str], has_bias: bool) -> Linear:
        bias = torch.cat([tensor(f"{name}.bias") for name in names]) if has_bias else None
        return kernels.pack_linear([tensor(f"{name}.weight") for name in names], bias)

    attention = [f"self_attn.{name}_proj" for name in "qkv"]
    return Layer(
        attention_norm=kernels.pack_vector(tensor("input_layernorm.weight")),
        qkv=linear(attention, config.qkv_bias),
        qk_norms=(
            kernels.pack_vector(tensor("self_attn.q_norm.weight")),
            kernels.pack_vector(tensor("self_attn.k_norm.weight")),
            config.rms_norm_eps,
        )
        if config.qk_norm
        else None,
        attention_output=linear(["self_attn.o_proj"], config.o_bias),
        mlp_norm=kernels.pack_vector(tensor("post_attention_layernorm.weight")),
        gate_up=linear(["mlp.gate_proj", "mlp.up_proj"], config.mlp_bias),
        down=linear(["mlp.down_proj"], config.mlp_bias),
    )


def _rotary_tables(config: ModelConfig, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, float32 ``[positions, head_dim / 2]``."""
    frequencies = torch.from_numpy(inverse_frequencies(config))
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    factor = attention_factor(config)
    return angles.cos() * factor, angles.sin() * factor
