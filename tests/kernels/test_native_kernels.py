"""The native kernels through their Python interface: a small decoder, recorded and replayed.

Its arithmetic is tested in C++; here whole steps keep the row contract, bit for bit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from slipstream.engine.load import load_engine
from slipstream.engine.options import EngineOptions
from slipstream.engine.params import SamplingParams
from slipstream.engine.request import Request
from slipstream.errors import UserError
from slipstream.kernels import Kernels, KVDtype, Weight
from slipstream.kernels.interface import Operations, Rows
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.speculation.batch import build_step_batch
from slipstream.speculation.tree import TokenTree
from tests import kernel_sets

VOCABULARY, HIDDEN, INNER, HEADS, KV_HEADS = 200, 64, 96, 6, 2
LOUD = 100  # tokens from here on have embeddings a hundred times as large
CONTEXT = 75  # of the row that is looked at: more than two attention blocks
MOST = 300  # rows of a step
PAGES = 3 * pages_for(CONTEXT + MOST)
EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """What a decoder is made of."""

    kind: str  # of the stored weights
    kv_dtype: KVDtype
    head_dim: int = 32


SHAPES = [
    Shape("float32", "auto"),
    Shape("float32", "int8", head_dim=256),
    Shape("q8_0", "int8"),
    Shape("q4_0", "auto", head_dim=16),
    Shape("q4_1", "auto"),
]


def random(*shape: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def weight(kind: str, values: NDArray[np.float32]) -> Weight:
    if kind == "float32":
        return Weight.of(values)
    packed = gguf.quantize(values, gguf.GGMLQuantizationType[kind.upper()])
    return Weight(values.shape, kind, packed)


class Decoder:
    """One layer with biases and norms of queries and keys, and a head tied to the embedding."""

    def __init__(self, kernels: Kernels, shape: Shape) -> None:
        def matrix(outputs: int, inputs: int, seed: int) -> Weight:
            return weight(shape.kind, random(outputs, inputs, seed=seed) / np.sqrt(inputs))

        size = HEADS * shape.head_dim
        stack = size + 2 * KV_HEADS * shape.head_dim
        table = random(VOCABULARY, HIDDEN, seed=0)
        table[LOUD:] *= 100
        self._table = kernels.pack_embedding(weight(shape.kind, table))
        self._head = kernels.tied_head(self._table)
        self._qkv = kernels.pack_linear([matrix(stack, HIDDEN, 1)], random(stack, seed=2))
        self._output = kernels.pack_linear([matrix(HIDDEN, size, 3)], random(HIDDEN, seed=4))
        gate, up = matrix(INNER, HIDDEN, 5), matrix(INNER, HIDDEN, 6)
        self._gate_up = kernels.pack_gate_up(gate, up, random(2 * INNER, seed=7))
        self._down = kernels.pack_linear([matrix(HIDDEN, INNER, 8)], None)
        self._norm = kernels.pack_vector(random(HIDDEN, seed=9))
        self._head_norm = kernels.pack_vector(random(shape.head_dim, seed=10))
        angles = np.outer(np.arange(CONTEXT + MOST), 1 / (1 + np.arange(shape.head_dim // 2)))
        angles = angles.astype(np.float32)
        self._rotary = kernels.pack_rotary(np.cos(angles), np.sin(angles))
        self._cache = kernels.new_kv_cache(
            1, KV_HEADS, shape.head_dim, PAGES * PAGE_SIZE, shape.kv_dtype
        )
        self._program = kernels.record(self._forward)

    def _forward(self, ops: Operations) -> Rows:
        x = ops.embed(self._table)
        qkv = ops.norm_linear(x, self._norm, EPS, self._qkv)
        qk_norms = (self._head_norm, self._head_norm, EPS)
        mixed = ops.attention(qkv, HEADS, qk_norms, self._rotary, self._cache, 0, into=self._output)
        x = ops.linear_add(mixed, self._output, x)
        inner = ops.norm_swiglu(x, self._norm, EPS, self._gate_up, into=self._down)
        x = ops.linear_add(inner, self._down, x)
        return ops.logits(x, self._norm, EPS, self._head)

    def step(self, chunks: Sequence["Chunk"], emits: bool = True) -> NDArray[np.float32]:
        """Logits ``[rows, vocabulary]`` of all rows of all chunks."""
        requests, trees = [], []
        for id, chunk in enumerate(chunks):
            request = Request.start(id, chunk.tokens.tolist(), SamplingParams(max_tokens=64))
            request.pages, request.committed = chunk.pages, chunk.start
            chain = TokenTree.chain(chunk.tokens[chunk.start :])
            requests.append(request)
            trees.append(TokenTree(chain.tokens, chain.parents, root=0))
        batch = build_step_batch(requests, trees, [emits] * len(chunks))
        return self._program(batch).copy()


@dataclass(frozen=True)
class Chunk:
    """Tokens from ``start`` on of one request, which keeps its keys in ``pages``."""

    tokens: NDArray[np.int32]
    start: int
    pages: list[int]


def loud(count: int, first_page: int) -> Chunk:
    tokens = np.random.default_rng(count).integers(LOUD, VOCABULARY, count, dtype=np.int32)
    return Chunk(tokens, 0, list(range(first_page, first_page + pages_for(count))))


MINE = np.random.default_rng(0).integers(0, LOUD, CONTEXT, dtype=np.int32)


def mine(start: int, stop: int = CONTEXT) -> Chunk:
    return Chunk(MINE[:stop], start, list(reversed(range(pages_for(CONTEXT)))))


@pytest.fixture(params=kernel_sets.params(kernel_sets.NATIVE))
def kernel_set(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=SHAPES, ids=str)
def shape(request: pytest.FixtureRequest) -> Shape:
    made: Shape = request.param
    return made


def assert_same(found: Any, expected: Any, what: object = None) -> None:
    """Equal bits."""
    assert found.tobytes() == expected.tobytes(), what


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("threads", [1, 2])
def test_one_row_among_others(kernel_set: str, shape: Shape, threads: int) -> None:
    reference = Decoder(kernel_sets.make(kernel_set), shape)
    reference.step([mine(0, CONTEXT - 1)])
    alone = reference.step([mine(CONTEXT - 1)])
    assert np.isfinite(alone).all() and alone.std() > 0.1
    decoder = Decoder(kernel_sets.make(kernel_set, threads), shape)
    decoder.step([mine(0, CONTEXT - 1)])
    first_page = pages_for(CONTEXT)
    for rows in (1, 2, 15, 16, 17, 64, MOST):
        for place in sorted({0, rows // 2, rows - 1}):
            before = [loud(place, first_page)] if place else []
            behind = rows - 1 - place
            after = [loud(behind, first_page + pages_for(MOST))] if behind else []
            logits = decoder.step([*before, mine(CONTEXT - 1), *after])
            assert len(logits) == rows
            assert_same(logits[place], alone[0], (rows, place))


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_context_in_chunks(kernel_set: str, shape: Shape, threads: int) -> None:
    whole = Decoder(kernel_sets.make(kernel_set), shape).step([mine(0)])
    decoder = Decoder(kernel_sets.make(kernel_set, threads), shape)
    for size in (1, 5, 16, 31, 32, 33, 64):
        starts = range(0, CONTEXT, size)
        parts = [decoder.step([mine(s, min(s + size, CONTEXT))]) for s in starts]
        assert_same(np.concatenate(parts), whole, size)


def fresh(kernel_set: str, shape: Shape, sizes: Iterable[int]) -> list[NDArray[np.float32]]:
    """Logits of prompts of such sizes, each on a program of its own."""
    kernels = kernel_sets.make(kernel_set)
    return [Decoder(kernels, shape).step([loud(size, 0)]) for size in sizes]


def test_steps_that_grow_and_shrink(kernel_set: str, shape: Shape) -> None:
    sizes = [1, 17, MOST, 2, 64, 16, MOST, 1, 15, 33]
    expected = fresh(kernel_set, shape, sizes)
    decoder = Decoder(kernel_sets.make(kernel_set, 2), shape)
    for size, each in zip(sizes, expected, strict=True):
        assert decoder.step([loud(size, 0)], emits=False).shape == (0, VOCABULARY)
        assert_same(decoder.step([loud(size, 0)]), each, size)


@pytest.mark.parametrize("dtype", ["fp8", "float32", ""])
def test_a_type_of_keys_that_does_not_exist(kernel_set: str, dtype: Any) -> None:
    kernels = kernel_sets.make(kernel_set)
    for call in (
        lambda: kernels.slot_bytes(1, 1, 16, dtype),
        lambda: kernels.new_kv_cache(1, 1, 16, PAGE_SIZE, dtype),
    ):
        with pytest.raises(UserError, match=f"{dtype!r}.*auto, bf16 and int8"):
            call()


@pytest.mark.parametrize("head_dim", [8, 24, 257, 272])
def test_heads_that_kernels_cannot_hold(kernel_set: str, head_dim: int) -> None:
    kernels = kernel_sets.make(kernel_set)
    for call in (
        lambda: kernels.slot_bytes(1, 1, head_dim, "auto"),
        lambda: kernels.new_kv_cache(1, 1, head_dim, PAGE_SIZE, "auto"),
    ):
        with pytest.raises(
            UserError, match=f"head size {head_dim}: .* multiple of 16, at most 256"
        ):
            call()


@pytest.mark.parametrize("head_dim", [24, 272])
def test_a_model_with_such_heads_is_refused_at_load(
    kernel_set: str, head_dim: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.models.tiny import make_tiny  # imports transformers, which takes seconds

    make_tiny("qwen3", tmp_path / "model", head_dim=head_dim, num_hidden_layers=1)
    monkeypatch.setenv("SLIPSTREAM_KERNELS", "native")
    monkeypatch.setenv("SLIPSTREAM_ISA", kernel_set)
    with pytest.raises(UserError, match=f"head size {head_dim}: .*SLIPSTREAM_KERNELS=torch"):
        load_engine(EngineOptions(model=str(tmp_path / "model"), threads=1))
    monkeypatch.setenv("SLIPSTREAM_KERNELS", "torch")
    monkeypatch.delenv("SLIPSTREAM_ISA")
    engine, _ = load_engine(EngineOptions(model=str(tmp_path / "model"), threads=1))
    assert engine.stats().pages > 0
