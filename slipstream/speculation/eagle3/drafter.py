"""Drafting with an EAGLE-3 head: all requests together, one pass of the drafter per level."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels import SamplingRows, StepBatch
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.speculation.batch import build_step_batch
from slipstream.speculation.drafter import Draft, DraftTask
from slipstream.speculation.eagle3.candidates import Candidates
from slipstream.speculation.eagle3.network import DrafterNetwork
from slipstream.speculation.eagle3.rings import Ring, Rings
from slipstream.speculation.tree import TokenTree, TreeShape

MOST_LEVELS = 16
MOST_TOPK = 16
WINDOW = 512  # positions that a ring remembers
MOST_ROWS = 512  # of one pass that catches up
MOST_WHOLE_ROWS = 12  # beyond the last ones; more only enter their keys and values

Int32 = NDArray[np.int32]
NOTHING = Draft([], [])


def new_rings(requests: int) -> Rings:
    """Rings for so many requests, with room for the largest tree."""
    return Rings(requests, WINDOW, (MOST_LEVELS - 1) * MOST_TOPK)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Positions ``start .. stop - 1`` of a request, to be entered into its ring.

    It is what a StepBatch stands on; there positions count from the first one in the ring.
    """

    task: DraftTask
    ring: Ring
    start: int
    stop: int

    @property
    def committed(self) -> int:
        return self.start - self.ring.start

    @property
    def pages(self) -> list[int]:
        blocks = range(self.ring.start // PAGE_SIZE, pages_for(self.stop))
        return [self.ring.page(block) for block in blocks]

    @property
    def complete(self) -> bool:
        return self.stop == self.task.committed

    @property
    def tree(self) -> TokenTree:
        """Its tokens: entry t pairs the feature of t with the token at t + 1."""
        return TokenTree.chain(self.task.tokens[self.start + 1 : self.stop + 1])

    def feature_slots(self) -> Int32:
        """Slots of the target's features of these positions."""
        positions = np.arange(self.start, self.stop, dtype=np.int32)
        pages = np.array(self.task.pages, dtype=np.int32)
        return pages[positions // PAGE_SIZE] * PAGE_SIZE + positions % PAGE_SIZE


class Eagle3Drafter:
    """Keeps a ring for each request and grows trees with the network. See `Drafter`."""

    def __init__(self, network: DrafterNetwork, rings: Rings) -> None:
        self._network = network
        self._rings = rings

    def draft(self, tasks: Sequence[DraftTask]) -> list[Draft]:
        """One tree per task; none where the root is not the only token still to be computed, nor
        where all rings are taken by the tasks before."""
        drafts = [NOTHING] * len(tasks)
        ready = [index for index, task in enumerate(tasks) if _is_ready(task)][: self._rings.count]
        if ready:
            grown = self._grow([tasks[index] for index in ready])
            for index, draft in zip(ready, grown, strict=True):
                drafts[index] = draft
        return drafts

    def forget(self, request_id: int) -> None:
        self._rings.release(request_id)

    def _grow(self, tasks: list[DraftTask]) -> list[Draft]:
        rings = [self._rings.of(task.request_id) for task in tasks]
        candidates = Candidates([_within_limits(task.shape) for task in tasks])
        sampling = _Sampling(tasks)
        everyone = np.arange(len(tasks), dtype=np.int32)
        roots = np.array([task.committed for task in tasks], dtype=np.int32)

        logits = self._catch_up(tasks, rings)
        rows = sampling.rows(everyone, roots + 1)
        tokens, logprobs = self._network.rank(logits, rows, candidates.widest)
        root = np.full((len(tasks), 1), -1, dtype=np.int32)
        candidates.add_level(tokens[:, None], logprobs[:, None], root)

        paths = _Paths(rings, roots, candidates.widest)
        first = 0  # place of the level's first candidate
        for depth in range(1, int(candidates.levels.max())):
            nodes, worth = candidates.to_expand(first, depth)
            if not worth.any():
                break
            above = (nodes - first) // candidates.widest
            first = candidates.tokens.shape[1]
            found = np.take_along_axis(candidates.tokens, nodes, axis=1)
            batch = paths.extend(found, above, worth)
            logits = self._network.deeper_level(batch)
            rows = sampling.rows(batch.requests, roots[batch.requests] + 1 + depth)
            tokens = np.full((*nodes.shape, candidates.widest), -1, dtype=np.int32)
            logprobs = np.full(tokens.shape, -np.inf, dtype=np.float32)
            tokens[worth], logprobs[worth] = self._network.rank(logits, rows, candidates.widest)
            candidates.add_level(tokens, logprobs, nodes)
        return candidates.drafts()

    def _catch_up(self, tasks: list[DraftTask], rings: list[Ring]) -> NDArray[np.float32]:
        """Enter what the rings lack of all positions before the roots; logits ``[R, draft
        vocabulary]`` of the last position of each request."""
        for task, ring in zip(tasks, rings, strict=True):
            ring.forget_before(pages_for(task.committed + 1) - self._rings.window_blocks)
        missing = sum(task.committed - ring.end for task, ring in zip(tasks, rings, strict=True))
        if missing > MOST_WHOLE_ROWS + len(tasks):
            for stretches in _stretches(tasks, rings, leave=1):
                self._network.enter(_chain_batch(stretches))
                for stretch in stretches:
                    stretch.ring.end = stretch.stop
        found = []
        for stretches in _stretches(tasks, rings, leave=0):
            # A pass's logits are overwritten by the next one's.
            found.append(self._network.first_level(_chain_batch(stretches)).copy())
            for stretch in stretches:
                stretch.ring.end = stretch.stop
        return found[0] if len(found) == 1 else np.concatenate(found)


def _stretches(tasks: list[DraftTask], rings: list[Ring], leave: int) -> Iterator[list[_Stretch]]:
    """What each ring lacks but the last ``leave`` positions, in passes of MOST_ROWS rows at most.

    The last position is always computed again if it is not left: its logits are needed.
    """
    stretches: list[_Stretch] = []
    room = MOST_ROWS
    for task, ring in zip(tasks, rings, strict=True):
        end = task.committed - leave
        start = min(ring.end, task.committed - 1)
        while start < end:
            stop = min(end, start + room)
            stretches.append(_Stretch(task, ring, start, stop))
            room -= stop - start
            start = stop
            if room == 0:
                yield stretches
                stretches, room = [], MOST_ROWS
    if stretches:
        yield stretches


def _chain_batch(stretches: list[_Stretch]) -> StepBatch:
    trees = [stretch.tree for stretch in stretches]
    batch = build_step_batch(stretches, trees, [stretch.complete for stretch in stretches])
    starts = np.array([stretch.ring.start for stretch in stretches], dtype=np.int32)
    return replace(
        batch,
        sources=np.concatenate([stretch.feature_slots() for stretch in stretches]),
        rotary_positions=batch.positions + starts[batch.requests],
    )


class _Sampling:
    """How each request draws, as arrays over requests."""

    def __init__(self, tasks: Sequence[DraftTask]) -> None:
        rules = [task.sampling for task in tasks]
        self._temperature = np.array([rule.temperature for rule in rules], dtype=np.float64)
        self._top_p = np.array([rule.top_p for rule in rules], dtype=np.float64)
        self._min_p = np.array([rule.min_p for rule in rules], dtype=np.float64)
        self._top_k = np.array([rule.top_k for rule in rules], dtype=np.int32)
        self._seed = np.array([rule.seed for rule in rules], dtype=np.uint64)

    def rows(self, requests: NDArray[np.intp] | Int32, positions: Int32) -> SamplingRows:
        """Rows of these requests, whose tokens would stand at ``positions``."""
        return SamplingRows(
            temperature=self._temperature[requests],
            top_p=self._top_p[requests],
            min_p=self._min_p[requests],
            top_k=self._top_k[requests],
            seed=self._seed[requests],
            position=positions.astype(np.int32),
        )


class _Paths:
    """Where the expanded nodes of growing trees keep their keys, and the batches they make.

    The i-th node that a request expands is stored in its ring as if it were the i-th position
    after the last entry. ``roots`` are the positions after the last entries, ``[R]``.
    """

    def __init__(self, rings: list[Ring], roots: Int32, widest: int) -> None:
        self._roots = roots
        self._widest = widest
        self._starts = np.array([ring.start for ring in rings], dtype=np.int32)
        self._first_pages = np.array([ring.first_page for ring in rings], dtype=np.int32)
        self._pages_each = rings[0].pages
        whole = (roots - self._starts) // PAGE_SIZE  # blocks before the one that is not full
        blocks = self._starts[:, None] // PAGE_SIZE + np.arange(max(1, whole.max()), dtype=np.int32)
        self._page_tables = (self._first_pages[:, None] + blocks % self._pages_each) * (
            np.arange(blocks.shape[1]) < whole[:, None]
        )
        self._tail_starts = whole * PAGE_SIZE
        # Slots from the root's child on, by request and place among the nodes expanded last.
        self._paths = np.zeros((len(rings), 1, 0), dtype=np.int32)

    def extend(self, tokens: Int32, above: Int32, expanded: NDArray[np.bool_]) -> StepBatch:
        """The batch of one more level, whose nodes hold ``tokens``.

        ``above`` are the parents' places among the nodes expanded last; all are ``[R, widest]``.
        """
        depth = 1 + self._paths.shape[2]
        paths = np.take_along_axis(self._paths, above[:, :, None], axis=1)
        entries = (depth - 1) * self._widest + np.arange(self._widest, dtype=np.int32)
        slots = self._slots(self._roots[:, None] + entries)
        parents = paths[:, :, -1] if depth > 1 else self._slots(self._roots[:, None] - 1)
        sources = np.broadcast_to(parents, slots.shape)[expanded]
        self._paths = np.concatenate([paths, slots[:, :, None]], axis=2)

        owners = expanded.nonzero()[0].astype(np.int32)
        behind: Int32 = self._roots % PAGE_SIZE  # entries in the block that is not full
        lanes = np.arange(int(behind.max()) + depth, dtype=np.int32)
        tails = self._slots(self._roots - behind)[:, None] + np.minimum(lanes, PAGE_SIZE - 1)
        tail_slots = tails[owners]
        own = (behind[owners][:, None] + np.arange(depth)).astype(np.int32)
        np.put_along_axis(tail_slots, own, self._paths[expanded], axis=1)
        rotary_positions = self._roots[owners] - 1 + np.int32(depth)
        return StepBatch(
            tokens=tokens[expanded],
            positions=rotary_positions - self._starts[owners],
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

    def _slots(self, positions: Int32) -> Int32:
        """Slots of positions in the rings, one row of ``positions`` for each ring."""
        first_pages = self._first_pages.reshape(-1, *[1] * (positions.ndim - 1))
        pages = first_pages + positions // PAGE_SIZE % self._pages_each
        slots: Int32 = pages * PAGE_SIZE + positions % PAGE_SIZE
        return slots


def _is_ready(task: DraftTask) -> bool:
    """The features of all tokens before the root are there, and there is one at least."""
    return 0 < task.committed == len(task.tokens) - 1


def _within_limits(shape: TreeShape) -> TreeShape:
    return TreeShape(
        min(shape.num_steps, MOST_LEVELS), min(shape.topk, MOST_TOPK), shape.num_draft_tokens
    )
