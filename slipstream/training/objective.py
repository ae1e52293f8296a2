"""What training minimises, and how well a drafter guesses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from slipstream.training.batch import Batch
from slipstream.training.head import Columns, SoftCrossEntropy
from slipstream.training.network import Network
from slipstream.training.target import TargetTensors

WITHIN = 4  # guesses that count as near


@dataclass(slots=True)
class Score:
    """Sums over rows, per level: how often the target's favourite was the best guess, was among
    the best four, and was the best guess at all levels so far."""

    levels: int
    rows: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    near: list[float] = field(default_factory=list)
    chain: list[float] = field(default_factory=list)
    loss: float = 0.0
    weight: float = 0.0

    def __post_init__(self) -> None:
        for sums in (self.rows, self.first, self.near, self.chain):
            sums.extend([0.0] * (self.levels - len(sums)))

    def merge(self, other: "Score") -> None:
        """Add another score's sums."""
        for name in ("rows", "first", "near", "chain"):
            mine, its = getattr(self, name), getattr(other, name)
            mine[:] = [a + b for a, b in zip(mine, its, strict=True)]
        self.loss += other.loss
        self.weight += other.weight

    def scale(self, factor: float) -> None:
        """Forget: sums so far count for less."""
        for sums in (self.rows, self.first, self.near, self.chain):
            sums[:] = [value * factor for value in sums]
        self.loss *= factor
        self.weight *= factor

    def add(self, level: int, rows: Tensor, ranks: Tensor, counted: Tensor, right: Tensor) -> None:
        """Add the ``rows`` of a level, given how many guesses came before the target's favourite,
        in which rows that counts, and which rows were right so far."""
        rows_at, hits = level - 1, rows & counted
        self.rows[rows_at] += int(rows.sum())
        self.first[rows_at] += int((hits & (ranks == 0)).sum())
        self.near[rows_at] += int((hits & (ranks < WITHIN)).sum())
        self.chain[rows_at] += int((rows & right).sum())

    @property
    def mean_loss(self) -> float:
        """Loss of a row at a level."""
        return self.loss / self.weight if self.weight else math.nan

    @property
    def top1(self) -> tuple[float, ...]:
        """Share of rows whose best guess is the target's favourite, by level."""
        return self._shares(self.first)

    @property
    def top4(self) -> tuple[float, ...]:
        """The same for the best four guesses."""
        return self._shares(self.near)

    @property
    def accepted(self) -> tuple[float, ...]:
        """Share of rows whose best guesses are right at this and all levels before."""
        return self._shares(self.chain)

    def _shares(self, sums: Sequence[float]) -> tuple[float, ...]:
        return tuple(s / max(rows, 1.0) for s, rows in zip(sums, self.rows, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """Distributions of the target over the draft vocabulary, ``[M, D]``, and for each token of a
    batch which of them is its own, int64 ``[N]``."""

    probabilities: Tensor
    of_token: Tensor


class Objective:
    """Cross entropy with the target's distribution over the draft vocabulary, at every level.

    Rows whose token the drafter cannot guess at all have no loss, but count as wrong guesses.
    """

    def __init__(self, target: TargetTensors, vocabulary: Tensor, level_decay: float) -> None:
        self._target = target
        self._vocabulary = vocabulary
        self._known = torch.zeros(len(target.embedding), dtype=torch.bool)
        self._known[vocabulary] = True
        self._level_decay = level_decay

    @torch.no_grad()
    def targets(self, batch: Batch, levels: int) -> Targets:
        """The target's distributions that the rows of a batch are compared with."""
        wanted = torch.zeros(len(batch.tokens), dtype=torch.bool)
        for level in range(1, levels + 1):
            wanted[batch.rows(level).places(level)] = True
        residuals = batch.residuals[wanted]
        probabilities = self._target.probabilities(residuals, self._vocabulary)
        return Targets(probabilities, wanted.cumsum(0) - 1)

    def __call__(
        self, network: Network, batch: Batch, targets: Targets, columns: Columns, score: Score
    ) -> Tensor:
        """The sum of a batch's losses over rows and levels, the first level having weight 1.

        Adds the rows from which answers are drafted to ``score``.
        """
        weight = network.folded.head.index_select(0, columns.ids)
        probabilities = columns.of(targets.probabilities)
        total = torch.zeros(())
        right = batch.first.drafted
        for level, x in enumerate(network.levels(batch, score.levels), start=1):
            rows = batch.rows(level)
            counted = self._counted(batch, level)
            weights = counted * self._level_decay ** (level - 1)
            ranks = torch.empty(len(x), dtype=torch.int64)
            arguments: tuple[Any, ...] = (
                network.normalized(x),
                weight,
                columns.bias,
                probabilities,
                targets.of_token[rows.places(level)],
                weights,
                ranks,
            )
            total = total + SoftCrossEntropy.apply(*arguments)  # type: ignore[no-untyped-call]
            score.weight += float(weights.sum())
            if level == 2:
                right = right[batch.deep_of_first]
            right = right & counted & (ranks == 0)
            score.add(level, rows.drafted & rows.inside(level), ranks, counted, right)
        score.loss += float(total.detach())
        return total

    def _counted(self, batch: Batch, level: int) -> Tensor:
        """Which rows have a target at this level that the drafter can guess, bool ``[R]``."""
        rows = batch.rows(level)
        following = torch.minimum(rows.at + level + 1, rows.last)
        # Nobody knows what came after the last token.
        guessable = self._known[batch.tokens[following]] | (rows.at + level == rows.last)
        return rows.inside(level) & guessable
