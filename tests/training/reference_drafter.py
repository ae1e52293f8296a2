"""The drafter as it runs when it drafts: one row at a time, a causal cache, then a chain."""

import torch
from torch import Tensor

from slipstream.models.rope import rotary_tables
from slipstream.speculation.eagle3.config import Eagle3Config


class ReferenceDrafter:
    """Plain and slow: nothing folded, nothing batched. Weights have SpecForge's names."""

    def __init__(self, config: Eagle3Config, weights: dict[str, Tensor], embedding: Tensor) -> None:
        self._config, self._weights, self._embedding = config, weights, embedding

    def run(self, tokens: Tensor, features: Tensor, row: int, level: int) -> Tensor:
        """Output ``[hidden]`` of a row at a level: rows before it fill the cache, and its own
        chain goes on with the tokens that truly came."""
        cache: list[tuple[Tensor, Tensor]] = []
        x = torch.zeros(0)
        for t in range(row + 1):
            x = self._row(features[t] @ self._weights["fc.weight"].T, tokens[t + 1], t, cache)
        for deeper in range(2, level + 1):
            x = self._row(x, tokens[row + deeper], row + deeper - 1, cache)
        return x

    def logits(self, x: Tensor) -> Tensor:
        return self._norm(x, "norm.weight") @ self._weights["lm_head.weight"].T

    def _row(
        self, x: Tensor, token: Tensor, position: int, cache: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        config, weights = self._config, self._weights
        joined = torch.cat(
            [
                self._norm(self._embedding[token], "midlayer.input_layernorm.weight"),
                self._norm(x, "midlayer.hidden_norm.weight"),
            ]
        )
        q, k, v = (
            (joined @ weights[f"midlayer.self_attn.{n}_proj.weight"].T).view(-1, config.head_dim)
            for n in "qkv"
        )
        cache.append((self._rotate(k, position), v))
        q = self._rotate(q, position)
        heads = []
        for head in range(config.num_heads):
            shared = head // (config.num_heads // config.num_kv_heads)
            scores = torch.stack([q[head] @ key[shared] for key, _ in cache])
            shares = torch.softmax(scores / config.head_dim**0.5, 0)
            values = torch.stack([value[shared] for _, value in cache])
            heads.append(shares @ values)
        x = x + torch.cat(heads) @ weights["midlayer.self_attn.o_proj.weight"].T
        y = self._norm(x, "midlayer.post_attention_layernorm.weight")
        gate, up = (y @ weights[f"midlayer.mlp.{n}_proj.weight"].T for n in ("gate", "up"))
        inner = torch.nn.functional.silu(gate) * up
        return x + inner @ weights["midlayer.mlp.down_proj.weight"].T

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale = torch.rsqrt(x.square().mean() + self._config.rms_norm_eps)
        return x * scale * self._weights[name]

    def _rotate(self, x: Tensor, position: int) -> Tensor:
        cosines, sines = (torch.from_numpy(t[position]) for t in rotary_tables(self._config, 99))
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)
