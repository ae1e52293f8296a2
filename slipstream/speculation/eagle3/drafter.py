"""Drafting with an EAGLE-3 head: all requests together, one pass of the drafter per level."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels import SamplingRows
from slipstream.kernels.growth import RingPages, TreeGrowth
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.speculation.drafter import NO_DRAFT, Draft, DraftTask
from slipstream.speculation.eagle3.network import DrafterNetwork
from slipstream.speculation.eagle3.ring_rows import lay_chains
from slipstream.speculation.eagle3.rings import Ring, Rings

MOST_LEVELS = 16
MOST_TOPK = 16
WINDOW = 512  # positions that a ring remembers
MOST_ROWS = 512  # of one pass that catches up
MOST_WHOLE_ROWS = 12  # beyond the last ones; more only enter their keys and values

Int32 = NDArray[np.int32]


def new_rings(requests: int) -> Rings:
    """Rings for so many requests, with room for the largest tree."""
    return Rings(requests, WINDOW, (MOST_LEVELS - 1) * MOST_TOPK)


class _Stretch(NamedTuple):
    """Positions ``start .. stop - 1`` of a request, to be entered into its ring.

    Entry t pairs the feature of t with the token at t + 1.
    """

    task: DraftTask
    ring: Ring
    start: int
    stop: int


class Eagle3Drafter:
    """Keeps a ring for each request and grows trees with the network. See `Drafter`."""

    def __init__(self, network: DrafterNetwork, rings: Rings) -> None:
        self._network = network
        self._rings = rings

    def draft(self, tasks: Sequence[DraftTask]) -> list[Draft]:
        """One tree per task; none where the root is not the only token still to be computed, nor
        where all rings are taken by the tasks before."""
        drafts = [NO_DRAFT] * len(tasks)
        ready = [index for index, task in enumerate(tasks) if _is_ready(task)][: self._rings.count]
        if ready:
            stretches = self._catch_up([tasks[index] for index in ready])
            grown = self._network.grow(_growth(stretches))
            for index, stretch, tree in zip(ready, stretches, grown, strict=True):
                stretch.ring.end = stretch.stop
                tokens, parents, scores = tree
                drafts[index] = Draft(tokens, parents, scores.tolist())
        return drafts

    def lag(self, request_id: int, committed: int) -> int:
        return self._rings.lag(request_id, committed)

    def forget(self, request_id: int) -> None:
        self._rings.release(request_id)

    def _catch_up(self, tasks: list[DraftTask]) -> list[_Stretch]:
        """What remains for the first level after all but that was entered, if that is much.

        The last position before a root is always computed again: its logits are needed.
        """
        rings = [self._rings.of(task.request_id) for task in tasks]
        missing = 0
        for task, ring in zip(tasks, rings, strict=True):
            ring.forget_before(pages_for(task.committed + 1) - self._rings.window_blocks)
            missing += task.committed - ring.end
        if missing > MOST_WHOLE_ROWS + len(tasks):
            for stretches in _passes(tasks, rings):
                tokens, sources = _entries(stretches)
                first_pages, ring_starts, starts, stops = _int32(
                    [(s.ring.first_page, s.ring.start, s.start, s.stop) for s in stretches]
                )
                pages = RingPages(first_pages, rings[0].pages, ring_starts)
                self._network.enter(lay_chains(pages, starts, stops, tokens, sources))
                for stretch in stretches:
                    stretch.ring.end = stretch.stop
        return [
            _Stretch(task, ring, min(ring.end, task.committed - 1), task.committed)
            for task, ring in zip(tasks, rings, strict=True)
        ]


def _passes(tasks: list[DraftTask], rings: list[Ring]) -> Iterator[list[_Stretch]]:
    """What each ring lacks but the last position, in passes of MOST_ROWS rows at most."""
    stretches: list[_Stretch] = []
    room = MOST_ROWS
    for task, ring in zip(tasks, rings, strict=True):
        start, end = ring.end, task.committed - 1
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


def _growth(stretches: list[_Stretch]) -> TreeGrowth:
    """The trees below the roots behind these stretches."""
    # Few arrays, since making one costs more than what is in it.
    whole = _int32([_whole_numbers(stretch) for stretch in stretches])
    levels, topk, nodes, first_pages, ring_starts, starts, stops = whole
    least = [stretch.task.shape.least_score for stretch in stretches]
    tokens, sources = _entries(stretches)
    return TreeGrowth(
        tokens=tokens,
        sources=sources,
        rings=RingPages(first_pages, stretches[0].ring.pages, ring_starts),
        entered=starts,
        roots=stops,
        levels=levels,
        topk=topk,
        nodes=nodes,
        least_scores=np.array(least, dtype=np.float32),
        sampling=_sampling(stretches),
    )


def _sampling(stretches: list[_Stretch]) -> SamplingRows:
    """How the roots' children are drawn."""
    rules = [stretch.task.sampling for stretch in stretches]
    if not any(rule.temperature for rule in rules):
        return SamplingRows.greedy(len(rules))
    numbers = [(rule.temperature, rule.top_p, rule.min_p) for rule in rules]
    temperature, top_p, min_p = np.array(list(zip(*numbers, strict=True)), dtype=np.float64)
    seed = np.array([rule.seed for rule in rules], dtype=np.uint64)
    top_k, position = _int32([(s.task.sampling.top_k, s.stop + 1) for s in stretches])
    return SamplingRows(temperature, top_p, min_p, top_k, seed, position)


def _whole_numbers(stretch: _Stretch) -> tuple[int, ...]:
    """What `_growth` puts in one array."""
    shape, ring = stretch.task.shape, stretch.ring
    return (
        min(shape.num_steps, MOST_LEVELS),
        min(shape.topk, MOST_TOPK),
        shape.num_draft_tokens - 1,
        ring.first_page,
        ring.start,
        stretch.start,
        stretch.stop,
    )


def _entries(stretches: list[_Stretch]) -> tuple[Int32, Int32]:
    """Of all positions: the tokens, and the slots of the target's features."""
    tokens = [stretch.task.tokens[stretch.start + 1 : stretch.stop + 1] for stretch in stretches]
    slots = [
        stretch.task.pages[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE
        for stretch in stretches
        for position in range(stretch.start, stretch.stop)
    ]
    return np.concatenate(tokens), np.array(slots, dtype=np.int32)


def _int32(rows: Sequence[tuple[int, ...]]) -> Int32:
    """The columns of ``rows``, each contiguous."""
    return np.array(list(zip(*rows, strict=True)), dtype=np.int32)


def _is_ready(task: DraftTask) -> bool:
    """The features of all tokens before the root are there, and there is one at least."""
    return 0 < task.committed == len(task.tokens) - 1
