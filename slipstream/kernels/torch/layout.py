"""From token trees to the ragged rows of a step, with numpy."""

from itertools import accumulate, chain

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels.step_batch import BLOCK, Int32, StepBatch, StepTrees

LANES = np.arange(BLOCK, dtype=np.int32)


def lay_rows(trees: StepTrees) -> StepBatch:
    """Lay the rows of all trees end to end."""
    # Lists over requests, then arrays over rows, in few calls: they cost more than their work.
    roots, committed = trees.roots, trees.committed
    sizes = [len(tokens) for tokens in trees.tokens]
    firsts = [0, *accumulate(sizes)]  # each request's first row
    wanted = [
        root if emit else size for root, size, emit in zip(roots, sizes, trees.emits, strict=True)
    ]
    facts = np.array([range(len(sizes)), firsts[:-1], committed, wanted], dtype=np.int32)
    owners, first, start, first_wanted = facts.repeat(sizes, axis=1)

    nodes = np.arange(len(owners), dtype=np.int32) - first
    positions = start + nodes
    start -= start % BLOCK  # of the tail
    columns = positions - start
    tail_starts = facts[2] // BLOCK * BLOCK
    page_tables, tails = _page_tables(trees.pages, tail_starts, 1 + int(columns.max()))
    slots = tails[owners, columns]
    tail_slots = tails.take(owners, axis=0)
    follows = nodes > 0
    if sum(roots) + len(roots) < len(owners):
        parents = np.concatenate(trees.parents)
        follows &= parents == nodes - 1
        drafts = nodes > np.repeat(roots, sizes)
        _lay_drafts(drafts, parents + first, start, positions, slots, tail_slots)
    return StepBatch(
        tokens=np.concatenate(trees.tokens),
        positions=positions,
        slots=slots,
        requests=owners,
        follows=follows,
        page_tables=page_tables,
        tail_starts=tail_starts,
        tail_slots=tail_slots,
        logit_rows=(nodes >= first_wanted).nonzero()[0].astype(np.int32),
    )


def _page_tables(held: list[list[int]], tail_starts: Int32, tail_width: int) -> tuple[Int32, Int32]:
    """Pages before the tails ``[R, P]``, then zeros; slots of the tails ``[R, tail_width]``.

    A tail's slots are in the order in which they are stored; behind the request's own are any.
    """
    counts = [len(pages) for pages in held]
    whole = tail_starts[:, None] // BLOCK
    most, tail_pages = int(whole.max()), -(-tail_width // BLOCK)
    columns = np.arange(max(most + tail_pages, *counts), dtype=np.int32)
    pages = np.zeros((len(held), len(columns)), dtype=np.int32)
    numbers = chain.from_iterable(held)
    pages[columns < np.array(counts)[:, None]] = np.fromiter(numbers, dtype=np.int32)
    tails = pages[np.arange(len(held))[:, None], whole + columns[:tail_pages]]
    slots = (tails[:, :, None] * BLOCK + LANES).reshape(len(held), -1)
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
