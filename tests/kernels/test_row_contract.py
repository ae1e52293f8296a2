"""The row contract on torch's kernels, bit for bit: a row depends on its own inputs, no others."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from slipstream.engine.params import SamplingParams
from slipstream.engine.request import Request
from slipstream.kernels.torch.kernels import TorchKernels
from slipstream.kernels.torch.linear import HEIGHTS, PackedLinear, blocks, equal_heights
from slipstream.kernels.torch.operations import TorchOperations, swiglu
from slipstream.kernels.weight import Weight
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.speculation.batch import build_step_batch
from slipstream.speculation.tree import TokenTree

HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64
SHAPES = [(960, 576), (576, 576), (3072, 576), (576, 1536), (1000, 100), (7, 33)]


@pytest.fixture(params=[1, 2])
def kernels(request: pytest.FixtureRequest) -> Iterator[TorchKernels]:
    before = torch.get_num_threads()
    yield TorchKernels(threads=request.param)
    torch.set_num_threads(before)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def weight(outputs: int, inputs: int) -> Weight:
    return Weight.of(random(outputs, inputs).numpy())


def operations(kernels: TorchKernels, rows: int = 1) -> TorchOperations:
    """Operations of a step of one prompt."""
    prompt = request(0, rows, list(range(1 + rows // PAGE_SIZE)))
    tree = TokenTree.chain(np.zeros(rows, dtype=np.int32))
    return TorchOperations(build_step_batch([prompt], [tree], [True]), kernels.heights)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_norm_and_product(kernels: TorchKernels, outputs: int, inputs: int) -> None:
    linear = kernels.pack_linear([weight(outputs, inputs)], random(outputs, seed=1).numpy())
    norm = kernels.pack_vector(random(inputs, seed=2).numpy())
    row = random(1, inputs, seed=3)
    ops = operations(kernels)
    alone = ops.norm_linear(row, norm, 1e-5, linear)
    assert alone.abs().min() > 0
    for others in (2, 15, 16, 17, 64, 300):
        for place in {0, 1, others // 2, others - 1}:
            rows = 100 * random(others, inputs, seed=others)
            rows[place] = row
            padded = torch.zeros(sum(blocks(others, kernels.heights)), inputs)
            padded[:others] = rows
            among = ops.norm_linear(padded, norm, 1e-5, linear)[place]
            assert torch.equal(among, alone[0]), (others, place)


def test_threads_change_no_bits() -> None:
    results = []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        kernels = TorchKernels(threads)
        linear = kernels.pack_linear([weight(3072, 576)], None)
        rows, norm = random(48, 576, seed=1), random(576, seed=2)
        results.append(operations(kernels).norm_swiglu(rows, norm, 1e-5, linear, linear))
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.usefixtures("machine")
def test_swiglu() -> None:
    gate_up = random(300, 2 * 1536)
    together = swiglu(gate_up.clone())
    for row in (0, 1, 7, 8, 150, 299):
        assert torch.equal(swiglu(gate_up[row : row + 1].clone())[0], together[row])


def test_products_are_close_to_float64() -> None:
    """A float32 sum of K products errs by at most K * 2**-24 of the sum of their magnitudes."""
    kernels = TorchKernels()
    matrix, bias, rows = random(576, 1536), random(576, seed=1), random(16, 1536, seed=2)
    linear = kernels.pack_linear([Weight.of(matrix.numpy())], bias.numpy())
    found = operations(kernels).linear_add(rows, linear, torch.zeros(16, 576))
    exact = rows.double() @ matrix.double().T + bias
    bound = 1536 * 2.0**-24 * (rows.double().abs() @ matrix.double().abs().T + bias.abs())
    assert ((found - exact).abs() <= bound).all()


def in_order(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """A product whose float32 sums run from the first input to the last."""
    return sum((rows[:, None, k] * matrix[:, k] for k in range(matrix.shape[1])), torch.zeros(1))


def test_heights_with_other_bits_are_not_used() -> None:
    """A library that sums in another order below four rows, as some do."""
    matrix = random(40, 64)

    def apply(rows: torch.Tensor) -> torch.Tensor:
        if len(rows) < 4:
            return in_order(rows.flip(1), matrix.flip(1))
        return in_order(rows, matrix)

    assert equal_heights(PackedLinear(apply, 64, 40)) == {h for h in HEIGHTS if h >= 4}


def test_places_with_other_bits_leave_single_rows_only() -> None:
    matrix = random(40, 64)

    def apply(rows: torch.Tensor) -> torch.Tensor:
        last = in_order(rows[-1:].flip(1), matrix.flip(1))
        return torch.cat([in_order(rows[:-1], matrix), last])

    assert equal_heights(PackedLinear(apply, 64, 40)) == {1}


def test_blocks_cover_the_rows() -> None:
    heights = frozenset({1, 4, 16})
    assert blocks(0, heights) == []
    assert blocks(3, heights) == [4]
    assert blocks(37, heights) == [16, 16, 16]
    assert blocks(33, heights) == [16, 16, 1]
    assert blocks(3, frozenset({1})) == [1, 1, 1]


# Attention: one row's context of CONTEXT positions, its keys and values written in many ways.
CONTEXT = 77


def request(id: int, length: int, pages: list[int]) -> Request:
    made = Request.start(id, [0] * length, SamplingParams(max_tokens=64))
    made.pages = pages
    return made


class Attention:
    """A one-layer cache; ``qkv`` of a token depends on its number only."""

    def __init__(self, kernels: TorchKernels) -> None:
        self.kernels = kernels
        self.cache = kernels.new_kv_cache(1, KV_HEADS, HEAD_DIM, 64 * PAGE_SIZE, "auto")
        angles = torch.outer(torch.arange(512.0), random(HEAD_DIM // 2).abs())
        self.rotary = kernels.pack_rotary(angles.cos().numpy(), angles.sin().numpy())
        self.into = kernels.pack_linear([weight(16, HEADS * HEAD_DIM)], None)
        self.qkv = 2 * random(512, (HEADS + 2 * KV_HEADS) * HEAD_DIM, seed=5)

    def run(self, requests: list[Request], trees: list[TokenTree]) -> list[torch.Tensor]:
        """Outputs per request, ``[nodes, heads * head_dim]``."""
        batch = build_step_batch(requests, trees, [True] * len(requests))
        rows = self.qkv[torch.from_numpy(batch.tokens).long()]
        ops = TorchOperations(batch, self.kernels.heights)
        output = ops.attention(rows, HEADS, None, self.rotary, self.cache, 0, self.into)
        return list(output[: len(batch.tokens)].split([len(tree.tokens) for tree in trees]))

    def chunk(self, request: Request, start: int, stop: int) -> torch.Tensor:
        """Compute tokens number ``start`` to ``stop - 1`` as one chunk."""
        request.committed = start
        tree = TokenTree.chain(np.arange(start, stop, dtype=np.int32))
        return self.run([request], [tree])[0]


@pytest.fixture
def attention(kernels: TorchKernels) -> Attention:
    return Attention(kernels)


def pages(first: int) -> list[int]:
    return list(range(first, first + pages_for(CONTEXT + 64)))


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("split", [1, 5, 31, 32, 33, 64, 76])
def test_attention_in_chunks(attention: Attention, split: int) -> None:
    whole = attention.chunk(request(0, CONTEXT, pages(0)), 0, CONTEXT)
    other = request(1, CONTEXT, list(reversed(pages(10))))
    parts = [attention.chunk(other, 0, split), attention.chunk(other, split, CONTEXT)]
    assert torch.equal(torch.cat(parts), whole)


def test_attention_is_close_to_float64(attention: Attention) -> None:
    """Weights sum to 1, so the error is that of exp and of sums of 77 products: below 1e-5."""
    whole = attention.chunk(request(0, CONTEXT, pages(0)), 0, CONTEXT)
    by_head = attention.qkv[:CONTEXT].double().view(CONTEXT, -1, HEAD_DIM)
    query, key, value = by_head.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    cosines, sines = (table[:CONTEXT, None].double() for table in attention.rotary)
    query, key = (x * cosines + x.roll(HEAD_DIM // 2, -1) * sines for x in (query, key))
    key, value = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) / HEAD_DIM**0.5
    scores += torch.full((CONTEXT, CONTEXT), -torch.inf, dtype=torch.double).triu(1)
    expected = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).reshape(CONTEXT, -1)
    assert (whole - expected).abs().max() < 1e-5


@pytest.mark.usefixtures("machine")
def test_attention_beside_other_requests(attention: Attention) -> None:
    whole = attention.chunk(request(0, CONTEXT, pages(0)), 0, CONTEXT)
    mine = request(1, CONTEXT, pages(10))
    attention.chunk(mine, 0, CONTEXT - 1)
    mine.committed = CONTEXT - 1
    last = TokenTree.chain(np.array([CONTEXT - 1], dtype=np.int32))
    for others in (1, 14, 15, 16, 40):
        # One long and many short contexts beside it, before and behind.
        long = request(2, 300, list(range(20, 40)))
        long.committed = 290
        short = [request(3 + i, 9, [40 + i % 20]) for i in range(others)]
        trees = [
            TokenTree.chain(np.arange(290, 300, dtype=np.int32)),
            last,
            *(TokenTree.chain(np.arange(9, dtype=np.int32)) for _ in short),
        ]
        assert torch.equal(attention.run([long, mine, *short], trees)[1][0], whole[-1])


@pytest.mark.parametrize("committed", [60, 63, 64, 65, 70])
def test_attention_in_a_tree(attention: Attention, committed: int) -> None:
    """The true continuation as one path of a tree, its nodes apart and between false ones."""
    whole = attention.chunk(request(0, CONTEXT, pages(0)), 0, CONTEXT)
    mine = request(1, CONTEXT, list(reversed(pages(10))))
    attention.chunk(mine, 0, committed)
    mine.committed = committed
    tokens, parents, path = [committed], [], [0]
    grafted: list[int] = []
    for true in range(committed + 1, CONTEXT):
        parent = path[-1]
        grafted += [400 + true, true, 450 - true]
        parents += [parent, parent, parent]
        path.append(len(grafted) - 1)
    tree = TokenTree.chain(np.array(tokens, dtype=np.int32)).graft(grafted, parents)
    output = attention.run([mine], [tree])[0]
    assert torch.equal(output[path], whole[committed:])


def test_moved_slots_keep_their_bits(attention: Attention) -> None:
    source = request(0, CONTEXT, pages(0))
    attention.chunk(source, 0, CONTEXT)
    before = attention.cache[0].clone()
    # A chain of moves: what is overwritten was read before.
    attention.kernels.move_slots(attention.cache, [5, 6, 7], [4, 5, 6])
    assert torch.equal(attention.cache[0][:, 4:7], before[:, 5:8])
    assert torch.equal(attention.cache[0][:, 7:], before[:, 7:])
