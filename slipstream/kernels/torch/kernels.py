"""The kernel interface in float32 PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from slipstream.kernels.step_batch import StepBatch
from slipstream.kernels.torch.attention import TileGroup, attend, tile_groups
from slipstream.kernels.torch.linear import HEIGHTS, PackedLinear, blocks, equal_heights, pack

Rotary = tuple[torch.Tensor, torch.Tensor]  # cosines and sines, [positions, head_dim]
KVCache = list[tuple[torch.Tensor, torch.Tensor]]  # per layer: [kv_heads, slots, head_dim] twice


@dataclass(frozen=True, slots=True)
class TorchStep:
    """Computed once per step. Activations are padded to ``padded`` rows for the products."""

    tokens: torch.Tensor  # [padded]
    positions: torch.Tensor  # [T]
    slots: torch.Tensor  # [T]
    logit_rows: torch.Tensor  # [L padded]
    logits: int  # L
    groups: list[TileGroup]
    heads: int
    kv_heads: int
    head_dim: int


class TorchKernels:
    """Float32 throughout: on a CPU without bfloat16 arithmetic it is also the fastest type."""

    name = "torch"

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self._heights = frozenset(HEIGHTS)
        self._verified: set[tuple[int, int]] = set()

    @property
    def heights(self) -> frozenset[int]:
        """Block heights that give equal bits for every weight packed so far."""
        return self._heights

    def pack_linear(
        self, weights: Sequence[torch.Tensor], bias: torch.Tensor | None
    ) -> PackedLinear:
        weight = weights[0] if len(weights) == 1 else torch.cat(list(weights))
        linear = pack(weight.contiguous(), bias)
        shape = (linear.outputs, linear.inputs)
        if shape not in self._verified:
            self._verified.add(shape)
            # Single rows are always the same product, so height 1 alone is sound for any shape.
            self._heights = self._heights & equal_heights(linear) or frozenset({1})
        return linear

    def pack_vector(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.contiguous()

    def pack_embedding(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.contiguous()

    def pack_rotary(self, cosines: torch.Tensor, sines: torch.Tensor) -> Rotary:
        # The second half of a head turns with the first, in the other direction.
        return torch.cat([cosines, cosines], -1), torch.cat([-sines, sines], -1)

    def new_kv_cache(self, layers: int, kv_heads: int, head_dim: int, slots: int) -> KVCache:
        def zeros() -> torch.Tensor:
            # calloc, unlike torch.zeros, leaves pages untouched until they are written.
            return torch.from_numpy(np.zeros((kv_heads, slots, head_dim), dtype=np.float32))

        return [(zeros(), zeros()) for _ in range(layers)]

    def slot_bytes(self, layers: int, kv_heads: int, head_dim: int) -> int:
        return layers * 2 * kv_heads * head_dim * 4

    def begin(self, batch: StepBatch, heads: int, kv_heads: int, head_dim: int) -> TorchStep:
        return TorchStep(
            tokens=torch.from_numpy(self._pad(batch.tokens)),
            positions=torch.from_numpy(batch.positions.astype(np.int64)),
            slots=torch.from_numpy(batch.slots.astype(np.int64)),
            logit_rows=torch.from_numpy(self._pad(batch.logit_rows)),
            logits=len(batch.logit_rows),
            groups=tile_groups(batch),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
        )

    def embed(self, table: torch.Tensor, step: TorchStep) -> torch.Tensor:
        return table[step.tokens]

    def norm_linear(
        self, x: torch.Tensor, norm: torch.Tensor, eps: float, linear: PackedLinear
    ) -> torch.Tensor:
        return self._linear(_rms_norm(x, norm, eps), linear)

    def attention(
        self,
        qkv: torch.Tensor,
        qk_norms: tuple[torch.Tensor, torch.Tensor, float] | None,
        rotary: Rotary,
        cache: KVCache,
        layer: int,
        step: TorchStep,
    ) -> torch.Tensor:
        rows = len(step.positions)
        by_head = qkv[:rows].view(rows, -1, step.head_dim)
        query, key, value = by_head.split([step.heads, step.kv_heads, step.kv_heads], dim=1)
        if qk_norms is not None:
            query_norm, key_norm, eps = qk_norms
            query, key = _rms_norm(query, query_norm, eps), _rms_norm(key, key_norm, eps)
        cosines, sines = (table[step.positions][:, None] for table in rotary)
        keys, values = cache[layer]
        keys.index_copy_(1, step.slots, _rotate(key, cosines, sines).transpose(0, 1))
        values.index_copy_(1, step.slots, value.transpose(0, 1))
        query = _rotate(query, cosines, sines) * step.head_dim**-0.5
        output = qkv.new_zeros(len(qkv), step.heads * step.head_dim)
        for group in step.groups:
            output[group.outputs] = attend(query, keys, values, group)
        return output

    def linear_add(
        self, x: torch.Tensor, linear: PackedLinear, residual: torch.Tensor
    ) -> torch.Tensor:
        return self._linear(x, linear).add_(residual)

    def swiglu(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        # Not torch's silu: its vector code and the code for what is left over round differently.
        return gate / (1 + torch.exp(-gate)) * up

    def logits(
        self,
        x: torch.Tensor,
        norm: torch.Tensor,
        eps: float,
        head: PackedLinear,
        step: TorchStep,
    ) -> NDArray[np.float32]:
        if step.logits == 0:
            return np.empty((0, head.outputs), dtype=np.float32)
        rows = self._linear(_rms_norm(x[step.logit_rows], norm, eps), head)
        return rows[: step.logits].numpy()

    def move_slots(self, cache: KVCache, sources: list[int], targets: list[int]) -> None:
        source, target = torch.tensor(sources), torch.tensor(targets)
        for keys, values in cache:
            keys.index_copy_(1, target, keys.index_select(1, source))
            values.index_copy_(1, target, values.index_select(1, source))

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


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * (1 / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)) * weight


def _rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of ``[rows, heads, head_dim]``, halves layout (Su et al., 2021)."""
    half = x.shape[-1] // 2
    swapped = torch.cat([x[..., half:], x[..., :half]], dim=-1)
    return x * cosines + swapped * sines
