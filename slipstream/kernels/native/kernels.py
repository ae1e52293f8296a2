"""The kernel interface in C++: model code is recorded once as a program and replayed per step."""

import os
from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import UserError
from slipstream.kernels.growth import TreeGrower
from slipstream.kernels.interface import KVDtype, Operations, Program
from slipstream.kernels.native import _native
from slipstream.kernels.native.grower import NativeGrower
from slipstream.kernels.native.program import (
    Buffer,
    Format,
    Linear,
    RecordedProgram,
    Recorder,
    Rotary,
    Vector,
)
from slipstream.kernels.sampling_rows import SamplingRows
from slipstream.kernels.step_batch import BLOCK
from slipstream.kernels.weight import Weight

PANEL = 16  # outputs packed side by side
GROUP = 32  # values to which rows are padded
HEAD_LANES = 16  # a head's size is a multiple of it, so that vectors end with the head
MOST_HEAD_DIM = 256
ROWS_AT_A_TIME = 4096  # of a weight that has to be dequantised for packing


class KVType(IntEnum):
    """How keys and values are stored; see kernels.h."""

    BFLOAT16 = 0
    INT8 = 1


_LOSSLESS = {"q8_0": Format.INT8, "q4_0": Format.INT4, "q4_1": Format.INT4_MIN}


class NativeKernels:
    """Kernels of one instruction set on one thread team.

    Quantised weights of GGUF's Q4_0, Q4_1 and Q8_0 are packed as they are, all others as bfloat16.
    """

    def __init__(self, isa: str, threads: int | None = None) -> None:
        self.name = f"native ({isa})"
        self.machine = _native.Machine(isa, threads or len(os.sched_getaffinity(0)))

    def pack_linear(self, weights: Sequence[Weight], bias: NDArray[np.float32] | None) -> Linear:
        outputs, inputs = sum(weight.shape[0] for weight in weights), weights[0].shape[1]
        packed = _native.PackedMatrix(_format_of(weights), outputs, inputs, False)
        first = 0
        for weight in weights:
            _fill(packed, weight, first, 0, 1)
            first += weight.shape[0]
        if bias is not None:
            packed.set_bias(bias.tolist())
        return Linear(packed, outputs, inputs)

    def pack_gate_up(self, gate: Weight, up: Weight, bias: NDArray[np.float32] | None) -> Linear:
        outputs, inputs = gate.shape
        packed = _native.PackedMatrix(_format_of([gate, up]), 2 * outputs, inputs, True)
        _fill(packed, gate, 0, 0, 2)
        _fill(packed, up, 0, 1, 2)
        if bias is not None:
            packed.set_bias(_in_turns(bias).tolist())
        return Linear(packed, outputs, inputs)

    def pack_vector(self, weight: NDArray[np.float32]) -> Vector:
        return np.ascontiguousarray(weight)

    def pack_embedding(self, weight: Weight) -> Linear:
        return self.pack_linear([weight], None)

    def tied_head(self, embedding: Linear) -> Linear:
        return embedding

    def pack_rotary(self, cosines: NDArray[np.float32], sines: NDArray[np.float32]) -> Rotary:
        return np.ascontiguousarray(cosines), np.ascontiguousarray(sines)

    def new_kv_cache(
        self, layers: int, kv_heads: int, head_dim: int, slots: int, dtype: KVDtype
    ) -> _native.KVCache:
        _check_head_dim(head_dim)
        return _native.KVCache(_kv_type(dtype), layers, slots // BLOCK, kv_heads, head_dim)

    def slot_bytes(self, layers: int, kv_heads: int, head_dim: int, dtype: KVDtype) -> int:
        _check_head_dim(head_dim)
        return _native.kv_page_bytes(_kv_type(dtype), layers, kv_heads, head_dim) // BLOCK

    def new_kept_rows(self, slots: int, parts: int, width: int) -> _native.KeptRows:
        return _native.KeptRows(slots, parts, width)

    def kept_slot_bytes(self, parts: int, width: int) -> int:
        return parts * -(-width // GROUP) * GROUP * 2

    def read_kept(self, kept: _native.KeptRows, slots: NDArray[np.int32]) -> NDArray[np.float32]:
        bits = kept.bits()[slots, :, : kept.values]
        return (bits.astype(np.uint32) << 16).view(np.float32)

    def move_kept(
        self, kept: _native.KeptRows, sources: Sequence[int], targets: Sequence[int]
    ) -> None:
        kept.move(np.array(sources, dtype=np.int32), np.array(targets, dtype=np.int32))

    def record(self, forward: Callable[[Operations], Buffer]) -> RecordedProgram:
        recorder = Recorder(self.machine)
        return RecordedProgram(self.machine, recorder, forward(recorder))

    def tree_grower(self, first: Program, deeper: Program, ids: NDArray[np.int32]) -> TreeGrower:
        assert isinstance(first, RecordedProgram) and isinstance(deeper, RecordedProgram)
        return NativeGrower(self.machine, first, deeper, ids)

    def sample(self, logits: NDArray[np.float32], rows: SamplingRows) -> NDArray[np.int32]:
        return self.machine.sample(
            logits,
            temperature=rows.temperature,
            top_p=rows.top_p,
            min_p=rows.min_p,
            top_k=rows.top_k,
            seed=rows.seed,
            position=rows.position,
        )

    def rank(
        self,
        logits: NDArray[np.float32],
        rows: SamplingRows,
        ids: NDArray[np.int32],
        count: int,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        tokens = np.empty((len(logits), count), dtype=np.int32)
        logprobs = np.empty((len(logits), count), dtype=np.float32)
        self.machine.rank(
            logits,
            ids,
            temperature=rows.temperature,
            top_p=rows.top_p,
            min_p=rows.min_p,
            top_k=rows.top_k,
            seed=rows.seed,
            position=rows.position,
            tokens=tokens,
            logprobs=logprobs,
        )
        return tokens, logprobs

    def move_slots(
        self, cache: _native.KVCache, sources: Sequence[int], targets: Sequence[int]
    ) -> None:
        self.machine.move_slots(
            cache, np.array(sources, dtype=np.int32), np.array(targets, dtype=np.int32)
        )


def _format_of(weights: Sequence[Weight]) -> Format:
    """The format that holds all of ``weights`` without loss, else bfloat16."""
    kinds = {weight.kind for weight in weights}
    return _LOSSLESS.get(kinds.pop(), Format.BFLOAT16) if len(kinds) == 1 else Format.BFLOAT16


def _fill(
    packed: _native.PackedMatrix, weight: Weight, first: int, first_panel: int, panel_step: int
) -> None:
    if packed.format != Format.BFLOAT16 or weight.kind in ("bfloat16", "float32"):
        packed.fill(weight.data, weight.kind, first, first_panel, panel_step)
        return
    for start in range(0, weight.shape[0], ROWS_AT_A_TIME):
        data = weight.data[start : start + ROWS_AT_A_TIME]
        values = Weight((len(data), *weight.shape[1:]), weight.kind, data).float32()
        packed.fill(values.view(np.uint8), "float32", first + start, first_panel, panel_step)


def _in_turns(bias: NDArray[np.float32]) -> NDArray[np.float32]:
    """A bias of all gates, then all ups, as panels of gates and ups in turns."""
    halves = np.zeros((2, -(-len(bias) // (2 * PANEL)), PANEL), dtype=np.float32)
    halves.reshape(2, -1)[:, : len(bias) // 2] = bias.reshape(2, -1)
    return halves.swapaxes(0, 1).reshape(-1)


def _check_head_dim(head_dim: int) -> None:
    if head_dim % HEAD_LANES or not 0 < head_dim <= MOST_HEAD_DIM:
        raise UserError(
            f"head size {head_dim}: the native kernels need a multiple of {HEAD_LANES}, at most "
            f"{MOST_HEAD_DIM}; SLIPSTREAM_KERNELS=torch serves this model"
        )


def _kv_type(dtype: KVDtype) -> KVType:
    if dtype not in ("auto", "bf16", "int8"):
        raise UserError(f"kv-dtype is {dtype!r}; the native kernels know auto, bf16 and int8")
    return KVType.INT8 if dtype == "int8" else KVType.BFLOAT16
