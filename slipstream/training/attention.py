"""Attention during training-time test (Li et al., "EAGLE-3", 2025).

A row sees the first level's keys of the positions up to its own, and the keys of the deeper levels
of its own chain: one key per level, of the same row. That is what it will see when drafting.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.training.batch import Span


@dataclass(slots=True)
class KeysAndValues:
    """Keys and values ``[rows, key/value heads, head size]`` of one level, keys rotated."""

    keys: Tensor
    values: Tensor


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary embedding of ``[rows, ..., head size]`` by tables ``[rows, head size / 2]``."""
    shape = (len(x), *[1] * (x.dim() - 2), -1)
    cosines, sines = cosines.view(shape), sines.view(shape)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)


def attend(
    queries: Tensor, context: KeysAndValues, chain: Sequence[KeysAndValues], spans: Sequence[Span]
) -> Tensor:
    """Mix the values for every row, ``[R, heads * head size]``.

    ``queries`` is ``[R, key/value heads, heads per key/value head, head size]``, scaled and
    rotated. ``context`` holds the first level of all tokens, ``chain`` the deeper levels of the R
    rows.
    """
    rows, kv_heads, group, head_dim = queries.shape
    links = None
    if chain:
        links = torch.stack([(queries * kv.keys[:, :, None]).sum(-1) for kv in chain], dim=-1)
    mixed, shares = [], []
    for span in spans:
        count, seen = span.mask.shape
        query = queries[span.rows].transpose(0, 1).reshape(kv_heads, count * group, head_dim)
        keys = context.keys[span.tokens][:seen].transpose(0, 1)
        values = context.values[span.tokens][:seen].transpose(0, 1)
        scores = query @ keys.transpose(1, 2)
        scores = scores.view(kv_heads, count, group, seen) + span.mask[:, None]
        if links is not None:
            scores = torch.cat([scores, links[span.rows].transpose(0, 1)], dim=-1)
        weights = torch.softmax(scores, dim=-1)
        near = weights[..., :seen].reshape(kv_heads, count * group, seen) @ values
        mixed.append(near.view(kv_heads, count, group, head_dim).transpose(0, 1))
        shares.append(weights[..., seen:].transpose(0, 1))
    output = torch.cat(mixed)
    share = torch.cat(shares)
    for level, kv in enumerate(chain):
        output = output + share[..., level, None] * kv.values[:, :, None]
    return output.reshape(rows, -1)
