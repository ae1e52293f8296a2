"""The optimizer and its learning rate."""

from collections.abc import Mapping

import torch
from torch import Tensor

BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.01
WARMUP = 0.02  # of the run


def new_optimizer(weights: Mapping[str, Tensor], learning_rate: float) -> torch.optim.Optimizer:
    """AdamW over float32 weights; norms do not decay."""
    matrices = [weight for weight in weights.values() if weight.dim() > 1]
    norms = [weight for weight in weights.values() if weight.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": norms, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=BETAS, fused=True)


def learning_rate_at(share: float) -> float:
    """The learning rate as a part of its peak, when this share of the run is done: a short
    warm-up, then a straight line to zero."""
    if share < WARMUP:
        return share / WARMUP
    return max(1 - share, 0.0) / (1 - WARMUP)
