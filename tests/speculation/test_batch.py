"""From token trees to rows."""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.engine.params import SamplingParams
from slipstream.engine.request import Request
from slipstream.kernels.step_batch import StepBatch, StepTrees
from slipstream.kernels.torch import layout
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.speculation.batch import build_step_batch
from slipstream.speculation.tree import TokenTree


def request(committed: int, pages: list[int]) -> Request:
    """A request as it stands before a step, for what the batch reads of it."""
    held = Request.start(0, [0] * (committed + 1), SamplingParams(max_tokens=1))
    held.committed, held.pages = committed, pages
    return held


def chain(*tokens: int) -> TokenTree:
    return TokenTree.chain(np.array(tokens, dtype=np.int32))


def test_a_tree_across_a_page_border_beside_a_chunk_of_prompt() -> None:
    assert PAGE_SIZE == 32
    # Its 30 committed tokens are in slots 96 to 125. Nodes 0 to 3 get 126, 127, 32 and 33.
    tree = chain(50).graft([51, 52, 53], [0, 0, 1])
    branching = request(30, [3, 1])
    # 32 committed tokens in page 5, eight in slots 64 to 71. The chunk gets 72 to 74.
    chunk = request(40, [5, 2, 4])
    batch = build_step_batch([branching, chunk], [tree, chain(60, 61, 62)], [True, False])

    assert batch.tokens.tolist() == [50, 51, 52, 53, 60, 61, 62]
    assert batch.positions.tolist() == [30, 31, 31, 32, 40, 41, 42]
    assert batch.slots.tolist() == [126, 127, 32, 33, 72, 73, 74]
    assert batch.requests.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert batch.follows.tolist() == [False, True, False, False, False, True, True]
    assert batch.tail_starts.tolist() == [0, 32]
    assert batch.page_tables.tolist() == [[0], [5]]
    assert batch.logit_rows.tolist() == [0, 1, 2, 3]
    before = list(range(96, 126))
    assert [
        slots[: position + 1 - batch.tail_starts[owner]].tolist()
        for slots, position, owner in zip(
            batch.tail_slots, batch.positions, batch.requests, strict=True
        )
    ] == [
        [*before, 126],
        [*before, 126, 127],
        [*before, 126, 32],
        [*before, 126, 127, 33],
        list(range(64, 73)),
        list(range(64, 74)),
        list(range(64, 75)),
    ]


def test_a_prompts_end_with_drafts_wants_logits_from_the_root_on() -> None:
    tree = chain(1, 2, 3).graft([4], [0])
    batch = build_step_batch(
        [request(0, [0]), request(0, [1])], [chain(9), tree], emits=[False, True]
    )
    assert batch.logit_rows.tolist() == [3, 4]
    assert batch.positions.tolist() == [0, 0, 1, 2, 3]
    assert batch.page_tables.shape == (2, 1)


@st.composite
def works(draw: st.DrawFn) -> list[tuple[int, int, list[int], bool]]:
    """Per request: tokens committed, tokens known, parents of draft nodes, whether it emits."""
    return [
        (
            draw(st.integers(0, 3 * PAGE_SIZE)),
            draw(st.integers(1, PAGE_SIZE + 8)),
            [draw(st.integers(0, node)) for node in range(draw(st.integers(0, 20)))],
            draw(st.booleans()),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]


@settings(max_examples=100, deadline=None)
@given(works(), st.randoms(use_true_random=False))
def test_each_row_reads_itself_and_its_ancestors_in_logical_order(
    drawn: list[tuple[int, int, list[int], bool]], shuffler: Random
) -> None:
    needed = [pages_for(committed + known + len(parents)) for committed, known, parents, _ in drawn]
    pool = list(range(sum(needed) + 3))
    shuffler.shuffle(pool)
    requests = [
        request(committed, [pool.pop() for _ in range(count)])
        for (committed, _, _, _), count in zip(drawn, needed, strict=True)
    ]
    trees = [
        chain(*range(known)).graft([100 + node for node in range(len(parents))], parents)
        for _, known, parents, _ in drawn
    ]
    emitting = [emits for *_, emits in drawn]
    batch = build_step_batch(requests, trees, emitting)
    check(batch, requests, trees, drawn)
    slow = layout.lay_rows(
        StepTrees(
            [tree.tokens for tree in trees],
            [tree.parents for tree in trees],
            [tree.root for tree in trees],
            [held.committed for held in requests],
            [held.pages for held in requests],
            emitting,
        )
    )
    check(slow, requests, trees, drawn)
    for name in ("page_tables", "tail_slots"):  # also what nobody looks at
        assert getattr(batch, name).tolist() == getattr(slow, name).tolist()


def check(
    batch: StepBatch,
    requests: list[Request],
    trees: list[TokenTree],
    drawn: list[tuple[int, int, list[int], bool]],
) -> None:
    row = 0
    logit_rows = []
    for index, (held, tree, (committed, known, _, emits)) in enumerate(
        zip(requests, trees, drawn, strict=True)
    ):
        slot = [page * PAGE_SIZE + lane for page in held.pages for lane in range(PAGE_SIZE)]
        start = committed // PAGE_SIZE * PAGE_SIZE
        assert batch.tail_starts[index] == start
        whole = start // PAGE_SIZE
        assert batch.page_tables[index, :whole].tolist() == held.pages[:whole]
        for node in range(len(tree.tokens)):
            path = [node]
            while tree.parents[path[0]] >= 0:
                path.insert(0, int(tree.parents[path[0]]))
            position = committed + len(path) - 1
            assert batch.tokens[row] == tree.tokens[node]
            assert batch.requests[row] == index
            assert batch.positions[row] == position
            assert batch.slots[row] == slot[committed + node]
            expected = slot[start:committed] + [slot[committed + n] for n in path]
            assert batch.tail_slots[row, : position + 1 - start].tolist() == expected
            assert batch.follows[row] == (node > 0 and tree.parents[node] == node - 1)
            if emits and node >= known - 1:
                logit_rows.append(row)
            row += 1
    assert row == len(batch.tokens) == len(set(batch.slots.tolist()))
    assert batch.logit_rows.tolist() == logit_rows
    # As native kernels need them.
    assert batch.sources is batch.rotary_positions is None
    for name in set(StepBatch.__slots__) - {"sources", "rotary_positions"}:
        array = getattr(batch, name)
        assert array.flags.c_contiguous, name
        assert array.dtype == (np.bool_ if name == "follows" else np.int32), name
