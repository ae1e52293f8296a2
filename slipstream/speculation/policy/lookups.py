"""Whose text to look up: what prompt lookup brings against the time that it takes."""

from collections.abc import Sequence

from slipstream.speculation.drafter import Source
from slipstream.speculation.policy.outlook import Record
from slipstream.speculation.policy.weighing import WeighedDraft
from slipstream.speculation.tree import TreeShape

SHAPE = TreeShape(num_steps=8, topk=2, num_draft_tokens=13)
RATE = 0.1  # by which one lookup changes what is expected of its request
USUAL_RATE = 0.02  # and of requests that have just begun
SECONDS = 2e-5  # of one lookup, until it is measured
WEIGHING = 1.0  # what is found takes so much of that time again to be weighed and merged
TRY_EVERY = 16  # steps, for requests whose text repeats nothing


class Lookups:
    """Decides by each request's own record, and by how long lookups take."""

    def __init__(self) -> None:
        self._seconds = SECONDS
        self.usual = 0.5  # tokens that a lookup wins, over all requests

    def wanted(self, records: Sequence[Record], price: float, step: int) -> list[bool]:
        """Which requests to look up, at a ``price`` of so many tokens for a second."""
        least = price * self._seconds * (1 + WEIGHING)
        wanted = []
        for record in records:
            wanted.append(record.found > least or step - record.looked_up_at >= TRY_EVERY)
            if wanted[-1]:
                record.looked_up_at = step
        return wanted

    def took(self, seconds: float, lookups: int) -> None:
        """So many lookups took so long together."""
        if lookups:
            self._seconds += RATE * (seconds / lookups - self._seconds)

    def learn(
        self,
        record: Record,
        weighed: WeighedDraft | None,
        outcomes: Sequence[bool | None],
        kept: Sequence[int],
        row: float,
    ) -> None:
        """What a lookup of this request found, None for nothing, what of it was right, and which
        nodes were verified, of which each cost a ``row``, in tokens: where rows are dear, the best
        finds bring little."""
        won = 0.0
        if weighed is not None:
            sources = weighed.draft.origins
            for node in kept:
                if sources[node] != Source.MODEL:
                    share = 1.0 if sources[node] == Source.LOOKUP else 0.5
                    won += share * (bool(outcomes[node]) - row)
        record.found += RATE * (won - record.found)
        self.usual += USUAL_RATE * (won - self.usual)
