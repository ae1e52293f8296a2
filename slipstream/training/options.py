"""How a drafter is trained."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What training can be told."""

    levels: int = 4  # depth trained for
    epochs: float = 1.0  # passes over the corpus
    batch_tokens: int = 1024  # of one optimizer step
    learning_rate: float = 5e-3  # at its peak
    prompt_share: float = 0.2  # of the prompts' rows, trained on beside all of the answers'
    deep_share: float = 0.5  # of all these, that goes on beyond the first level
    level_decay: float = 0.8  # of a level's weight in the loss against the level before
    columns: int = 2048  # of the draft vocabulary, that a step's softmax runs over; see `Columns`
    threads: int | None = None  # None: one per core
    seed: int = 0
