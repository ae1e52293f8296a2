"""A forward pass taken down as a native program, which is replayed for every step."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels.native import _native
from slipstream.kernels.step_batch import StepBatch

Vector = NDArray[np.float32]
Rotary = tuple[NDArray[np.float32], NDArray[np.float32]]  # cosines, sines: [positions, head_dim/2]


class Format(IntEnum):
    """How a matrix is packed; see kernels.h."""

    BFLOAT16 = 0
    INT8 = 1
    INT4 = 2
    INT4_MIN = 3


class Form(IntEnum):
    """How rows are written for the product that reads them; see kernels.h."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2
    INT16 = 3


class Finish(IntEnum):
    """What a product does with its results; see kernels.h."""

    STORE = 0
    ADD = 1
    SWIGLU = 2


class Domain(IntEnum):
    """Which rows an operation works on."""

    ALL = 0
    LOGITS = 1


class Linear:
    """A packed matrix product ``[K] -> [N]``."""

    def __init__(self, matrix: _native.PackedMatrix, outputs: int, inputs: int) -> None:
        self.matrix = matrix
        self.outputs = outputs
        self.inputs = inputs


class Buffer:
    """Rows that one operation writes and others read. Its memory is used again when no one holds
    it any more, which while recording is when no later operation can read it."""

    def __init__(self, recorder: "Recorder", form: Form, width: int, domain: Domain) -> None:
        self._kind = (form, width, domain)
        self._free = recorder.free.setdefault(self._kind, [])
        self.width = width
        self.domain = domain
        self.id = self._free.pop() if self._free else recorder.program.add_rows(*self._kind)

    def __del__(self) -> None:
        self._free.append(self.id)


class Recorder:
    """Takes down the operations of a forward pass. ``kept`` is what the program points to."""

    def __init__(self, machine: _native.Machine) -> None:
        self.program = _native.Program(machine)
        self.kept: list[object] = []
        self.free: dict[tuple[Form, int, Domain], list[int]] = {}
        self._machine = machine

    def embed(self, table: Linear) -> Buffer:
        self.kept.append(table)
        out = Buffer(self, Form.FLOAT32, table.inputs, Domain.ALL)
        self.program.embed(table.matrix, out.id)
        return out

    def norm(self, x: Buffer, norm: Vector, eps: float) -> Buffer:
        self.kept.append(norm)
        out = Buffer(self, Form.FLOAT32, len(norm), Domain.ALL)
        self.program.norm(x.id, norm, eps, Domain.ALL, out.id)
        return out

    def norm_linear(
        self,
        x: Buffer,
        norm: Vector,
        eps: float,
        linear: Linear,
        residual: Buffer | None = None,
    ) -> Buffer:
        return self._finish(self._norm(x, norm, eps, linear, Domain.ALL), linear, residual)

    def linear(self, x: Buffer, linear: Linear, residual: Buffer | None = None) -> Buffer:
        converted = Buffer(self, self._form_for(linear), linear.inputs, Domain.ALL)
        self.program.convert(x.id, converted.id)
        return self._finish(converted, linear, residual)

    def keep(self, x: Buffer, kept: _native.KeptRows, part: int) -> None:
        self.kept.append(kept)
        self.program.keep(kept, part, x.id)

    def gather(self, kept: _native.KeptRows, parts: Sequence[int]) -> Buffer:
        self.kept.append(kept)
        out = Buffer(self, Form.FLOAT32, len(parts) * kept.values, Domain.ALL)
        for place, part in enumerate(parts):
            self.program.gather(kept, part, out.id, place * kept.values)
        return out

    def attention(
        self,
        qkv: Buffer,
        heads: int,
        qk_norms: tuple[Vector, Vector, float] | None,
        rotary: Rotary,
        cache: _native.KVCache,
        layer: int,
        into: Linear,
    ) -> Buffer:
        self.kept.append((qk_norms, rotary, cache))
        out = Buffer(self, self._form_for(into), into.inputs, Domain.ALL)
        cosines, sines = rotary
        if qk_norms is None:
            self.program.attention(qkv.id, heads, layer, cache, cosines, sines, out.id)
        else:
            self.program.normed_attention(
                qkv.id, heads, layer, cache, cosines, sines, *qk_norms, out.id
            )
        return out

    def store(self, kv: Buffer, rotary: Rotary, cache: _native.KVCache, layer: int) -> None:
        self.kept.append((rotary, cache))
        self.program.store(kv.id, layer, cache, *rotary)

    def linear_add(self, x: Buffer, linear: Linear, residual: Buffer) -> Buffer:
        return self._finish(x, linear, residual)

    def norm_swiglu(
        self, x: Buffer, norm: Vector, eps: float, gate_up: Linear, into: Linear
    ) -> Buffer:
        normed = self._norm(x, norm, eps, gate_up, Domain.ALL)
        out = Buffer(self, self._form_for(into), into.inputs, Domain.ALL)
        self._product(gate_up, normed, Finish.SWIGLU, None, out)
        return out

    def logits(self, x: Buffer, norm: Vector, eps: float, head: Linear) -> Buffer:
        normed = self._norm(x, norm, eps, head, Domain.LOGITS)
        return self._finish(normed, head, None)

    def _norm(self, x: Buffer, norm: Vector, eps: float, into: Linear, domain: Domain) -> Buffer:
        self.kept.append(norm)
        out = Buffer(self, self._form_for(into), into.inputs, domain)
        self.program.norm(x.id, norm, eps, domain, out.id)
        return out

    def _finish(self, x: Buffer, linear: Linear, residual: Buffer | None) -> Buffer:
        """The product of rows in its own form, as floats."""
        out = Buffer(self, Form.FLOAT32, linear.outputs, x.domain)
        finish = Finish.STORE if residual is None else Finish.ADD
        self._product(linear, x, finish, residual, out)
        return out

    def _product(
        self, linear: Linear, x: Buffer, finish: Finish, residual: Buffer | None, out: Buffer
    ) -> None:
        self.kept.append(linear)
        left = -1 if residual is None else residual.id
        self.program.product(linear.matrix, x.id, finish, left, x.domain, out.id)

    def _form_for(self, linear: Linear) -> Form:
        return Form(self._machine.form_of(linear.matrix.format))


class RecordedProgram:
    """A whole forward pass in one native call, without the interpreter's lock."""

    def __init__(self, machine: _native.Machine, recorder: Recorder, output: Buffer) -> None:
        self._machine = machine
        self._recorder = recorder
        self._output = output

    @property
    def program(self) -> _native.Program:
        return self._recorder.program

    @property
    def output(self) -> int:
        """The buffer that holds the output's rows."""
        return self._output.id

    def __call__(self, batch: StepBatch) -> NDArray[np.float32]:
        """The output's rows ``[L, N]`` or ``[T, N]``, valid until the next call."""
        program = self.program
        program.run(
            self._machine,
            batch.tokens,
            batch.positions,
            batch.slots,
            batch.positions if batch.rotary_positions is None else batch.rotary_positions,
            batch.slots if batch.sources is None else batch.sources,
            batch.requests,
            batch.follows,
            batch.page_tables,
            batch.tail_starts,
            batch.tail_slots,
            batch.logit_rows,
        )
        rows = batch.logit_rows if self._output.domain == Domain.LOGITS else batch.tokens
        return program.floats(self.output, len(rows), self._output.width)
