"""Drafts without a model: trees with scores like a drafter's, and what is right of them."""

from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

from slipstream.simulator.machine import Machine
from slipstream.speculation.drafter import Draft
from slipstream.speculation.tree import TreeShape

Float64 = NDArray[np.float64]

UNDRAFTED = 99  # a token that no draft has


@dataclass(frozen=True, slots=True)
class Guess:
    """A draft, and the ``truth``: what the target emits, as far as the draft can matter to it.

    A node's token is its rank among its siblings. ``expanded`` is how many nodes of each level got
    children.
    """

    draft: Draft
    truth: list[int]
    expanded: tuple[int, ...] = ()


def guess(
    machine: Machine,
    shape: TreeShape,
    log_odds: Float64,
    sampled: NDArray[np.bool_],
    random: np.random.Generator,
) -> list[Guess]:
    """Trees of one shape for R requests, as EAGLE-2 grows them: the ``topk`` likeliest nodes of a
    level are expanded, as far as they are likely enough, and of all nodes the likeliest are
    proposed.

    ``log_odds`` ``[R]`` is by how much each request's text is easier than the machine says.
    """
    requests, width = len(log_odds), shape.topk
    truths = np.array([machine.truth_of(each) for each in sampled.tolist()])
    scores, parents, tokens, right, expanded = [], [], [], [], []
    beams = np.zeros((requests, 1))
    places = np.full((requests, 1), -1)  # of the beams, among all nodes
    on_path = np.ones((requests, 1), dtype=np.bool_)
    for level in range(shape.num_steps):
        chances = _chances(machine, level, width, log_odds, beams.shape, random)
        reached = (np.cumsum(chances, axis=2) * truths[:, None, None]) > random.random(
            (*beams.shape, 1)
        )
        first = reached.argmax(axis=2)
        hit = np.zeros(chances.shape, dtype=np.bool_)
        np.put_along_axis(hit, first[..., None], reached.any(axis=2)[..., None], axis=2)
        grown = (beams >= shape.least_score) & (beams > -np.inf)
        expanded.append(grown.sum(axis=1))
        hit &= (on_path & grown)[..., None]
        paths = np.where(grown, beams, -np.inf)[..., None] + np.log(chances)
        paths = paths.reshape(requests, -1)
        scores.append(paths)
        parents.append(np.repeat(places, width, axis=1))
        tokens.append(np.tile(np.arange(width), (requests, beams.shape[1])))
        right.append(hit.reshape(requests, -1))
        best = np.argsort(-paths, axis=1, kind="stable")[:, :width]
        beams = np.take_along_axis(paths, best, axis=1)
        on_path = np.take_along_axis(right[-1], best, axis=1)
        places = best + sum(part.shape[1] for part in scores[:-1])
    return _select(
        np.concatenate(scores, axis=1),
        np.concatenate(parents, axis=1),
        np.concatenate(tokens, axis=1),
        np.concatenate(right, axis=1),
        np.stack(expanded[1:], axis=1) if expanded[1:] else np.zeros((requests, 0), dtype=np.intp),
        shape.num_draft_tokens - 1,
    )


def accepted_length(machine: Machine, shape: TreeShape, trees: int = 20000) -> float:
    """Tokens that a step emits with such a tree, on average over requests."""
    random = np.random.default_rng(0)
    requests = trees // 100
    log_odds = np.repeat(random.normal(0.0, machine.between_requests, requests), 100)
    guesses = guess(machine, shape, log_odds, np.zeros(len(log_odds), dtype=np.bool_), random)
    lengths = np.array([len(walk(each.draft, each.truth)) for each in guesses])
    # Requests whose text is harder take more steps.
    return float(1 / (1 / lengths.reshape(requests, 100).mean(axis=1)).mean())


def walk(draft: Draft, truth: list[int]) -> list[int]:
    """What a request emits whose draft is verified."""
    children = {
        (parent, token): place + 1
        for place, (parent, token) in enumerate(zip(draft.parents, draft.tokens, strict=True))
    }
    node, length = 0, 0
    while (node, truth[length]) in children:  # what no draft has ends it
        node = children[node, truth[length]]
        length += 1
    return truth[: length + 1]


def expected_length(draft: Draft, truth: float) -> float:
    """Tokens that a request emits with this draft, on average over what could be right."""
    depths, length = [0], 1.0
    for parent, score in zip(draft.parents, draft.scores, strict=True):
        depths.append(depths[parent] + 1)
        length += exp(score) * truth ** depths[-1]
    return length


def _chances(
    machine: Machine,
    level: int,
    width: int,
    log_odds: Float64,
    shape: tuple[int, ...],
    random: np.random.Generator,
) -> Float64:
    """What the drafter says of the best children of each beam, ``[R, beams, width]``."""
    usual = machine.acceptance[min(level, len(machine.acceptance) - 1)]
    odds = usual / (1 - usual) * np.exp(log_odds)
    mean = np.clip(odds / (1 + odds), 0.01, 0.99)[:, None]
    best = random.beta(mean * machine.certainty, (1 - mean) * machine.certainty, shape)
    best = np.clip(best, 0.02, 0.995)[..., None]
    later = np.array([*machine.runners_up, *[0.01] * width])[: width - 1]
    return np.concatenate([best, np.minimum((1 - best) * later, best)], axis=2)


def _select(
    scores: Float64,
    parents: NDArray[np.intp],
    tokens: NDArray[np.intp],
    right: NDArray[np.bool_],
    expanded: NDArray[np.intp],
    nodes: int,
) -> list[Guess]:
    """The likeliest nodes of each request; a parent is likelier than its children."""
    requests, size = scores.shape
    order = np.argsort(-scores, axis=1, kind="stable")[:, :nodes]
    new = np.zeros((requests, size + 1), dtype=np.intp)  # the root's place is the last
    np.put_along_axis(new, order, np.arange(1, order.shape[1] + 1)[None], axis=1)
    chosen = np.take_along_axis(new, np.take_along_axis(parents, order, axis=1), axis=1)
    chosen_tokens = np.take_along_axis(tokens, order, axis=1)
    kept_scores = np.take_along_axis(scores, order, axis=1)
    sizes = (kept_scores > -np.inf).sum(axis=1)
    truths: list[list[int]] = [[] for _ in range(requests)]
    for request, place in zip(*np.nonzero(right), strict=True):  # level by level
        truths[request].append(int(tokens[request, place]))
    for truth in truths:
        truth.append(UNDRAFTED)
    rows = zip(chosen_tokens.tolist(), chosen.tolist(), kept_scores.tolist(), strict=True)
    drafts = [
        Draft(*(column[:size] for column in row)) for row, size in zip(rows, sizes, strict=True)
    ]
    return [
        Guess(draft, truth, tuple(levels))
        for draft, truth, levels in zip(drafts, truths, expanded.tolist(), strict=True)
    ]
