"""What module.cpp offers to Python. Enumerations cross as numbers; kernels.py names them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_Int32 = NDArray[np.int32]
_Floats = NDArray[np.float32]

def supports(isa: str) -> bool: ...
def compiled(isa: str) -> bool: ...
def compiler() -> str: ...
def lay_step(
    tokens: Sequence[_Int32],
    parents: Sequence[_Int32],
    roots: Sequence[int],
    committed: Sequence[int],
    pages: Sequence[Sequence[int]],
    emits: Sequence[bool],
) -> tuple[_Int32, _Int32, _Int32, _Int32, NDArray[np.bool_], _Int32, _Int32, _Int32, _Int32]: ...
def kv_page_bytes(type: int, layers: int, kv_heads: int, head_dim: int) -> int: ...

class Machine:
    def __init__(self, isa: str, threads: int) -> None: ...
    def form_of(self, format: int) -> int: ...
    def read_all(self, data: NDArray[np.uint64]) -> int: ...
    def move_slots(self, cache: KVCache, sources: _Int32, targets: _Int32) -> None: ...
    def sample(
        self,
        logits: _Floats,
        temperature: NDArray[np.float64],
        top_p: NDArray[np.float64],
        min_p: NDArray[np.float64],
        top_k: _Int32,
        seed: NDArray[np.uint64],
        position: _Int32,
    ) -> _Int32: ...
    def rank(
        self,
        logits: _Floats,
        ids: _Int32,
        temperature: NDArray[np.float64],
        top_p: NDArray[np.float64],
        min_p: NDArray[np.float64],
        top_k: _Int32,
        seed: NDArray[np.uint64],
        position: _Int32,
        tokens: _Int32,
        logprobs: _Floats,
    ) -> None: ...

class PackedMatrix:
    def __init__(self, format: int, outputs: int, inputs: int, swiglu: bool) -> None: ...
    def fill(
        self, data: NDArray[np.uint8], kind: str, first: int, first_panel: int, panel_step: int
    ) -> None: ...
    def set_bias(self, bias: Sequence[float]) -> None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def multiply_adds(self) -> int: ...  # of one row
    @property
    def format(self) -> int: ...

class KVCache:
    def __init__(
        self, type: int, layers: int, pages: int, kv_heads: int, head_dim: int
    ) -> None: ...

class KeptRows:
    def __init__(self, slots: int, parts: int, width: int) -> None: ...
    def move(self, sources: _Int32, targets: _Int32) -> None: ...
    def bits(self) -> NDArray[np.uint16]: ...
    @property
    def values(self) -> int: ...  # of one row, without padding

class Program:
    def __init__(self, machine: Machine) -> None: ...
    def add_rows(self, form: int, width: int, domain: int) -> int: ...
    def embed(self, table: PackedMatrix, out: int) -> None: ...
    def norm(self, x: int, weight: _Floats, eps: float, domain: int, out: int) -> None: ...
    def product(
        self, matrix: PackedMatrix, in_: int, finish: int, residual: int, domain: int, out: int
    ) -> None: ...
    def attention(
        self,
        qkv: int,
        heads: int,
        layer: int,
        cache: KVCache,
        cosines: _Floats,
        sines: _Floats,
        out: int,
    ) -> None: ...
    def normed_attention(
        self,
        qkv: int,
        heads: int,
        layer: int,
        cache: KVCache,
        cosines: _Floats,
        sines: _Floats,
        query_norm: _Floats,
        key_norm: _Floats,
        eps: float,
        out: int,
    ) -> None: ...
    def store(
        self, kv: int, layer: int, cache: KVCache, cosines: _Floats, sines: _Floats
    ) -> None: ...
    def convert(self, x: int, out: int) -> None: ...
    def keep(self, kept: KeptRows, part: int, x: int) -> None: ...
    def gather(self, kept: KeptRows, part: int, out: int, column: int) -> None: ...
    def run(
        self,
        machine: Machine,
        tokens: _Int32,
        positions: _Int32,
        slots: _Int32,
        angles: _Int32,
        sources: _Int32,
        requests: _Int32,
        follows: NDArray[np.bool_],
        page_tables: _Int32,
        tail_starts: _Int32,
        tail_slots: _Int32,
        logit_rows: _Int32,
    ) -> None: ...
    def floats(self, buffer: int, rows: int, width: int) -> _Floats: ...

class Grower:
    def __init__(
        self,
        machine: Machine,
        first: Program,
        first_logits: int,
        deeper: Program,
        deeper_logits: int,
        ids: _Int32,
    ) -> None: ...
    def grow(
        self,
        machine: Machine,
        tokens: _Int32,
        sources: _Int32,
        first_pages: _Int32,
        ring_pages: int,
        ring_starts: _Int32,
        entered: _Int32,
        roots: _Int32,
        levels: _Int32,
        topk: _Int32,
        nodes: _Int32,
        least_scores: _Floats,
        temperature: NDArray[np.float64],
        top_p: NDArray[np.float64],
        min_p: NDArray[np.float64],
        top_k: _Int32,
        seed: NDArray[np.uint64],
        position: _Int32,
    ) -> list[tuple[list[int], list[int], _Floats]]: ...
