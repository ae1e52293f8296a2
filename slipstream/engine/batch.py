"""From planned work and token trees to the ragged rows of one step."""

from collections.abc import Sequence

import numpy as np

from slipstream.engine.request import Request
from slipstream.kernels.step_batch import Int32, StepBatch
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.speculation.tree import TokenTree


def build_step_batch(
    requests: Sequence[Request], trees: Sequence[TokenTree], emits: Sequence[bool]
) -> StepBatch:
    """Lay the rows of all trees end to end.

    Node i of a tree is stored in the request's slot number ``committed + i``. For known tokens that
    is their logical slot; draft nodes move there when they are accepted. ``emits`` tells which
    requests want logits: those of the root and of all draft nodes.
    """
    sizes = [len(tree.tokens) for tree in trees]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    rows = int(starts[-1])
    positions = np.empty(rows, dtype=np.int32)
    slots = np.empty(rows, dtype=np.int32)
    tail_starts = np.array(
        [request.committed // PAGE_SIZE * PAGE_SIZE for request in requests], dtype=np.int32
    )
    widths = [
        request.committed + size - int(start)
        for request, size, start in zip(requests, sizes, tail_starts, strict=True)
    ]
    tail_slots = np.zeros((rows, max(widths)), dtype=np.int32)
    page_tables = np.zeros((len(requests), max(1, int(tail_starts.max()) // PAGE_SIZE)), np.int32)
    for index, (request, tree) in enumerate(zip(requests, trees, strict=True)):
        here = slice(int(starts[index]), int(starts[index + 1]))
        whole = int(tail_starts[index]) // PAGE_SIZE
        page_tables[index, :whole] = request.pages[:whole]
        own = storage_slots(request, int(tail_starts[index]), request.committed + sizes[index])
        slots[here] = own[-sizes[index] :]
        _lay_tree(tree, request.committed, own, positions[here], tail_slots[here])
    follows = np.concatenate(
        [tree.parents == np.arange(-1, size - 1) for tree, size in zip(trees, sizes, strict=True)]
    )
    follows[starts[:-1]] = False
    return StepBatch(
        tokens=np.concatenate([tree.tokens for tree in trees]),
        positions=positions,
        slots=slots,
        requests=np.repeat(np.arange(len(requests), dtype=np.int32), sizes),
        follows=follows,
        page_tables=page_tables,
        tail_starts=tail_starts,
        tail_slots=tail_slots,
        logit_rows=np.concatenate(
            [
                np.arange(starts[index] + tree.root, starts[index + 1], dtype=np.int32)
                if emits[index]
                else np.empty(0, dtype=np.int32)
                for index, tree in enumerate(trees)
            ]
        ),
    )


def storage_slots(request: Request, start: int, stop: int) -> Int32:
    """Where the request's slots number ``start`` to ``stop - 1`` are, int32."""
    first = start // PAGE_SIZE
    pages = np.array(request.pages[first : pages_for(stop)], dtype=np.int32)
    slots = np.add.outer(pages * PAGE_SIZE, np.arange(PAGE_SIZE, dtype=np.int32)).reshape(-1)
    return slots[start - first * PAGE_SIZE : stop - first * PAGE_SIZE]


def _lay_tree(
    tree: TokenTree,
    committed: int,
    own: Int32,
    positions: Int32,
    tail_slots: Int32,
) -> None:
    """Fill one tree's rows of ``positions`` and ``tail_slots``; ``own`` starts at the tail."""
    known = tree.root + 1
    before = len(own) - len(tree.tokens)  # committed slots in the tail
    positions[:known] = np.arange(committed, committed + known)
    tail_slots[:known, : before + known] = own[: before + known]
    for node in range(known, len(tree.tokens)):
        parent = tree.parents[node]
        positions[node] = positions[parent] + 1
        depth = before + positions[node] - committed
        tail_slots[node, :depth] = tail_slots[parent, :depth]
        tail_slots[node, depth] = own[before + node]
