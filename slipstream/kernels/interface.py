"""What model code may ask of a kernel set. Model code is written once, against this."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels.growth import TreeGrower
from slipstream.kernels.sampling_rows import SamplingRows
from slipstream.kernels.step_batch import StepBatch
from slipstream.kernels.weight import Weight

KVDtype: TypeAlias = Literal["auto", "bf16", "int8"]  # auto is what the kernel set does best

# Each kernel set has its own representation of these; model code only passes them on.
Rows: TypeAlias = Any  # activations, one row per row of the step (padded as the kernels like)
Vector: TypeAlias = Any  # a packed norm weight
Linear: TypeAlias = Any  # packed weights of one matrix product
GateUp: TypeAlias = Any  # packed weights of the two products that a SwiGLU joins
Embedding: TypeAlias = Any
Rotary: TypeAlias = Any
KVCache: TypeAlias = Any  # keys and values of all layers and slots
KeptRows: TypeAlias = Any  # activations kept by slot

Program: TypeAlias = Callable[[StepBatch], NDArray[np.float32]]


class Kernels(Protocol):
    """A kernel set. Weights are given as they are stored, and packed as the set likes."""

    name: str

    def pack_linear(self, weights: Sequence[Weight], bias: NDArray[np.float32] | None) -> Linear:
        """Pack matrices ``[N_i, K]``, stacked along N, and a bias ``[sum N_i]``."""
        ...

    def pack_gate_up(self, gate: Weight, up: Weight, bias: NDArray[np.float32] | None) -> GateUp:
        """Pack two matrices ``[N, K]`` and a bias ``[2 * N]``, gate first."""
        ...

    def pack_vector(self, weight: NDArray[np.float32]) -> Vector: ...

    def pack_embedding(self, weight: Weight) -> Embedding:
        """Pack a table ``[vocabulary, hidden]``."""
        ...

    def tied_head(self, embedding: Embedding) -> Linear:
        """The product with the table itself, which need not be packed twice."""
        ...

    def pack_rotary(self, cosines: NDArray[np.float32], sines: NDArray[np.float32]) -> Rotary:
        """Pack rotary tables ``[positions, head_dim / 2]``."""
        ...

    def new_kv_cache(
        self, layers: int, kv_heads: int, head_dim: int, slots: int, dtype: KVDtype
    ) -> KVCache:
        """Zeroed keys and values; memory is touched only where slots are written.

        Raises ``UserError`` for a type or a head size that the set cannot store, as ``slot_bytes``
        does.
        """
        ...

    def slot_bytes(self, layers: int, kv_heads: int, head_dim: int, dtype: KVDtype) -> int:
        """Memory of one slot over all layers."""
        ...

    def new_kept_rows(self, slots: int, parts: int, width: int) -> KeptRows:
        """Memory for ``parts`` rows of ``width`` values a slot; touched where slots are written."""
        ...

    def kept_slot_bytes(self, parts: int, width: int) -> int:
        """Memory of one slot of kept rows."""
        ...

    def read_kept(self, kept: KeptRows, slots: NDArray[np.int32]) -> NDArray[np.float32]:
        """What is kept in ``slots``, ``[slots, parts, width]``."""
        ...

    def move_kept(self, kept: KeptRows, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy kept rows between slots, all reads before all writes."""
        ...

    def record(self, forward: "Callable[[Operations], Rows]") -> Program:
        """A forward pass that can be run for any step; it gives the rows that ``forward`` gave, of
        the logit rows or of all.

        ``forward`` may be called once or once per step, so it must do the same each time. The
        program's logits are valid until its next run.
        """
        ...

    def sample(self, logits: NDArray[np.float32], rows: SamplingRows) -> NDArray[np.int32]:
        """The token that each row of logits emits, ``[L]``."""
        ...

    def rank(
        self,
        logits: NDArray[np.float32],
        rows: SamplingRows,
        ids: NDArray[np.int32],
        count: int,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The likeliest results of `sample` as a drafter sees them, ``[L, count]``, best first.

        ``logits`` ``[L, draft vocabulary]`` stand for the tokens ``ids``. Drafter and target share
        the noise, so tokens are ranked by scaled logit plus noise, among those that top-k, top-p
        and min-p leave. Log probabilities are those of a softmax over the logits with the noise,
        times the temperature, added to the tokens returned; at temperature 0 that is the drafter's
        own distribution. What is left over is token -1 with log probability -inf. ``count`` is at
        most 256.
        """
        ...

    def tree_grower(
        self, first: Program, deeper: Program, ids: NDArray[np.int32]
    ) -> TreeGrower | None:
        """Grows whole token trees in one call, if the set has a way to; else a drafter does it.

        ``first`` and ``deeper`` are programs that this set recorded; logits of both
        ``[L, draft vocabulary]`` stand for the tokens ``ids``. Trees, and their scores, are those
        that running the programs and `rank` level by level gives.
        """
        ...

    def move_slots(self, cache: KVCache, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy K and V of all layers between slots, all reads before all writes."""
        ...


class Operations(Protocol):
    """What a forward pass is made of.

    ``into`` names the product that will read the result, so that the result can be written in the
    form which that product reads.
    """

    def embed(self, table: Embedding) -> Rows:
        """The step's tokens, ``[T, hidden]``."""
        ...

    def norm(self, x: Rows, norm: Vector, eps: float) -> Rows:
        """RMS norm alone."""
        ...

    def norm_linear(
        self, x: Rows, norm: Vector, eps: float, linear: Linear, residual: Rows | None = None
    ) -> Rows:
        """RMS norm, then the matrix product and bias, plus the residual if there is one."""
        ...

    def linear(self, x: Rows, linear: Linear, residual: Rows | None = None) -> Rows:
        """The matrix product and bias of rows that no operation wrote ``into`` it."""
        ...

    def keep(self, x: Rows, kept: KeptRows, part: int) -> None:
        """Keep ``[T, width]`` in the slots of the rows."""
        ...

    def gather(self, kept: KeptRows, parts: Sequence[int]) -> Rows:
        """These parts of what is kept in the step's ``sources``, ``[T, len(parts) * width]``."""
        ...

    def attention(
        self,
        qkv: Rows,
        heads: int,
        qk_norms: tuple[Vector, Vector, float] | None,
        rotary: Rotary,
        cache: KVCache,
        layer: int,
        into: Linear,
    ) -> Rows:
        """Normalise (if asked) and rotate queries and keys, store K and V, attend.

        ``qkv`` is ``[T, (heads + 2 * kv_heads) * head_dim]``; the result ``[T, heads * head_dim]``.
        """
        ...

    def store(self, kv: Rows, rotary: Rotary, cache: KVCache, layer: int) -> None:
        """Rotate keys and store K and V ``[T, 2 * kv_heads * head_dim]``, keys first."""
        ...

    def linear_add(self, x: Rows, linear: Linear, residual: Rows) -> Rows:
        """The matrix product and bias of what was written ``into`` it, plus the residual."""
        ...

    def norm_swiglu(self, x: Rows, norm: Vector, eps: float, gate_up: GateUp, into: Linear) -> Rows:
        """RMS norm, both products, then ``silu(gate) * up``, ``[T, N]``."""
        ...

    def logits(self, x: Rows, norm: Vector, eps: float, head: Linear) -> Rows:
        """RMS norm and the head's product of the step's logit rows, ``[L, vocabulary]``."""
        ...
