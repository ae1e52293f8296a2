"""Prompt lookup: draft what followed the same words earlier in the same request.

After Saxena, "Prompt Lookup Decoding" (2023), widened from one continuation to a tree of several.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slipstream.speculation.drafter import NO_DRAFT, Draft, DraftTask, Source
from slipstream.speculation.tree import TreeShape

LONGEST_MATCH = 4  # tokens of the suffix that are looked up
MOST_OCCURRENCES = 16  # the latest ones; older text predicts less
WEIGHT_PER_TOKEN = 4.0  # a match longer by one token counts this much more
UNSEEN = 1.0  # weight left for continuations that never occurred


class NgramDrafter:
    """Remembers nothing: a request's text is searched anew each time, which takes microseconds.

    ``shortest_match`` tokens at least must have occurred before; of the matches the longest and
    latest ``most_occurrences`` are followed.
    """

    def __init__(self, shortest_match: int = 1, most_occurrences: int = MOST_OCCURRENCES) -> None:
        self._shortest_match = shortest_match
        self._most_occurrences = most_occurrences

    def draft(self, tasks: Sequence[DraftTask]) -> list[Draft]:
        """One tree per task from the continuations of its latest tokens' earlier occurrences."""
        return [self._draft(task) for task in tasks]

    def lag(self, request_id: int, committed: int) -> int:
        return 0

    def forget(self, request_id: int) -> None:
        pass

    def _draft(self, task: DraftTask) -> Draft:
        occurrences = self._occurrences(task.tokens)
        if not occurrences:
            return NO_DRAFT
        trie = _Node()
        for start, weight in occurrences.items():
            trie.insert(task.tokens[start : start + task.shape.num_steps].tolist(), weight)
        return _best_nodes(trie, task.shape)

    def _occurrences(self, tokens: NDArray[np.int32]) -> dict[int, float]:
        """Where continuations of the suffix's occurrences start, and what each weighs."""
        last = len(tokens) - 1
        ends = np.flatnonzero(tokens[:last] == tokens[last])
        matches = [ends]  # by length, the last place of each
        for back in range(1, min(LONGEST_MATCH, len(tokens))):
            ends = ends[ends >= back]
            ends = ends[tokens[ends - back] == tokens[last - back]]
            if not len(ends):
                break
            matches.append(ends)
        weights: dict[int, float] = {}
        for length in range(len(matches), self._shortest_match - 1, -1):
            for end in matches[length - 1][: -self._most_occurrences - 1 : -1].tolist():
                if len(weights) == self._most_occurrences:
                    return weights
                weights.setdefault(end + 1, WEIGHT_PER_TOKEN**length)
        return weights


@dataclass(slots=True)
class _Node:
    """Continuations merged by shared prefix; ``weight`` is that of all that pass through."""

    weight: float = 0.0
    children: dict[int, "_Node"] = field(default_factory=dict)

    def insert(self, tokens: list[int], weight: float) -> None:
        node = self
        for token in tokens:
            node = node.children.setdefault(token, _Node())
            node.weight += weight


def _best_nodes(trie: _Node, shape: TreeShape) -> Draft:
    """Keep ``topk`` nodes a level by path probability, then the best of all up to the budget.

    The two stages are those of EAGLE-2 (Li et al., 2024). A child is never more probable than its
    parent and stands behind it in the list, so the best nodes form a tree.
    """
    level: list[tuple[float, int, _Node]] = [(1.0, -1, trie)]
    nodes: list[tuple[float, int, int]] = []  # path probability, parent's index in nodes, token
    for _ in range(shape.num_steps):
        candidates = [
            (probability * child.weight / total, parent, token, child)
            for probability, parent, node in level
            if (total := UNSEEN + sum(child.weight for child in node.children.values()))
            for token, child in heapq.nlargest(
                shape.topk, node.children.items(), key=lambda item: item[1].weight
            )
        ]
        level = []
        for probability, parent, token, child in heapq.nlargest(
            shape.topk, candidates, key=lambda candidate: candidate[0]
        ):
            level.append((probability, len(nodes), child))
            nodes.append((probability, parent, token))
    best = heapq.nlargest(shape.num_draft_tokens - 1, range(len(nodes)), key=lambda i: nodes[i][0])
    return _renumber(nodes, best)


def _renumber(nodes: list[tuple[float, int, int]], kept: list[int]) -> Draft:
    """The kept nodes, best first, with parents counted from the root (0)."""
    place = {-1: 0} | {index: number for number, index in enumerate(kept, start=1)}
    return Draft(
        tokens=[nodes[index][2] for index in kept],
        parents=[place[nodes[index][1]] for index in kept],
        scores=[math.log(nodes[index][0]) for index in kept],
        sources=[Source.LOOKUP] * len(kept),
    )
