"""transformers' models with the roundings that kernels do between operations.

A float32 model that rounds rows where they enter a product, and keys and values where they are
stored, errs as much as kernels that round there: the same number of errors of the same size, though
not the same ones once a sum that came out differently in its last bit falls on another side. How
far it is from the plain model tells what the kernels may differ by.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel

Round = Callable[[torch.Tensor], torch.Tensor]


def exactly(x: torch.Tensor) -> torch.Tensor:
    return x


def to_bfloat16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def to_integers(x: torch.Tensor, most: int, group: int) -> torch.Tensor:
    """Multiples of a scale, the largest magnitude / ``most``, in groups of the last dimension."""
    groups = x.unflatten(-1, (-1, group))
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30) / most
    return ((groups / scale).round() * scale).flatten(-2)


def to_bytes(x: torch.Tensor) -> torch.Tensor:
    return to_integers(x, 127, 32)


def to_shorts(x: torch.Tensor) -> torch.Tensor:
    return to_integers(x, 32767, 32)


def to_bytes_per_head(x: torch.Tensor) -> torch.Tensor:
    return to_integers(x, 127, x.shape[-1])


@dataclass(frozen=True)
class Roundings:
    """Of matrices ``[N, K]``; of rows ``[..., K]`` where they enter a product; of keys and values
    ``[..., head_dim]``."""

    matrices: Round = exactly
    rows: Round = exactly
    keys: Round = exactly


EXACT = Roundings()


class RoundedCache(DynamicCache):
    """Keys and values, read back as they are stored."""

    def __init__(self, rounding: Round) -> None:
        super().__init__()
        self._round = rounding

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return super().update(self._round(key_states), self._round(value_states), *args, **kwargs)


@torch.no_grad()
def with_matrices(model: PreTrainedModel, rounding: Round) -> PreTrainedModel:
    """A copy of ``model`` whose matrices are rounded."""
    model = copy.deepcopy(model)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.copy_(rounding(parameter))
    return model


@torch.no_grad()
def logits(model: PreTrainedModel, tokens: list[int], roundings: Roundings = EXACT) -> torch.Tensor:
    """Logits ``[tokens, vocabulary]`` after every token."""
    model = with_matrices(model, roundings.matrices)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(lambda _, inputs: (roundings.rows(inputs[0]),))
    # By its place: transformers has renamed the argument.
    output: Any = model(torch.tensor([tokens]), None, None, RoundedCache(roundings.keys))
    found: torch.Tensor = output.logits[0]
    return found
