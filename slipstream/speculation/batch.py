"""From planned work and token trees to the ragged rows of one step."""

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels.step_batch import Int32, StepBatch
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.speculation.tree import TokenTree

LANES = np.arange(PAGE_SIZE, dtype=np.int32)


class Context(Protocol):
    """What a tree stands on: so many tokens committed, in these pages, which have room for it."""

    @property
    def committed(self) -> int: ...
    @property
    def pages(self) -> list[int]: ...


def build_step_batch(
    requests: Sequence[Context], trees: Sequence[TokenTree], emits: Sequence[bool]
) -> StepBatch:
    """Lay the rows of all trees end to end.

    Node i of a tree is stored in the request's slot number ``committed + i``. For known tokens that
    is their logical slot; draft nodes move there when they are accepted. ``emits`` tells which
    requests want logits: those of the root and of all draft nodes.
    """
    # Lists over requests, then arrays over rows, in few calls: they cost more than their work.
    sizes = [len(tree.tokens) for tree in trees]
    roots = [tree.root for tree in trees]
    firsts = [0, *accumulate(sizes)]  # each request's first row
    committed = [request.committed for request in requests]
    wanted = [root if emit else size for root, size, emit in zip(roots, sizes, emits, strict=True)]
    facts = np.array([range(len(sizes)), firsts[:-1], committed, wanted], dtype=np.int32)
    owners, first, start, first_wanted = facts.repeat(sizes, axis=1)

    nodes = np.arange(len(owners), dtype=np.int32) - first
    positions = start + nodes
    start -= start % PAGE_SIZE  # of the tail
    columns = positions - start
    tail_starts = facts[2] // PAGE_SIZE * PAGE_SIZE
    page_tables, tails = _page_tables(requests, tail_starts, 1 + int(columns.max()))
    slots = tails[owners, columns]
    tail_slots = tails.take(owners, axis=0)
    follows = nodes > 0
    if sum(roots) + len(roots) < len(owners):
        parents = np.concatenate([tree.parents for tree in trees])
        follows &= parents == nodes - 1
        drafts = nodes > np.repeat(roots, sizes)
        _lay_drafts(drafts, parents + first, start, positions, slots, tail_slots)
    return StepBatch(
        tokens=np.concatenate([tree.tokens for tree in trees]),
        positions=positions,
        slots=slots,
        requests=owners,
        follows=follows,
        page_tables=page_tables,
        tail_starts=tail_starts,
        tail_slots=tail_slots,
        logit_rows=(nodes >= first_wanted).nonzero()[0].astype(np.int32),
    )


def _page_tables(
    requests: Sequence[Context], tail_starts: Int32, tail_width: int
) -> tuple[Int32, Int32]:
    """Pages before the tails ``[R, P]``, then zeros; slots of the tails ``[R, tail_width]``.

    A tail's slots are in the order in which they are stored; behind the request's own are any.
    """
    counts = [len(request.pages) for request in requests]
    whole = tail_starts[:, None] // PAGE_SIZE
    most, tail_pages = int(whole.max()), pages_for(tail_width)
    columns = np.arange(max(most + tail_pages, *counts), dtype=np.int32)
    pages = np.zeros((len(requests), len(columns)), dtype=np.int32)
    held = chain.from_iterable([request.pages for request in requests])
    pages[columns < np.array(counts)[:, None]] = np.fromiter(held, dtype=np.int32)
    tails = pages[np.arange(len(requests))[:, None], whole + columns[:tail_pages]]
    slots = (tails[:, :, None] * PAGE_SIZE + LANES).reshape(len(requests), -1)
    columns = columns[: max(1, most)]
    return pages[:, : len(columns)] * (columns < whole), slots[:, :tail_width]


def _lay_drafts(
    drafts: NDArray[np.bool_],
    parents: Int32,
    tail_starts: Int32,
    positions: Int32,
    slots: Int32,
    tail_slots: Int32,
) -> None:
    """Correct ``positions`` and ``tail_slots`` of the rows that are ``drafts``.

    Beforehand every row is laid as if it followed the row before it. All arrays are over rows;
    ``parents`` are rows, too. Level by level: a node's path is its parent's, and itself.
    """
    rows = np.flatnonzero(drafts)
    reached = ~drafts
    while len(level := rows[reached[parents[rows]]]):
        above = parents[level]
        positions[level] = positions[above] + 1
        tail_slots[level] = tail_slots[above]
        tail_slots[level, positions[level] - tail_starts[level]] = slots[level]
        reached = np.zeros_like(drafts)
        reached[level] = True
