"""How well a trained drafter guesses on conversations that it has not seen."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from slipstream.speculation.eagle3.config import Eagle3Config
from slipstream.training.batch import Batch
from slipstream.training.corpus import Conversation
from slipstream.training.gradients import PART_TOKENS, group, training_precision
from slipstream.training.head import Columns
from slipstream.training.network import Folded, Network
from slipstream.training.objective import Objective, Score
from slipstream.training.target import TargetTensors


@torch.no_grad()
def validate(
    conversations: Sequence[Conversation],
    target: TargetTensors,
    config: Eagle3Config,
    vocabulary: Tensor,
    weights: Mapping[str, Tensor],
    levels: int = 4,
) -> Score:
    """Guesses of the answers' tokens over the whole draft vocabulary; every level is given the
    tokens that truly came before."""
    network = Network(config, target, Folded.of(weights))
    objective = Objective(target, vocabulary, level_decay=1.0)
    score = Score(levels)
    usable = [c for c in conversations if len(c.tokens) > max(c.prompt_length, 1)]
    for chosen in group(usable, PART_TOKENS):
        batch = Batch.of(chosen, rng=np.random.default_rng(0))
        with training_precision():
            targets = objective.targets(batch, levels)
            objective(network, batch, targets, Columns.all(len(vocabulary)), score)
    return score
