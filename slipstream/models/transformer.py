"""The decoder of all supported architectures, written once against the kernel interface."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels.interface import (
    Embedding,
    GateUp,
    KeptRows,
    Kernels,
    KVDtype,
    Linear,
    Operations,
    Rows,
    Vector,
)
from slipstream.kernels.sampling_rows import SamplingRows
from slipstream.kernels.step_batch import StepBatch
from slipstream.kernels.weight import Weight
from slipstream.memory.pool import PAGE_SIZE
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.config import ModelConfig
from slipstream.models.rope import rotary_tables


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer's packed weights."""

    attention_norm: Vector
    qkv: Linear
    qk_norms: tuple[Vector, Vector, float] | None
    attention_output: Linear
    mlp_norm: Vector
    gate_up: GateUp
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
        """Pack a checkpoint's weights, one after the other."""
        config = checkpoint.config
        embedding = kernels.pack_embedding(checkpoint.weight("model.embed_tokens.weight"))
        return cls(
            embedding=embedding,
            layers=[_load_layer(checkpoint, kernels, i) for i in range(config.num_layers)],
            norm=kernels.pack_vector(checkpoint.weight("model.norm.weight").float32()),
            head=kernels.tied_head(embedding)
            if config.tie_word_embeddings
            else kernels.pack_linear([checkpoint.weight("lm_head.weight")], None),
        )


class Transformer:
    """A target: weights, K/V memory, and the forward pass.

    ``max_model_len`` tokens of one request, at most, fit the pages and the rotary tables.
    ``feature_layers`` names the features that are kept beside K and V in each slot: the residual
    stream that enters these layers, where the number of layers stands for what leaves the last.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        kernels: Kernels,
        *,
        pages: int,
        max_model_len: int,
        kv_dtype: KVDtype = "auto",
        feature_layers: Sequence[int] = (),
    ) -> None:
        self.max_model_len = max_model_len
        self._config = config
        self._weights = weights
        self._kernels = kernels
        self._cache = kernels.new_kv_cache(
            config.num_layers, config.num_kv_heads, config.head_dim, pages * PAGE_SIZE, kv_dtype
        )
        self._feature_layers = tuple(feature_layers)
        self.features: KeptRows | None = None
        if feature_layers:
            self.features = kernels.new_kept_rows(
                pages * PAGE_SIZE, len(feature_layers), config.hidden_size
            )
        self._rotary = kernels.pack_rotary(*rotary_tables(config, max_model_len))
        self._program = kernels.record(self._forward)

    @property
    def embedding(self) -> Embedding:
        """The packed table of token embeddings."""
        return self._weights.embedding

    def forward(self, batch: StepBatch) -> NDArray[np.float32]:
        """Compute all rows, store their K and V; logits ``[L, vocabulary]`` of the logit rows,
        valid until the next pass."""
        return self._program(batch)

    def _forward(self, ops: Operations) -> Rows:
        config, weights = self._config, self._weights
        eps = config.rms_norm_eps
        x = ops.embed(weights.embedding)
        for index, layer in enumerate(weights.layers):
            self._keep_features(ops, x, index)
            qkv = ops.norm_linear(x, layer.attention_norm, eps, layer.qkv)
            mixed = ops.attention(
                qkv,
                config.num_heads,
                layer.qk_norms,
                self._rotary,
                self._cache,
                index,
                into=layer.attention_output,
            )
            x = ops.linear_add(mixed, layer.attention_output, x)
            inner = ops.norm_swiglu(x, layer.mlp_norm, eps, layer.gate_up, into=layer.down)
            x = ops.linear_add(inner, layer.down, x)
        self._keep_features(ops, x, config.num_layers)
        return ops.logits(x, weights.norm, eps, weights.head)

    def _keep_features(self, ops: Operations, x: Rows, layer: int) -> None:
        for part, wanted in enumerate(self._feature_layers):
            if wanted == layer:
                ops.keep(x, self.features, part)

    def sample(self, logits: NDArray[np.float32], rows: SamplingRows) -> NDArray[np.int32]:
        """The token ``[L]`` that each row of logits gives."""
        return self._kernels.sample(logits, rows)

    def move_slots(self, sources: list[int], targets: list[int]) -> None:
        """Copy K and V of all layers between slots, all reads before all writes."""
        self._kernels.move_slots(self._cache, sources, targets)
        if self.features is not None:
            self._kernels.move_kept(self.features, sources, targets)

    def read_features(self, slots: NDArray[np.int32]) -> NDArray[np.float32]:
        """The features of ``slots``, ``[slots, feature layers, hidden]``."""
        return self._kernels.read_kept(self.features, slots)


def page_bytes(
    config: ModelConfig, kernels: Kernels, kv_dtype: KVDtype = "auto", features: int = 0
) -> int:
    """Memory of one page: K and V of all layers, and so many features."""
    slot = kernels.slot_bytes(config.num_layers, config.num_kv_heads, config.head_dim, kv_dtype)
    return PAGE_SIZE * (slot + kernels.kept_slot_bytes(features, config.hidden_size))


def _load_layer(checkpoint: Checkpoint, kernels: Kernels, index: int) -> Layer:
    config = checkpoint.config
    prefix = f"model.layers.{index}."

    def weight(name: str) -> Weight:
        return checkpoint.weight(prefix + name)

    def vector(name: str) -> Vector:
        return kernels.pack_vector(weight(name).float32())

    def matrices(names: list[str]) -> list[Weight]:
        return [weight(f"{name}.weight") for name in names]

    def bias(names: list[str], has_bias: bool) -> NDArray[np.float32] | None:
        if not has_bias:
            return None
        return np.concatenate([weight(f"{name}.bias").float32() for name in names])

    def linear(names: list[str], has_bias: bool) -> Linear:
        return kernels.pack_linear(matrices(names), bias(names, has_bias))

    attention = [f"self_attn.{name}_proj" for name in "qkv"]
    gate_up = ["mlp.gate_proj", "mlp.up_proj"]
    gate, up = matrices(gate_up)
    return Layer(
        attention_norm=vector("input_layernorm.weight"),
        qkv=linear(attention, config.qkv_bias),
        qk_norms=(
            vector("self_attn.q_norm.weight"),
            vector("self_attn.k_norm.weight"),
            config.rms_norm_eps,
        )
        if config.qk_norm
        else None,
        attention_output=linear(["self_attn.o_proj"], config.o_bias),
        mlp_norm=vector("post_attention_layernorm.weight"),
        gate_up=kernels.pack_gate_up(gate, up, bias(gate_up, config.mlp_bias)),
        down=linear(["mlp.down_proj"], config.mlp_bias),
    )
