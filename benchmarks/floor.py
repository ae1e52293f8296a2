"""What a step costs at least on this machine, now: the two rates that bound it.

The floor of a step is the time to read its weights and contexts once from memory, plus the time of
its products at the rate of our own kernels with everything in the cache. The sum is a fair
yardstick where one of them is small; where both count, kernels that overlap them can beat it.
"""

import time
from dataclasses import dataclass

import numpy as np

from slipstream.kernels.native import _native
from slipstream.kernels.native.kernels import NativeKernels
from slipstream.kernels.native.program import Domain, Finish, Form, Format, Linear
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.models.transformer import Weights

CACHED_OUTPUTS, CACHED_INPUTS, CACHED_ROWS = 256, 512, 128  # some 100 KB a thread


@dataclass(frozen=True)
class Work:
    """What a step reads and computes, whatever its rows."""

    weight_bytes: int  # of all matrices
    products: dict[Format, int]  # multiply-adds of one row that needs no logits
    head_products: dict[Format, int]  # of one logits row

    @classmethod
    def of(cls, weights: Weights) -> "Work":
        matrices: list[Linear] = []
        for layer in weights.layers:
            matrices += [layer.qkv, layer.attention_output, layer.gate_up, layer.down]
        products: dict[Format, int] = {}
        for linear in matrices:
            kind = Format(linear.matrix.format)
            products[kind] = products.get(kind, 0) + linear.matrix.multiply_adds
        head = weights.head
        return cls(
            sum(linear.matrix.nbytes for linear in [*matrices, head]),
            products,
            {Format(head.matrix.format): head.matrix.multiply_adds},
        )


def read_rate(kernels: NativeKernels, size: int, repeats: int = 5) -> float:
    """Bytes per second of reading a buffer of ``size`` bytes again and again, all threads."""
    buffer = np.ones(size // 8, dtype=np.uint64)
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        kernels.machine.read_all(buffer)
        seconds.append(time.perf_counter() - started)
    return buffer.nbytes / min(seconds)


def product_rate(kernels: NativeKernels, kind: Format, repeats: int = 5) -> float:
    """Multiply-adds per second of our products with weights and rows in the cache."""
    matrix = _native.PackedMatrix(kind, CACHED_OUTPUTS, CACHED_INPUTS, False)
    program = _native.Program(kernels.machine)
    rows = [
        program.add_rows(Form(kernels.machine.form_of(kind)), CACHED_INPUTS, Domain.ALL),
        program.add_rows(Form.FLOAT32, CACHED_OUTPUTS, Domain.ALL),
    ]
    times = 100
    for _ in range(times):
        program.product(matrix, rows[0], Finish.STORE, -1, Domain.ALL, rows[1])
    seconds = [run_rows(kernels, program, CACHED_ROWS) for _ in range(repeats)]
    return times * CACHED_OUTPUTS * CACHED_INPUTS * CACHED_ROWS / min(seconds)


def run_rows(
    kernels: NativeKernels, program: _native.Program, rows: int, context: int = 1
) -> float:
    """Seconds of one run over ``rows`` rows, each alone in its request and wanting logits.

    A row attends to ``context`` positions, its own included, in pages of its own.
    """
    row = np.arange(rows, dtype=np.int32)
    pages = row[:, None] * pages_for(context) + np.arange(pages_for(context), dtype=np.int32)
    tail_start = (context - 1) // PAGE_SIZE * PAGE_SIZE
    tails = pages[:, -1:] * PAGE_SIZE + np.arange(context - tail_start, dtype=np.int32)
    started = time.perf_counter()
    program.run(
        kernels.machine,
        tokens=np.zeros(rows, dtype=np.int32),
        positions=np.full(rows, context - 1, dtype=np.int32),
        slots=tails[:, -1].copy(),
        requests=row,
        follows=np.zeros(rows, dtype=np.bool_),
        page_tables=pages,
        tail_starts=np.full(rows, tail_start, dtype=np.int32),
        tail_slots=tails,
        logit_rows=row,
    )
    return time.perf_counter() - started


class Floor:
    """The machine's rates, measured at once and again whenever ``measure`` is called."""

    def __init__(self, kernels: NativeKernels, work: Work) -> None:
        self._kernels = kernels
        self._work = work
        self.measure()

    def measure(self) -> None:
        self.bytes_per_second = read_rate(self._kernels, self._work.weight_bytes)
        self.products_per_second = {
            kind: product_rate(self._kernels, kind)
            for kind in self._work.products.keys() | self._work.head_products.keys()
        }

    def seconds(self, rows: int, context_bytes: float) -> float:
        """Of a step with ``rows`` rows, all of which want logits."""
        computing = sum(
            count / self.products_per_second[kind]
            for products in (self._work.products, self._work.head_products)
            for kind, count in products.items()
        )
        reading = (self._work.weight_bytes + context_bytes) / self.bytes_per_second
        return reading + rows * computing
