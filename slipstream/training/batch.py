"""Conversations laid end to end, and which of their rows are trained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from slipstream.training.corpus import FEATURES, Conversation


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """One conversation's part of a batch.

    ``mask`` ``[its rows, tokens seen]`` is 0 where a row sees a token, else minus infinity.
    """

    tokens: slice
    rows: slice
    mask: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """N tokens of some conversations end to end, and R rows to train on.

    A row is the place of a token: it pairs the token's feature with the token after it. ``last``
    is the place of the last token of each row's conversation.
    """

    tokens: Tensor  # int64 [N]
    positions: Tensor  # int64 [N], counted from 0 in each conversation
    features: Tensor  # float32 [N, 3 * hidden]
    residuals: Tensor  # float32 [N, hidden], what leaves the target's last layer
    spans: list[Span]
    rows: Tensor  # int64 [R], ascending
    last: Tensor  # int64 [R]
    drafted: Tensor  # bool [R], whether the row is one from which an answer's token is drafted

    @classmethod
    def of(
        cls,
        conversations: Sequence[Conversation],
        prompt_share: float,
        generator: np.random.Generator,
    ) -> Self:
        """All rows from which an answer's tokens are drafted, and a random share of the others."""
        spans: list[Span] = []
        rows: list[Tensor] = []
        last: list[Tensor] = []
        drafted: list[Tensor] = []
        start = first = 0
        for conversation in conversations:
            length = len(conversation.tokens)
            chosen = generator.random(length) < prompt_share
            chosen[conversation.prompt_length - 1 :] = True
            chosen[length - 1] = False  # no token follows
            own = torch.from_numpy(np.flatnonzero(chosen))
            spans.append(
                Span(
                    slice(start, start + length),
                    slice(first, first + len(own)),
                    _mask(own, length - 1),
                )
            )
            rows.append(own + start)
            last.append(torch.full_like(own, start + length - 1))
            drafted.append(own >= conversation.prompt_length - 1)
            start, first = start + length, first + len(own)
        width = conversations[0].width
        features = torch.empty(start, width)
        for span, conversation in zip(spans, conversations, strict=True):
            bits = torch.from_numpy(conversation.features())
            features[span.tokens] = bits.view(torch.bfloat16)
        hidden = width // FEATURES
        return cls(
            tokens=torch.from_numpy(np.concatenate([c.tokens for c in conversations])).long(),
            positions=torch.cat([torch.arange(len(c.tokens)) for c in conversations]),
            features=features[:, :-hidden],
            residuals=features[:, -hidden:],
            spans=spans,
            rows=torch.cat(rows),
            last=torch.cat(last),
            drafted=torch.cat(drafted),
        )

    def places(self, level: int) -> Tensor:
        """Where the token stands that each row takes in at a level, counted from 1; ``[R]``.

        Beyond its conversation a row takes in the last token; see `inside`.
        """
        return torch.minimum(self.rows + level, self.last)

    def inside(self, level: int) -> Tensor:
        """Which rows' token at this level is still in the conversation, bool ``[R]``."""
        return self.rows + level <= self.last

    def counted(self, level: int, known: Tensor) -> Tensor:
        """Which rows have a target at this level that a drafter can guess, bool ``[R]``;
        ``known`` says of each token whether it is in the draft vocabulary."""
        following = torch.minimum(self.rows + level + 1, self.last)
        guessable = known[self.tokens[following]] | (self.rows + level == self.last)
        return self.inside(level) & guessable


def _mask(rows: Tensor, seen: int) -> Tensor:
    later = torch.arange(seen) > rows[:, None]
    return torch.zeros(later.shape).masked_fill_(later, -torch.inf)
