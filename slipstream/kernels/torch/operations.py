"""The operations of a forward pass in float32 PyTorch, carried out at once."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from slipstream.kernels.step_batch import StepBatch
from slipstream.kernels.torch.attention import Tiling, attend
from slipstream.kernels.torch.linear import PackedLinear, blocks

Rotary = tuple[torch.Tensor, torch.Tensor]  # cosines and sines, [positions, head_dim]
KVCache = list[torch.Tensor]  # per layer: [2 * kv_heads, slots, head_dim], keys first


class TorchOperations:
    """One step. Activations are padded to as many rows as the blocks of the products hold.

    Operations that own their input change it in place: a fresh tensor costs more than the work.
    """

    def __init__(self, batch: StepBatch, heights: frozenset[int]) -> None:
        self._heights = heights
        tokens = self._pad(batch.tokens)
        self._tokens = torch.from_numpy(tokens)
        angles = batch.positions if batch.rotary_positions is None else batch.rotary_positions
        self._positions = torch.from_numpy(angles.astype(np.int64))
        self._slots = torch.from_numpy(batch.slots.astype(np.int64))
        sources = batch.slots if batch.sources is None else batch.sources
        self._sources = torch.from_numpy(self._pad(sources))
        self._logit_rows = batch.logit_rows
        self._tiling = Tiling.of(batch, len(tokens))
        self._turns: tuple[Rotary, Rotary] | None = None  # tables, and their rows of this step

    def embed(self, table: torch.Tensor) -> torch.Tensor:
        return table[self._tokens]

    def norm(self, x: torch.Tensor, norm: torch.Tensor, eps: float) -> torch.Tensor:
        return _rms_norm(x, norm, eps)

    def norm_linear(
        self,
        x: torch.Tensor,
        norm: torch.Tensor,
        eps: float,
        linear: PackedLinear,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return self.linear(_rms_norm(x, norm, eps), linear, residual)

    def linear(
        self, x: torch.Tensor, linear: PackedLinear, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        product = self._linear(x, linear)
        return product if residual is None else product.add_(residual)

    def keep(self, x: torch.Tensor, kept: torch.Tensor, part: int) -> None:
        kept[:, part].index_copy_(0, self._slots, x[: len(self._slots)])

    def gather(self, kept: torch.Tensor, parts: Sequence[int]) -> torch.Tensor:
        return kept.index_select(0, self._sources)[:, list(parts)].flatten(1)

    def attention(
        self,
        qkv: torch.Tensor,
        heads: int,
        qk_norms: tuple[torch.Tensor, torch.Tensor, float] | None,
        rotary: Rotary,
        cache: KVCache,
        layer: int,
        into: PackedLinear,
    ) -> torch.Tensor:
        rows, kept = len(self._slots), cache[layer]
        kv_heads, head_dim = kept.shape[0] // 2, kept.shape[2]
        by_head = qkv[:rows].view(rows, -1, head_dim)
        query, key, _ = by_head.split([heads, kv_heads, kv_heads], dim=1)
        if qk_norms is not None:
            query_norm, key_norm, eps = qk_norms
            query.copy_(_rms_norm(query, query_norm, eps))
            key.copy_(_rms_norm(key, key_norm, eps))
        _rotate_(by_head[:, : heads + kv_heads], *self._turns_of(rotary))
        kept.index_copy_(1, self._slots, by_head[:, heads:].transpose(0, 1))
        return attend(query * head_dim**-0.5, kept, self._tiling)

    def store(self, kv: torch.Tensor, rotary: Rotary, cache: KVCache, layer: int) -> None:
        rows, kept = len(self._slots), cache[layer]
        by_head = kv[:rows].view(rows, -1, kept.shape[2])
        _rotate_(by_head[:, : kept.shape[0] // 2], *self._turns_of(rotary))
        kept.index_copy_(1, self._slots, by_head.transpose(0, 1))

    def linear_add(
        self, x: torch.Tensor, linear: PackedLinear, residual: torch.Tensor
    ) -> torch.Tensor:
        return self.linear(x, linear, residual)

    def norm_swiglu(
        self,
        x: torch.Tensor,
        norm: torch.Tensor,
        eps: float,
        gate_up: PackedLinear,
        into: PackedLinear,
    ) -> torch.Tensor:
        return swiglu(self.norm_linear(x, norm, eps, gate_up))

    def logits(
        self, x: torch.Tensor, norm: torch.Tensor, eps: float, head: PackedLinear
    ) -> torch.Tensor:
        wanted = len(self._logit_rows)
        if wanted == 0:
            return torch.empty(0, head.outputs)
        rows = x[torch.from_numpy(self._pad(self._logit_rows))]
        return self._linear(_rms_norm(rows, norm, eps), head)[:wanted]

    def _turns_of(self, rotary: Rotary) -> Rotary:
        """Cosines and sines of the step's rows, ``[T, 1, head_dim]``; most layers share them."""
        if self._turns is None or self._turns[0] is not rotary:
            cosines, sines = (table[self._positions][:, None] for table in rotary)
            self._turns = rotary, (cosines, sines)
        return self._turns[1]

    def _linear(self, x: torch.Tensor, linear: PackedLinear) -> torch.Tensor:
        covering = blocks(len(x), self._heights)
        if len(covering) == 1:
            return linear.apply(x)
        return torch.cat([linear.apply(block) for block in x.split(covering)])

    def _pad(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """As many rows as the blocks hold; the added ones repeat index 0 and are never read."""
        padded = np.zeros(sum(blocks(len(rows), self._heights)), dtype=np.int64)
        padded[: len(rows)] = rows
        return padded


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up`` of ``[rows, 2 * N]``, gate first; the input is used up."""
    gate, up = gate_up.chunk(2, dim=-1)
    # Not torch's silu: its vector code and the code for what is left over round differently.
    return gate.div(gate.neg().exp_().add_(1)).mul_(up)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return (x * x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()).mul_(weight)


def _rotate_(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> None:
    """Rotary embedding of ``[rows, heads, head_dim]`` in place, halves layout (Su et al., 2021)."""
    swapped = x.roll(x.shape[-1] // 2, -1).mul_(sines)
    x.mul_(cosines).add_(swapped)
