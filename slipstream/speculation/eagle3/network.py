"""The EAGLE-3 drafter's network, against the kernel interface (Li et al., "EAGLE-3", 2025).

One decoder layer whose rows pair a feature of position t with the token at t + 1. At the first
level the feature is made of the target's own; deeper levels take the layer's output of the row
above them.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels import Kernels, SamplingRows, StepBatch
from slipstream.kernels.growth import TreeGrower
from slipstream.kernels.interface import (
    Embedding,
    GateUp,
    KeptRows,
    Linear,
    Operations,
    Rows,
    Vector,
)
from slipstream.kernels.weight import Weight
from slipstream.models.quantize import GROUP, quantize
from slipstream.models.rope import rotary_tables
from slipstream.speculation.eagle3.checkpoint import Eagle3Checkpoint
from slipstream.speculation.eagle3.config import Eagle3Config
from slipstream.speculation.eagle3.growth import LevelGrower

LAYER = "midlayer."


@dataclass(frozen=True, slots=True)
class DrafterWeights:
    """All packed weights. Products of two inputs are kept as one product for each input."""

    embedding: Embedding
    fc: list[Linear]  # one for all of the target's features, or one for each
    fc_norms: list[Vector]  # as many, or none
    embedding_norm: Vector
    feature_norm: Vector
    qkv_of_embedding: Linear
    qkv_of_feature: Linear
    kv_of_embedding: Linear  # again, without the queries
    kv_of_feature: Linear
    attention_output: Linear
    mlp_norm: Vector
    gate_up: GateUp
    down: Linear
    norm: Vector
    head: Linear

    @classmethod
    def load(cls, checkpoint: Eagle3Checkpoint, kernels: Kernels, embedding: Embedding) -> Self:
        """Pack a checkpoint's weights; ``embedding`` is the target's, used if it has none."""

        config = checkpoint.config

        def vector(name: str) -> Vector:
            return kernels.pack_vector(checkpoint.weight(name).float32())

        def linear(name: str) -> Linear:
            return kernels.pack_linear([_rounded(checkpoint.weight(name))], None)

        if "embed_tokens.weight" in checkpoint.shapes:
            table = checkpoint.weight("embed_tokens.weight")
            embedding = kernels.pack_embedding(_rounded(table, "q8_0"))
        qkv = [checkpoint.weight(f"{LAYER}self_attn.{name}_proj.weight") for name in "qkv"]
        halves = [[_rounded(half) for half in _columns(weight, 2)] for weight in qkv]
        gate, up = (checkpoint.weight(f"{LAYER}mlp.{name}_proj.weight") for name in ("gate", "up"))
        return cls(
            embedding=embedding,
            fc=[
                kernels.pack_linear([_rounded(part)], None)
                for part in _columns(checkpoint.weight("fc.weight"), config.fc_parts)
            ],
            fc_norms=[vector(name) for name in config.fc_norm_names],
            embedding_norm=vector(LAYER + "input_layernorm.weight"),
            feature_norm=vector(LAYER + "hidden_norm.weight"),
            qkv_of_embedding=kernels.pack_linear([left for left, _ in halves], None),
            qkv_of_feature=kernels.pack_linear([right for _, right in halves], None),
            kv_of_embedding=kernels.pack_linear([left for left, _ in halves[1:]], None),
            kv_of_feature=kernels.pack_linear([right for _, right in halves[1:]], None),
            attention_output=linear(LAYER + "self_attn.o_proj.weight"),
            mlp_norm=vector(LAYER + "post_attention_layernorm.weight"),
            gate_up=kernels.pack_gate_up(_rounded(gate), _rounded(up), None),
            down=linear(LAYER + "mlp.down_proj.weight"),
            norm=vector("norm.weight"),
            # In 4 bits it would cost accepted length, which the other matrices do not.
            head=kernels.pack_linear([_rounded(checkpoint.weight("lm_head.weight"), "q8_0")], None),
        )


class DrafterNetwork:
    """Weights, the drafter's own K/V memory, and its passes.

    ``features`` holds the target's features by its slots, ``slots`` counts the drafter's own.
    ``grow`` runs a first pass, whose rows are made of the target's features in the slots `sources`,
    and deeper ones, whose rows are made of outputs of rows before.
    """

    def __init__(
        self,
        checkpoint: Eagle3Checkpoint,
        weights: DrafterWeights,
        kernels: Kernels,
        features: KeptRows,
        *,
        slots: int,
        max_model_len: int,
    ) -> None:
        self._config = checkpoint.config
        self._weights = weights
        self._kernels = kernels
        self._features = features
        self._target_ids = checkpoint.target_ids
        config = self._config
        self._cache = kernels.new_kv_cache(1, config.num_kv_heads, config.head_dim, slots, "auto")
        self._outputs = kernels.new_kept_rows(slots, 1, config.hidden_size)
        self._rotary = kernels.pack_rotary(*rotary_tables(config, max_model_len))
        self._enter = kernels.record(self._enter_features)
        self._first = kernels.record(self._first_level)
        self._deeper = kernels.record(self._deeper_level)
        self.grow: TreeGrower = (
            kernels.tree_grower(self._first, self._deeper, checkpoint.target_ids)
            or self.level_grower()
        )

    def enter(self, batch: StepBatch) -> None:
        """Only store the keys and values that a first pass would store."""
        self._enter(batch)

    def level_grower(self) -> LevelGrower:
        """What grows trees where the kernels do not."""
        return LevelGrower(self._first, self._deeper, self._rank)

    def _rank(
        self, logits: NDArray[np.float32], rows: SamplingRows, count: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        return self._kernels.rank(logits, rows, self._target_ids, count)

    def _enter_features(self, ops: Operations) -> Rows:
        weights, eps = self._weights, self._config.rms_norm_eps
        embedded = ops.embed(weights.embedding)
        kv = ops.norm_linear(embedded, weights.embedding_norm, eps, weights.kv_of_embedding)
        x = self._feature(ops)
        kv = ops.norm_linear(x, weights.feature_norm, eps, weights.kv_of_feature, residual=kv)
        ops.store(kv, self._rotary, self._cache, 0)
        return kv

    def _first_level(self, ops: Operations) -> Rows:
        return self._layer(ops, self._feature(ops))

    def _deeper_level(self, ops: Operations) -> Rows:
        return self._layer(ops, ops.gather(self._outputs, [0]))

    def _feature(self, ops: Operations) -> Rows:
        """One feature of the several that were kept."""
        weights, eps = self._weights, self._config.rms_norm_eps
        every = range(self._config.features)
        groups = [every] if len(weights.fc) == 1 else [[part] for part in every]
        x: Rows = None
        for index, (parts, linear) in enumerate(zip(groups, weights.fc, strict=True)):
            kept = ops.gather(self._features, parts)
            if weights.fc_norms:
                x = ops.norm_linear(kept, weights.fc_norms[index], eps, linear, residual=x)
            else:
                x = ops.linear(kept, linear, residual=x)
        return x

    def _layer(self, ops: Operations, x: Rows) -> Rows:
        config, weights = self._config, self._weights
        eps = config.rms_norm_eps
        embedded = ops.embed(weights.embedding)
        qkv = ops.norm_linear(embedded, weights.embedding_norm, eps, weights.qkv_of_embedding)
        if config.norm_before_residual:
            x = ops.norm(x, weights.feature_norm, eps)
            qkv = ops.linear(x, weights.qkv_of_feature, residual=qkv)
        else:
            qkv = ops.norm_linear(
                x, weights.feature_norm, eps, weights.qkv_of_feature, residual=qkv
            )
        mixed = ops.attention(
            qkv,
            config.num_heads,
            None,
            self._rotary,
            self._cache,
            0,
            into=weights.attention_output,
        )
        x = ops.linear_add(mixed, weights.attention_output, x)
        inner = ops.norm_swiglu(x, weights.mlp_norm, eps, weights.gate_up, into=weights.down)
        x = ops.linear_add(inner, weights.down, x)
        ops.keep(ops.norm(x, weights.norm, eps) if config.norm_output else x, self._outputs, 0)
        return ops.logits(x, weights.norm, eps, weights.head)


def ring_slot_bytes(config: Eagle3Config, kernels: Kernels) -> int:
    """Memory of one of the drafter's own slots."""
    keys = kernels.slot_bytes(1, config.num_kv_heads, config.head_dim, "auto")
    return keys + kernels.kept_slot_bytes(1, config.hidden_size)


def _columns(weight: Weight, parts: int) -> list[Weight]:
    """The matrix ``[N, parts * K]`` as matrices ``[N, K]``."""
    values = weight.float32()
    return [Weight.of(part) for part in np.split(values, parts, axis=1)]


def _rounded(weight: Weight, kind: str = "q4_1") -> Weight:
    """The matrix in 4 bits, where its width allows: a guess need not be exact, only cheap."""
    if weight.shape[1] % GROUP or weight.kind.startswith("q"):
        return weight
    return quantize(weight, kind)
