"""The drafter, one row at a time in float64 numpy, as its papers and checkpoints define it."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels import Weight
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.quantize import quantize
from slipstream.models.rope import rotary_tables
from slipstream.speculation.eagle3.checkpoint import Eagle3Checkpoint

Array = NDArray[np.float64]


@dataclass(frozen=True)
class State:
    """A row's output with the keys and values of all rows on its path."""

    output: Array
    keys: list[Array]
    values: list[Array]

    @classmethod
    def empty(cls) -> Self:
        return cls(np.empty(0), [], [])


class Reference:
    def __init__(self, drafter: Eagle3Checkpoint, target: Checkpoint) -> None:
        self.config = drafter.config
        self._weights = {name: _values(name, drafter.weight(name)) for name in drafter.shapes}
        self._embedding = target.weight("model.embed_tokens.weight").float32()
        self._cosines, self._sines = rotary_tables(self.config, 2048)

    def first(self, features: Array, token: int, position: int, before: State) -> State:
        """A row made of the target's features ``[parts, hidden]``."""
        if self.config.fc_norm:
            parts = [
                self._norm(feature, f"fc_norm.{part}.weight")
                for part, feature in enumerate(features)
            ]
            joined = np.concatenate(parts)
        else:
            joined = features.reshape(-1)
        if self.config.norm_before_fc:
            joined = self._norm(joined, "input_norm.weight")
        return self._row(self._weights["fc.weight"] @ joined, token, position, before)

    def deeper(self, token: int, position: int, before: State) -> State:
        """A row made of the output of the row before it."""
        x = before.output
        if self.config.norm_output:
            x = self._norm(x, "norm.weight")
        return self._row(x, token, position, before)

    def logits(self, state: State) -> Array:
        return self._weights["lm_head.weight"] @ self._norm(state.output, "norm.weight")

    def _row(self, x: Array, token: int, position: int, before: State) -> State:
        config = self.config
        embedded = self._norm(self._embedding[token], "midlayer.input_layernorm.weight")
        feature = self._norm(x, "midlayer.hidden_norm.weight")
        inputs = np.concatenate([embedded, feature])
        query, key, value = (
            (self._weights[f"midlayer.self_attn.{name}_proj.weight"] @ inputs).reshape(
                -1, config.head_dim
            )
            for name in "qkv"
        )
        keys = [*before.keys, self._rotate(key, position)]
        values = [*before.values, value]
        query = self._rotate(query, position) / np.sqrt(config.head_dim)
        share = config.num_heads // config.num_kv_heads
        mixed = []
        for head in range(config.num_heads):
            scores = np.array([k[head // share] @ query[head] for k in keys])
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            mixed.append(sum(w * v[head // share] for w, v in zip(weights, values, strict=True)))
        if config.norm_before_residual:
            x = feature
        x = x + self._weights["midlayer.self_attn.o_proj.weight"] @ np.concatenate(mixed)
        inner = self._norm(x, "midlayer.post_attention_layernorm.weight")
        gate = self._weights["midlayer.mlp.gate_proj.weight"] @ inner
        up = self._weights["midlayer.mlp.up_proj.weight"] @ inner
        x = x + self._weights["midlayer.mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
        return State(x, keys, values)

    def _norm(self, x: Array, name: str) -> Array:
        scaled: Array = x / np.sqrt((x * x).mean() + self.config.rms_norm_eps)
        return scaled * self._weights[name]

    def _rotate(self, x: Array, position: int) -> Array:
        first, second = np.split(x, 2, axis=-1)
        cosine, sine = self._cosines[position], self._sines[position]
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)


def _values(name: str, weight: Weight) -> Array:
    """As the drafter packs it: the head is rounded to 8 bits, other matrices to 4."""
    if len(weight.shape) > 1:
        weight = quantize(weight, "q8_0" if name == "lm_head.weight" else "q4_1")
    return weight.float32().astype(np.float64)
