"""What training needs of the target."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import nn

from slipstream.models.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True, eq=False)
class TargetTensors:
    """Float32 tensors of the target: embedding and head ``[vocabulary, hidden]``, the final norm
    ``[hidden]``, and the last layer's weights by name (``self_attn.q_proj.weight``)."""

    embedding: torch.Tensor
    head: torch.Tensor
    norm: torch.Tensor
    eps: float
    last_layer: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """Read and expand them; a tied head shares the embedding's memory."""

        def tensor(name: str) -> torch.Tensor:
            return torch.from_numpy(checkpoint.weight(name).float32())

        config = checkpoint.config
        embedding = tensor("model.embed_tokens.weight")
        prefix = f"model.layers.{config.num_layers - 1}."
        return cls(
            embedding=embedding,
            head=embedding if config.tie_word_embeddings else tensor("lm_head.weight"),
            norm=tensor("model.norm.weight"),
            eps=config.rms_norm_eps,
            last_layer={
                name.removeprefix(prefix): tensor(name)
                for name in checkpoint.shapes
                if name.startswith(prefix)
            },
        )

    def probabilities(self, residuals: torch.Tensor, vocabulary: torch.Tensor) -> torch.Tensor:
        """The target's own distribution over a draft vocabulary, ``[N, D]``, given the residual
        stream ``[N, hidden]`` that leaves its last layer."""
        head = self.head[vocabulary] * self.norm
        return torch.softmax(normalized(residuals, self.eps) @ head.T, dim=-1)


def normalized(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Rows scaled to a root mean square of 1: a norm whose weight is folded into what follows."""
    return nn.functional.rms_norm(x, x.shape[-1:], eps=eps)
