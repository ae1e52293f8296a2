"""The kernel interface in float32 PyTorch."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from slipstream.errors import UserError
from slipstream.kernels.interface import KVDtype, Operations, Program, Rows
from slipstream.kernels.sampling_rows import SamplingRows
from slipstream.kernels.step_batch import StepBatch
from slipstream.kernels.torch.linear import HEIGHTS, PackedLinear, equal_heights, pack
from slipstream.kernels.torch.operations import KVCache, Rotary, TorchOperations
from slipstream.kernels.torch.sampling import rank, sample
from slipstream.kernels.weight import Weight


class TorchKernels:
    """Float32 throughout: on a CPU without bfloat16 arithmetic it is also the fastest type."""

    name = "torch"

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
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
        return self._pack(matrix, None if bias is None else torch.from_numpy(bias))

    def _pack(self, matrix: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
        linear = pack(matrix, bias)
        shape = (linear.outputs, linear.inputs)
        if shape not in self._verified:
            self._verified.add(shape)
            # Single rows are always the same product, so height 1 alone is sound for any shape.
            self._heights = self._heights & equal_heights(linear) or frozenset({1})
        return linear

    def pack_gate_up(
        self, gate: Weight, up: Weight, bias: NDArray[np.float32] | None
    ) -> PackedLinear:
        return self.pack_linear([gate, up], bias)

    def pack_vector(self, weight: NDArray[np.float32]) -> torch.Tensor:
        return torch.from_numpy(weight)

    def pack_embedding(self, weight: Weight) -> torch.Tensor:
        return torch.from_numpy(weight.float32())

    def tied_head(self, embedding: torch.Tensor) -> PackedLinear:
        return self._pack(embedding, None)

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

    def new_kept_rows(self, slots: int, parts: int, width: int) -> torch.Tensor:
        return torch.from_numpy(np.zeros((slots, parts, width), dtype=np.float32))

    def kept_slot_bytes(self, parts: int, width: int) -> int:
        return parts * width * 4

    def read_kept(self, kept: torch.Tensor, slots: NDArray[np.int32]) -> NDArray[np.float32]:
        values: NDArray[np.float32] = kept.numpy()[slots]
        return values

    @torch.inference_mode()
    def move_kept(self, kept: torch.Tensor, sources: Sequence[int], targets: Sequence[int]) -> None:
        kept.index_copy_(0, torch.tensor(targets), kept.index_select(0, torch.tensor(sources)))

    def record(self, forward: Callable[[Operations], Rows]) -> Program:
        @torch.inference_mode()
        def program(batch: StepBatch) -> NDArray[np.float32]:
            logits: torch.Tensor = forward(TorchOperations(batch, self._heights))
            return logits.numpy()

        return program

    def sample(self, logits: NDArray[np.float32], rows: SamplingRows) -> NDArray[np.int32]:
        return sample(logits, rows)

    def rank(
        self,
        logits: NDArray[np.float32],
        rows: SamplingRows,
        ids: NDArray[np.int32],
        count: int,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        return rank(logits, rows, ids, count)

    def tree_grower(self, first: Program, deeper: Program, ids: NDArray[np.int32]) -> None:
        """None: there is no faster way than level by level."""

    @torch.inference_mode()
    def move_slots(self, cache: KVCache, sources: Sequence[int], targets: Sequence[int]) -> None:
        source, target = torch.tensor(sources), torch.tensor(targets)
        for layer in cache:
            layer.index_copy_(1, target, layer.index_select(1, source))


def _check_kv_dtype(dtype: KVDtype) -> None:
    if dtype != "auto":
        raise UserError(
            f"the torch kernels store keys and values as float32, not {dtype}; "
            "leave --kv-dtype at auto"
        )
