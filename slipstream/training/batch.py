"""Conversations laid end to end, and which of their rows are trained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
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
class Rows:
    """R rows of a batch. A row is the place of a token, whose feature it pairs with the token
    after it."""

    at: Tensor  # int64 [R], ascending
    last: Tensor  # int64 [R], the place of the last token of the row's conversation
    drafted: Tensor  # bool [R], whether the row is one from which an answer's token is drafted
    spans: list[Span]

    @classmethod
    def of(cls, conversations: Sequence[Conversation], chosen: Sequence[NDArray[np.bool_]]) -> Self:
        """The tokens that are ``chosen`` in each conversation."""
        at, last, drafted, spans = [], [], [], []
        start = count = 0
        for conversation, kept in zip(conversations, chosen, strict=True):
            own = torch.from_numpy(np.flatnonzero(kept))
            end = start + len(kept)
            at.append(own + start)
            last.append(torch.full_like(own, end - 1))
            drafted.append(own >= conversation.prompt_length - 1)
            rows = slice(count, count + len(own))
            spans.append(Span(slice(start, end), rows, _mask(own, len(kept) - 1)))
            start, count = end, rows.stop
        return cls(torch.cat(at), torch.cat(last), torch.cat(drafted), spans)

    def __len__(self) -> int:
        return len(self.at)

    def places(self, level: int) -> Tensor:
        """Where the token stands that each row takes in at a level, counted from 1; ``[R]``.

        Beyond its conversation a row takes in the last token; see `inside`.
        """
        return torch.minimum(self.at + level, self.last)

    def inside(self, level: int) -> Tensor:
        """Which rows' token at this level is still in the conversation, bool ``[R]``."""
        return self.at + level <= self.last


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """N tokens of some conversations end to end, and the rows to train on."""

    tokens: Tensor  # int64 [N]
    positions: Tensor  # int64 [N], counted from 0 in each conversation
    features: Tensor  # float32 [N, 3 * hidden]
    residuals: Tensor  # float32 [N, hidden], what leaves the target's last layer
    first: Rows  # at the first level
    deep: Rows  # at all levels after it, some of those
    deep_of_first: Tensor  # int64 [rows of deep], which of the rows of first they are

    @classmethod
    def of(
        cls,
        conversations: Sequence[Conversation],
        *,
        prompt_share: float = 0.0,
        deep_share: float = 1.0,
        rng: np.random.Generator,
    ) -> Self:
        """All rows from which an answer's tokens are drafted, and a random share of the prompts'.

        Of these a random share goes on to the deeper levels.
        """
        first, deep = [], []
        for conversation in conversations:
            length = len(conversation.tokens)
            chosen = rng.random(length) < prompt_share
            chosen[conversation.prompt_length - 1 :] = True
            chosen[length - 1] = False  # no token follows
            first.append(chosen)
            deep.append(chosen & (rng.random(length) < deep_share))
        width = conversations[0].width
        features = torch.empty(sum(len(c.tokens) for c in conversations), width)
        rows = Rows.of(conversations, first)
        for span, conversation in zip(rows.spans, conversations, strict=True):
            bits = torch.from_numpy(conversation.features())
            features[span.tokens] = bits.view(torch.bfloat16)
        hidden = width // FEATURES
        return cls(
            tokens=torch.from_numpy(np.concatenate([c.tokens for c in conversations])).long(),
            positions=torch.cat([torch.arange(len(c.tokens)) for c in conversations]),
            features=features[:, :-hidden],
            residuals=features[:, -hidden:],
            first=rows,
            deep=Rows.of(conversations, deep),
            deep_of_first=torch.from_numpy(
                np.flatnonzero(np.concatenate(deep)[np.concatenate(first)])
            ),
        )

    def rows(self, level: int) -> Rows:
        """The rows of a level, counted from 1."""
        return self.first if level == 1 else self.deep


def _mask(rows: Tensor, seen: int) -> Tensor:
    later = torch.arange(seen) > rows[:, None]
    return torch.zeros(later.shape).masked_fill_(later, -torch.inf)
