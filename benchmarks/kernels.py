"""Each kernel of a model by itself: bytes and operations against time.

    python benchmarks/kernels.py --rows 1 4 16 32 64 128 256 --json kernels.json

A line is one kernel in all layers. `floor_ms` is the time to read its bytes plus that of its
multiply-adds at the rates that the machine shows in the same run (see floor.py), and `ratio` the
time over it. Norms and attention do little of either; what counts is their share of the whole.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from floor import product_rate, read_rate, run_rows

from slipstream.kernels import choose_kernels
from slipstream.kernels.native import _native
from slipstream.kernels.native.kernels import NativeKernels
from slipstream.kernels.native.program import Domain, Finish, Form, Format, Linear
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.models.checkpoint import open_checkpoint
from slipstream.models.config import ModelConfig
from slipstream.models.transformer import Weights

REPEATS = 7
CONTEXT = 80  # positions that a row attends to, its own included

Line = dict[str, str | float]


class Bench:
    """Programs of one kernel each, and the rates they are held against."""

    def __init__(self, kernels: NativeKernels, config: ModelConfig, weights: Weights) -> None:
        self._kernels = kernels
        self._config = config
        self._weights = weights
        layers = weights.layers
        self._products: dict[str, list[Linear]] = {
            "qkv": [layer.qkv for layer in layers],
            "attention output": [layer.attention_output for layer in layers],
            "gate, up, swiglu": [layer.gate_up for layer in layers],
            "down": [layer.down for layer in layers],
            "head": [weights.head],
        }
        kinds = {self._kind(linears) for linears in self._products.values()}
        self._product_rates = {kind: product_rate(kernels, kind) for kind in kinds}

    def lines(self, rows: int) -> Iterator[Line]:
        for name, linears in self._products.items():
            yield self._product(name, linears, rows)
        yield self._norms(rows)
        yield self._attention(rows)

    def _kind(self, linears: list[Linear]) -> Format:
        return Format(linears[0].matrix.format)

    def _form(self, kind: Format) -> Form:
        return Form(self._kernels.machine.form_of(kind))

    def _product(self, name: str, linears: list[Linear], rows: int) -> Line:
        kind = self._kind(linears)
        swiglu = name.endswith("swiglu")
        program = _native.Program(self._kernels.machine)
        x = program.add_rows(self._form(kind), linears[0].inputs, Domain.ALL)
        form = self._form(kind) if swiglu else Form.FLOAT32
        out = program.add_rows(form, linears[0].outputs, Domain.ALL)
        for linear in linears:
            finish = Finish.SWIGLU if swiglu else Finish.STORE
            program.product(linear.matrix, x, finish, -1, Domain.ALL, out)
        read = sum(linear.matrix.nbytes for linear in linears)
        multiply_adds = rows * sum(linear.matrix.multiply_adds for linear in linears)
        computing = multiply_adds / self._product_rates[kind]
        return self._line(name, rows, self._time(program, rows), read, multiply_adds, computing)

    def _norms(self, rows: int) -> Line:
        program = _native.Program(self._kernels.machine)
        x = program.add_rows(Form.FLOAT32, self._config.hidden_size, Domain.ALL)
        form = self._form(self._kind(self._products["qkv"]))
        out = program.add_rows(form, self._config.hidden_size, Domain.ALL)
        for layer in self._weights.layers:
            for norm in (layer.attention_norm, layer.mlp_norm):
                program.norm(x, norm, self._config.rms_norm_eps, Domain.ALL, out)
        return self._line("norms", rows, self._time(program, rows), 0, 0, 0)

    def _attention(self, rows: int) -> Line:
        config = self._config
        sizes = config.num_layers, config.num_kv_heads, config.head_dim
        slots = rows * pages_for(CONTEXT) * PAGE_SIZE
        cache = self._kernels.new_kv_cache(*sizes, slots, "auto")
        turns = np.ones((CONTEXT, config.head_dim // 2), dtype=np.float32)
        program = _native.Program(self._kernels.machine)
        width = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        qkv = program.add_rows(Form.FLOAT32, width, Domain.ALL)
        form = self._form(self._kind(self._products["attention output"]))
        out = program.add_rows(form, config.num_heads * config.head_dim, Domain.ALL)
        for layer in range(config.num_layers):
            program.attention(qkv, config.num_heads, layer, cache, turns, turns, out)
        read = rows * CONTEXT * self._kernels.slot_bytes(*sizes, "auto")
        multiply_adds = 2 * rows * CONTEXT * config.num_layers * config.num_heads * config.head_dim
        seconds = self._time(program, rows, CONTEXT)
        return self._line("attention", rows, seconds, read, multiply_adds, 0)

    def _time(self, program: _native.Program, rows: int, context: int = 1) -> float:
        return statistics.median(
            run_rows(self._kernels, program, rows, context) for _ in range(REPEATS)
        )

    def _line(
        self,
        kernel: str,
        rows: int,
        seconds: float,
        read: int,
        multiply_adds: int,
        computing: float,
    ) -> Line:
        reading = read / read_rate(self._kernels, read, repeats=3) if read else 0.0
        floor = reading + computing
        return {
            "kernel": kernel,
            "rows": rows,
            "ms": 1000 * seconds,
            "gb_s": read / seconds / 1e9,
            "gmac_s": multiply_adds / seconds / 1e9,
            "floor_ms": 1000 * floor,
            "ratio": seconds / floor if floor else float("nan"),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 32, 64, 128, 256])
    parser.add_argument("--model", default="default")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    kernels = choose_kernels(arguments.threads)
    if not isinstance(kernels, NativeKernels):
        raise SystemExit(f"the kernels here are {kernels.name}; this measures the native ones")
    checkpoint = open_checkpoint(arguments.model)
    bench = Bench(kernels, checkpoint.config, Weights.load(checkpoint, kernels))
    lines = []
    print("kernel           | rows |       ms |  GB/s | GMAC/s | floor ms | ratio")
    for rows in arguments.rows:
        for line in bench.lines(rows):
            lines.append(line)
            print(
                "{kernel:16} | {rows:4} | {ms:8.3f} | {gb_s:5.1f} | {gmac_s:6.1f} | "
                "{floor_ms:8.3f} | {ratio:5.2f}".format(**line),
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps({"kernels": kernels.name, "lines": lines}, indent=1))


if __name__ == "__main__":
    main()
