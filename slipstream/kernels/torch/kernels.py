"""The kernel interface in float32 PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from slipstream.errors import UserError
from slipstream.kernels.interface import KVDtype
from slipstream.kernels.sampling_rows import SamplingRows
from slipstream.kernels.step_batch import StepBatch
from slipstream.kernels.torch.attention import Tiling, attend
from slipstream.kernels.torch.linear import HEIGHTS, PackedLinear, blocks, equal_heights, pack
from slipstream.kernels.torch.sampling import sample
from slipstream.kernels.weight import Weight

Rotary = tuple[torch.Tensor, torch.Tensor]  # cosines and sines, [positions, head_dim]
KVCache = list[torch.Tensor]  # per layer: [2 * kv_heads, slots, head_dim], keys first


@dataclass(frozen=True, slots=True)
class TorchStep:
    """Computed once per step. Activations are padded to ``padded`` rows for the products."""

    tokens: torch.Tensor  # [padded]
    slots: torch.Tensor  # [T]
    cosines: torch.Tensor  # [T, 1, head_dim]
    sines: torch.Tensor  # [T, 1, head_dim]
    logit_rows: torch.Tensor  # [L padded]
    logits: int  # L
    tiling: Tiling
    heads: int
    kv_heads: int
    head_dim: int


class TorchKernels:
    """Float32 throughout: on a CPU without bfloat16 arithmetic it is also the fastest type.

    Operations that own their input change it in place: a fresh tensor costs more than the work.
    """

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
        self, weights: Sequence[Weight], bias: NDArray[np.float32] | None
    ) -> PackedLinear:
        matrices = [torch.from_numpy(weight.float32()) for weight in weights]
        matrix = matrices[0] if len(matrices) == 1 else torch.cat(matrices)
        linear = pack(matrix, None if bias is None else torch.from_numpy(bias))
        shape = (linear.outputs, linear.inputs)
        if shape not in self._verified:
            self._verified.add(shape)
            # Single rows are always the same product, so height 1 alone is sound for any shape.
            self._heights = self._heights & equal_heights(linear) or frozenset({1})
        return linear

    def pack_vector(self, weight: NDArray[np.float32]) -> torch.Tensor:
        return torch.from_numpy(weight)

    def pack_embedding(self, weight: Weight) -> torch.Tensor:
        return torch.from_numpy(weight.float32())

    def pack_rotary(self, cosines: NDArray[np.float32], sines: NDArray[np.float32]) -> Rotary:
        # The second half of a head turns with the first, in the other direction.
        tables = np.concatenate([cosines, cosines], -1), np.concatenate([-sines, sines], -1)
        return torch.from_numpy(tables[0]), torch.from_numpy(tables[1])

    def new_kv_cache(
        self, layers: int, kv_heads: int, head_dim: int, slots: int, dtype: KVDtype
    ) -> KVCache:
        _check_kv_dtype(dtype)
        # calloc, unlike torch.zeros, leaves memory untouched until it is written.
        shape = (2 * kv_heads, slots, head_dim)
        return [torch.from_numpy(np.zeros(shape, dtype=np.float32)) for _ in range(layers)]

    def slot_bytes(self, layers: int, kv_heads: int, head_dim: int, dtype: KVDtype) -> int:
        _check_kv_dtype(dtype)
        return layers * 2 * kv_heads * head_dim * 4

    @torch.inference_mode()
    def begin(
        self, batch: StepBatch, heads: int, kv_heads: int, head_dim: int, rotary: Rotary
    ) -> TorchStep:
        tokens = self._pad(batch.tokens)
        positions = torch.from_numpy(batch.positions.astype(np.int64))
        cosines, sines = (table[positions][:, None] for table in rotary)
        return TorchStep(
            tokens=torch.from_numpy(tokens),
            slots=torch.from_numpy(batch.slots.astype(np.int64)),
            cosines=cosines,
            sines=sines,
            logit_rows=torch.from_numpy(self._pad(batch.logit_rows)),
            logits=len(batch.logit_rows),
            tiling=Tiling.of(batch, len(tokens)),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
        )

    @torch.inference_mode()
    def embed(self, table: torch.Tensor, step: TorchStep) -> torch.Tensor:
        return table[step.tokens]

    @torch.inference_mode()
    def norm_linear(
        self, x: torch.Tensor, norm: torch.Tensor, eps: float, linear: PackedLinear
    ) -> torch.Tensor:
        return self._linear(_rms_norm(x, norm, eps), linear)

    @torch.inference_mode()
    def attention(
        self,
        qkv: torch.Tensor,
        qk_norms: tuple[torch.Tensor, torch.Tensor, float] | None,
        cache: KVCache,
        layer: int,
        step: TorchStep,
    ) -> torch.Tensor:
        rows = len(step.slots)
        by_head = qkv[:rows].view(rows, -1, step.head_dim)
        query, key, _ = by_head.split([step.heads, step.kv_heads, step.kv_heads], dim=1)
        if qk_norms is not None:
            query_norm, key_norm, eps = qk_norms
            query.copy_(_rms_norm(query, query_norm, eps))
            key.copy_(_rms_norm(key, key_norm, eps))
        _rotate_(by_head[:, : step.heads + step.kv_heads], step.cosines, step.sines)
        keys_and_values = by_head[:, step.heads :].transpose(0, 1)
        cache[layer].index_copy_(1, step.slots, keys_and_values)
        return attend(query * step.head_dim**-0.5, cache[layer], step.tiling)

    @torch.inference_mode()
    def linear_add(
        self, x: torch.Tensor, linear: PackedLinear, residual: torch.Tensor
    ) -> torch.Tensor:
        return self._linear(x, linear).add_(residual)

    @torch.inference_mode()
    def swiglu(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        # Not torch's silu: its vector code and the code for what is left over round differently.
        return gate.div(gate.neg().exp_().add_(1)).mul_(up)

    @torch.inference_mode()
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

    def sample(self, logits: NDArray[np.float32], rows: SamplingRows) -> NDArray[np.int32]:
        return sample(logits, rows)

    @torch.inference_mode()
    def move_slots(self, cache: KVCache, sources: list[int], targets: list[int]) -> None:
        source, target = torch.tensor(sources), torch.tensor(targets)
        for layer in cache:
            layer.index_copy_(1, target, layer.index_select(1, source))

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


def _check_kv_dtype(dtype: KVDtype) -> None:
    if dtype != "auto":
        raise UserError(
            f"the torch kernels store keys and values as float32, not {dtype}; "
            "leave --kv-dtype at auto"
        )


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return (x * x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()).mul_(weight)


def _rotate_(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> None:
    """Rotary embedding of ``[rows, heads, head_dim]`` in place, halves layout (Su et al., 2021)."""
    swapped = x.roll(x.shape[-1] // 2, -1).mul_(sines)
    x.mul_(cosines).add_(swapped)
