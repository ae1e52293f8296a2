"""The draft vocabulary: the tokens that a drafter can guess."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from slipstream.training.corpus import Conversation

PROMPT_WEIGHT = 0.1  # of a prompt's token against an answer's: only answers are drafted


def choose_vocabulary(
    conversations: Iterable[Conversation], size: int, vocab_size: int, always: Sequence[int] = ()
) -> NDArray[np.int32]:
    """The ``size`` most frequent tokens, ascending target ids; those in ``always`` are among them.

    Among equally frequent tokens the lowest ids are taken: vocabularies of byte pairs are ordered
    by how common a pair was.
    """
    counts = np.zeros(vocab_size)
    for conversation in conversations:
        tokens, prompt_length = conversation.tokens, conversation.prompt_length
        np.add.at(counts, tokens[:prompt_length], PROMPT_WEIGHT)
        np.add.at(counts, tokens[prompt_length:], 1.0)
    counts[list(always)] = np.inf
    best = np.argsort(-counts, kind="stable")[:size]
    return np.sort(best).astype(np.int32)


def coverage(conversations: Iterable[Conversation], vocabulary: NDArray[np.int32]) -> float:
    """The share of the answers' tokens that are in the draft vocabulary."""
    answers = [c.tokens[c.prompt_length :] for c in conversations]
    known = sum(int(np.isin(answer, vocabulary).sum()) for answer in answers)
    return known / max(sum(len(answer) for answer in answers), 1)
