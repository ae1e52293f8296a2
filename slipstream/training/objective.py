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

    def scale(self, factor: float) -> None:
        """Forget: sums so far count for less."""
        for sums in (self.rows, self.first, self.near, self.chain):
            sums[:] = [value * factor for value in sums]
        self.loss *= factor
        self.weight *= factor

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
    def targets(self, batch: Batch) -> Tensor:
        """The target's distribution at every token of a batch, ``[N, draft vocabulary]``."""
        return self._target.probabilities(batch.residuals, self._vocabulary)

    def __call__(
        self, network: Network, batch: Batch, targets: Tensor, columns: Columns, score: Score
    ) -> Tensor:
        """The sum of a batch's losses over rows and levels, the first level having weight 1.

        Adds the rows from which answers are drafted to ``score``.
        """
        weight = network.folded.head[columns.ids]
        targets = columns.of(targets)
        total = torch.zeros(())
        right = batch.drafted
        for level, x in enumerate(network.levels(batch, score.levels), start=1):
            counted = batch.counted(level, self._known)
            weights = counted * self._level_decay ** (level - 1)
            ranks = torch.empty(len(x), dtype=torch.int64)
            arguments: tuple[Any, ...] = (
                network.normalized(x),
                weight,
                columns.bias,
                targets,
                batch.places(level),
                weights,
                ranks,
            )
            total = total + SoftCrossEntropy.apply(*arguments)  # type: ignore[no-untyped-call]
            rows = batch.drafted & batch.inside(level)
            right = right & counted & (ranks == 0)
            score.rows[level - 1] += int(rows.sum())
            score.first[level - 1] += int((rows & counted & (ranks == 0)).sum())
            score.near[level - 1] += int((rows & counted & (ranks < WITHIN)).sum())
            score.chain[level - 1] += int(right.sum())
            score.weight += float(weights.sum())
        score.loss += float(total.detach())
        return total
