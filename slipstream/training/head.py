"""The drafter's head and its loss in one, so that no gradient of the logits is ever kept."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

CHUNK = 256  # rows whose logits are in memory at a time


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The part of the draft vocabulary that the softmax of one batch runs over.

    Some tokens were drawn at random and stand for many: ``bias`` is the logarithm of how many.
    With it the softmax's denominator is that of the whole vocabulary, in expectation (Jean et al.,
    "On Using Very Large Target Vocabulary", 2015).
    """

    ids: Tensor  # int64 [C]
    bias: Tensor  # float32 [C]

    @classmethod
    def all(cls, count: int) -> Self:
        """All ``count`` of them."""
        return cls(torch.arange(count), torch.zeros(count))

    @classmethod
    def draw(cls, targets: Tensor, kept: int, drawn: int, rng: np.random.Generator) -> Self:
        """The ``kept`` columns with the most probability in ``targets`` ``[N, D]``, and ``drawn``
        of the others."""
        total = targets.shape[1]
        if kept + drawn >= total:
            return cls.all(total)
        order = targets.sum(0).argsort(descending=True)
        others = torch.from_numpy(rng.choice(total - kept, drawn, replace=False)) + kept
        bias = torch.zeros(kept + drawn)
        bias[kept:] = math.log((total - kept) / drawn)
        return cls(order[torch.cat([torch.arange(kept), others])], bias)

    def of(self, targets: Tensor) -> Tensor:
        """The targets of these columns, ``[N, C]``, each for all that it stands for."""
        return targets.index_select(1, self.ids).mul_(self.bias.exp())


class SoftCrossEntropy(torch.autograd.Function):
    """``sum over rows of weight * cross entropy(target distribution, softmax(x W^T + bias))``.

    Its gradients are computed with the loss itself: between the two only a chunk's logits exist.
    Products have autocast's type, everything else is float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,  # [R, hidden]
        weight: Tensor,  # [C, hidden]
        bias: Tensor,  # [C], not trained
        targets: Tensor,  # [N, C]
        places: Tensor,  # int64 [R], the row of ``targets`` for each row
        row_weights: Tensor,  # [R]
        ranks: Tensor,  # int64 [R], filled with how many tokens beat the target's favourite
    ) -> Tensor:
        kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        loss = x.new_zeros(())
        x_grad = torch.empty_like(x)
        weight_grad = torch.zeros_like(weight)
        rounded = weight.to(kind)
        for start in range(0, len(x), CHUNK):
            part = slice(start, start + CHUNK)
            inputs = x[part].to(kind)
            logits = (inputs @ rounded.T).float().add_(bias)
            target = targets.index_select(0, places[part])
            scale = row_weights[part]
            best = logits.gather(1, target.argmax(1, keepdim=True))
            ranks[part] = (logits > best).sum(1)
            normalizer = logits.logsumexp(1, keepdim=True)
            loss += scale @ (normalizer[:, 0] - torch.linalg.vecdot(target, logits))
            if not ctx.needs_input_grad[0]:
                continue
            gradient = logits.sub_(normalizer).exp_().sub_(target).mul_(scale[:, None]).to(kind)
            x_grad[part] = gradient @ rounded
            weight_grad += gradient.T @ inputs
        ctx.save_for_backward(x_grad, weight_grad)
        return loss

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        x_grad, weight_grad = ctx.saved_tensors
        return x_grad * scale, weight_grad * scale, None, None, None, None, None
