"""The EAGLE-3 drafter as it is trained (Li et al., "EAGLE-3", 2025), in PyTorch.

Weights have SpecForge's names. Norms are folded into the matrix behind them, and that matrix is
split where it takes in the token's embedding: this half depends on the token alone, so it is
computed once for all levels, and as embeddings are not trained its input needs no gradient.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from slipstream.models.rope import rotary_tables
from slipstream.speculation.eagle3.config import Eagle3Config
from slipstream.training.attention import KeysAndValues, attend, rotate
from slipstream.training.batch import Batch
from slipstream.training.target import TargetTensors, normalized

Weights = dict[str, Tensor]

ATTENTION = "midlayer.self_attn."
MLP = "midlayer.mlp."


def initial_weights(
    config: Eagle3Config, target: TargetTensors, vocabulary: Tensor, generator: torch.Generator
) -> Weights:
    """Start from what the target knows: its last layer, final norm and head.

    The last feature passes ``fc`` as it is. What takes in the embedding starts small and random.
    """
    hidden = config.hidden_size
    layer = target.last_layer
    fc = torch.zeros(hidden, 3 * hidden)
    fc[:, -hidden:] = torch.eye(hidden)
    weights = {
        "fc.weight": fc,
        "midlayer.input_layernorm.weight": torch.ones(hidden),
        "midlayer.hidden_norm.weight": layer["input_layernorm.weight"].clone(),
        "midlayer.post_attention_layernorm.weight": layer[
            "post_attention_layernorm.weight"
        ].clone(),
        ATTENTION + "o_proj.weight": layer["self_attn.o_proj.weight"].clone(),
        "norm.weight": target.norm.clone(),
        "lm_head.weight": target.head[vocabulary],
    }
    for name in ("q_proj", "k_proj", "v_proj"):
        of_feature = layer[f"self_attn.{name}.weight"]
        of_embedding = torch.empty_like(of_feature).normal_(std=0.02, generator=generator)
        weights[f"{ATTENTION}{name}.weight"] = torch.cat([of_embedding, of_feature], dim=1)
    for name in ("gate_proj", "up_proj", "down_proj"):
        weights[f"{MLP}{name}.weight"] = layer[f"mlp.{name}.weight"].clone()
    return weights


class Folded(NamedTuple):
    """The matrices that rows meet: norms folded in, products with the same input put together."""

    fc: Tensor  # [hidden, 3 * hidden]
    qkv_of_embedding: Tensor  # [queries + keys + values, hidden]
    qkv_of_feature: Tensor
    attention_output: Tensor
    gate_up: Tensor  # [2 * intermediate, hidden]
    down: Tensor
    head: Tensor  # [draft vocabulary, hidden]

    @classmethod
    def of(cls, weights: Mapping[str, Tensor]) -> Self:
        """Differentiable with respect to the weights."""
        hidden = len(weights["norm.weight"])
        qkv = torch.cat([weights[f"{ATTENTION}{name}_proj.weight"] for name in "qkv"])
        gate_up = torch.cat([weights[f"{MLP}{name}_proj.weight"] for name in ("gate", "up")])
        return cls(
            fc=weights["fc.weight"],
            qkv_of_embedding=qkv[:, :hidden] * weights["midlayer.input_layernorm.weight"],
            qkv_of_feature=qkv[:, hidden:] * weights["midlayer.hidden_norm.weight"],
            attention_output=weights[ATTENTION + "o_proj.weight"],
            gate_up=gate_up * weights["midlayer.post_attention_layernorm.weight"],
            down=weights[MLP + "down_proj.weight"],
            head=weights["lm_head.weight"] * weights["norm.weight"],
        )


class Network:
    """The drafter's arithmetic, level by level."""

    def __init__(self, config: Eagle3Config, target: TargetTensors, folded: Folded) -> None:
        self.folded = folded
        self._config = config
        self._embedding = target.embedding

    def levels(self, batch: Batch, levels: int) -> Iterator[Tensor]:
        """The layer's output of a batch's rows at each level, one after the other, ``[R, hidden]``.

        Each level takes in the output of the level before, and the token that truly came.
        """
        folded, rotary = self.folded, self._rotary(batch, levels)
        embedded = self.normalized(self._embedding[batch.tokens]) @ folded.qkv_of_embedding.T
        features = batch.features @ folded.fc.T
        # At the first level even tokens that are not trained on are seen by those that are.
        following = torch.roll(embedded, -1, dims=0)
        qkv = self.normalized(features) @ folded.qkv_of_feature.T + following
        context = self._keys_and_values(qkv, batch.positions, rotary)
        x, qkv = features[batch.first.at], qkv[batch.first.at]
        chain: list[KeysAndValues] = []
        for level in range(1, levels + 1):
            rows = batch.rows(level)
            positions = batch.positions[rows.at] + level - 1
            if level == 2:
                x = x[batch.deep_of_first]
            if level > 1:
                of_token = embedded[rows.places(level)]
                qkv = self.normalized(x) @ folded.qkv_of_feature.T + of_token
                chain.append(self._keys_and_values(qkv, positions, rotary))
            mixed = attend(self._queries(qkv, positions, rotary), context, chain, rows.spans)
            x = x + mixed @ folded.attention_output.T
            gate, up = (self.normalized(x) @ folded.gate_up.T).chunk(2, dim=1)
            x = x + (nn.functional.silu(gate) * up) @ folded.down.T
            yield x

    def normalized(self, x: Tensor) -> Tensor:
        """What the matrices of `Folded` are multiplied with."""
        return normalized(x, self._config.rms_norm_eps)

    def _rotary(self, batch: Batch, levels: int) -> tuple[Tensor, Tensor]:
        longest = int(batch.positions.max()) + levels
        cosines, sines = rotary_tables(self._config, longest)
        return torch.from_numpy(cosines), torch.from_numpy(sines)

    def _queries(self, qkv: Tensor, positions: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        config = self._config
        queries = qkv[:, : config.num_heads * config.head_dim]
        group = config.num_heads // config.num_kv_heads
        queries = queries.reshape(-1, config.num_kv_heads, group, config.head_dim)
        return rotate(queries * config.head_dim**-0.5, rotary[0][positions], rotary[1][positions])

    def _keys_and_values(
        self, qkv: Tensor, positions: Tensor, rotary: tuple[Tensor, Tensor]
    ) -> KeysAndValues:
        config = self._config
        keys, values = qkv[:, config.num_heads * config.head_dim :].chunk(2, dim=1)
        shape = (-1, config.num_kv_heads, config.head_dim)
        keys = rotate(keys.reshape(shape), rotary[0][positions], rotary[1][positions])
        return KeysAndValues(keys, values.reshape(shape))
