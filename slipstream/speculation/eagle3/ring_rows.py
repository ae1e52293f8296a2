"""The rows of a drafter's passes, whose keys and values are in rings."""

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels import StepBatch
from slipstream.kernels.growth import RingPages
from slipstream.memory.pool import PAGE_SIZE

Int32 = NDArray[np.int32]


def lay_chains(
    rings: RingPages, starts: Int32, stops: Int32, tokens: Int32, sources: Int32
) -> StepBatch:
    """A row for each position ``starts .. stops - 1`` of each request, after what is before them.

    ``tokens`` and ``sources`` ``[T]`` are over rows, ``starts`` and ``stops`` ``[R]``. Logits are
    wanted of each request's last row.
    """
    counts = stops - starts
    requests = np.arange(len(counts), dtype=np.int32)
    owners = requests.repeat(counts)
    ends = counts.cumsum(dtype=np.int32)
    nodes = np.arange(len(owners), dtype=np.int32) - (ends - counts)[owners]
    positions = starts[owners] + nodes
    tail_starts, page_tables = _committed_blocks(rings, starts)
    tails = rings.starts + tail_starts
    tail_lanes = np.arange((stops - tails).max(), dtype=np.int32)
    return StepBatch(
        tokens=tokens,
        positions=positions - rings.starts[owners],
        slots=rings.slots(owners, positions),
        requests=owners,
        follows=nodes > 0,
        page_tables=page_tables,
        tail_starts=tail_starts,
        tail_slots=rings.slots(requests[:, None], tails[:, None] + tail_lanes)[owners],
        logit_rows=ends - 1,
        sources=sources,
        rotary_positions=positions,
    )


class Paths:
    """Where the expanded nodes of growing trees keep their keys, and the batches they make.

    ``roots`` are the positions after the last entries, ``[R]``; see `TreeGrowth` for the nodes.
    """

    def __init__(self, rings: RingPages, roots: Int32, widest: int) -> None:
        self._rings = rings
        self._roots = roots
        self._widest = widest
        self._requests = np.arange(len(roots), dtype=np.int32)[:, None]
        self._tail_starts, self._page_tables = _committed_blocks(rings, roots)
        # Slots from the root's child on, by request and place among the nodes expanded last.
        self._paths = np.zeros((len(roots), 1, 0), dtype=np.int32)

    def extend(self, tokens: Int32, above: Int32, expanded: NDArray[np.bool_]) -> StepBatch:
        """The batch of one more level, whose nodes hold ``tokens``.

        ``above`` are the parents' places among the nodes expanded last; all are ``[R, widest]``.
        """
        depth = 1 + self._paths.shape[2]
        paths = np.take_along_axis(self._paths, above[:, :, None], axis=1)
        entries = (depth - 1) * self._widest + np.arange(self._widest, dtype=np.int32)
        roots = self._roots[:, None]
        slots = self._rings.slots(self._requests, roots + entries)
        parents = paths[:, :, -1] if depth > 1 else self._rings.slots(self._requests, roots - 1)
        sources = np.broadcast_to(parents, slots.shape)[expanded]
        self._paths = np.concatenate([paths, slots[:, :, None]], axis=2)

        owners = expanded.nonzero()[0].astype(np.int32)
        behind: Int32 = self._roots % PAGE_SIZE  # entries in the block that is not full
        lanes = np.arange(int(behind.max()) + depth, dtype=np.int32)
        tails = self._rings.slots(self._requests, roots - behind[:, None] + lanes)
        tail_slots = tails[owners]
        own = (behind[owners][:, None] + np.arange(depth)).astype(np.int32)
        np.put_along_axis(tail_slots, own, self._paths[expanded], axis=1)
        rotary_positions = self._roots[owners] - 1 + np.int32(depth)
        return StepBatch(
            tokens=tokens[expanded],
            positions=rotary_positions - self._rings.starts[owners],
            slots=slots[expanded],
            requests=owners,
            follows=np.zeros(len(owners), dtype=np.bool_),
            page_tables=self._page_tables,
            tail_starts=self._tail_starts,
            tail_slots=tail_slots,
            logit_rows=np.arange(len(owners), dtype=np.int32),
            sources=sources,
            rotary_positions=rotary_positions,
        )


def _committed_blocks(rings: RingPages, ends: Int32) -> tuple[Int32, Int32]:
    """Of the blocks that are whole before ``ends`` ``[R]``: where they end, counted from the rings'
    starts, and their pages ``[R, P]``, then zeros."""
    whole = (ends - rings.starts) // PAGE_SIZE
    columns = np.arange(max(1, whole.max()), dtype=np.int32)
    blocks = rings.starts[:, None] // PAGE_SIZE + columns
    pages = rings.first_pages[:, None] + blocks % rings.pages
    return whole * PAGE_SIZE, pages * (columns < whole[:, None])
