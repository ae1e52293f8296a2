"""Gradients of one step, computed in parts that stay in the cache.

Each thread computes whole parts with single-threaded operations. Threads then wait for each other
once a step instead of twice an operation, so another process on the machine costs no more than the
time it takes; and the sums, made in the order of the parts, are the same for any number of threads.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from slipstream.speculation.eagle3.config import Eagle3Config
from slipstream.training.batch import Batch
from slipstream.training.corpus import Conversation
from slipstream.training.head import Columns
from slipstream.training.network import Folded, Network
from slipstream.training.objective import Objective, Score
from slipstream.training.target import TargetTensors

PART_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What of the work is done: shares of rows, and columns of the softmax."""

    levels: int
    prompt_share: float
    deep_share: float
    columns: int


class GradientWorkers:
    """Adds up the gradients of the mean loss of a row."""

    def __init__(
        self,
        config: Eagle3Config,
        target: TargetTensors,
        objective: Objective,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._config, self._target = config, target
        self._objective = objective
        self._pool = pool

    def add(
        self,
        weights: Mapping[str, Tensor],
        conversations: Sequence[Conversation],
        sampling: Sampling,
        seed: tuple[int, ...],
    ) -> Score:
        """Add to the weights' gradients those of a step; ``seed`` fixes all that is drawn."""
        folded = Folded.of(weights)
        leaves = Folded(*(matrix.detach().requires_grad_() for matrix in folded))
        network = Network(self._config, self._target, leaves)

        def work(numbered: tuple[int, list[Conversation]]) -> tuple[list[Tensor], Score, int]:
            index, part = numbered
            rng = np.random.default_rng((*seed, index))
            return self._part(network, part, sampling, rng)

        total = Score(sampling.levels)
        sums = [torch.zeros_like(leaf) for leaf in leaves]
        rows = 0
        for gradients, score, part_rows in self._pool.map(
            work, enumerate(group(conversations, PART_TOKENS))
        ):
            for so_far, gradient in zip(sums, gradients, strict=True):
                so_far += gradient
            total.merge(score)
            rows += part_rows
        torch.autograd.backward(folded, [so_far.div_(rows) for so_far in sums])
        return total

    def _part(
        self,
        network: Network,
        conversations: Sequence[Conversation],
        sampling: Sampling,
        rng: np.random.Generator,
    ) -> tuple[list[Tensor], Score, int]:
        batch = Batch.of(
            conversations,
            prompt_share=sampling.prompt_share,
            deep_share=sampling.deep_share,
            rng=rng,
        )
        score = Score(sampling.levels)
        half = sampling.columns // 2
        with training_precision():
            targets = self._objective.targets(batch, sampling.levels)
            columns = Columns.draw(targets.probabilities, half, half, rng)
            loss = self._objective(network, batch, targets, columns, score)
        return list(torch.autograd.grad(loss, network.folded)), score, len(batch.first)


def group(conversations: Sequence[Conversation], tokens: int) -> Iterator[list[Conversation]]:
    """Successive conversations, so many that they have about so many ``tokens``."""
    chosen: list[Conversation] = []
    for conversation in conversations:
        chosen.append(conversation)
        if sum(len(c.tokens) for c in chosen) >= tokens:
            yield chosen
            chosen = []
    if chosen:
        yield chosen


def training_precision() -> torch.autocast:
    """Products in bfloat16 where the CPU has instructions for them, else in float32."""
    fast = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return torch.autocast("cpu", torch.bfloat16, enabled=fast)
