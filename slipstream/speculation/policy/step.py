"""A step as the policy sees it: who takes part, what was drafted and kept, and what it took."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import msgspec

from slipstream.speculation.policy.cost_model import DraftWork
from slipstream.speculation.policy.outlook import Record
from slipstream.speculation.policy.weighing import WeighedDraft
from slipstream.speculation.tree import TreeShape

CAUGHT_UP = 8  # positions that count as none to catch up with


class Speculating(msgspec.Struct, frozen=True):
    """A request that may speculate in this step."""

    id: int
    context: int  # tokens committed
    remaining: int  # tokens that it may still emit, at least 1
    sampled: bool  # not greedy
    lag: int  # positions that the drafter has to enter before its first level

    @property
    def behind(self) -> int:
        """Positions to catch up with, beyond what any draft enters anyway."""
        return max(self.lag - CAUGHT_UP, 0)

    def within(self, shape: TreeShape) -> TreeShape | None:
        """The shape, not beyond this request's last token, which needs no draft."""
        levels = self.remaining - 1
        if levels >= shape.num_steps:
            return shape
        return msgspec.structs.replace(shape, num_steps=levels) if levels > 0 else None


class Taken(msgspec.Struct, frozen=True):
    """What a step took. Attention is rows times the tokens of their contexts, context these tokens
    once for each request; a row without logits counts for as much less as it costs."""

    rows: int
    attention: float
    draft_seconds: float  # 0.0 if nothing was drafted
    seconds: float  # of everything else
    lookup_seconds: float = 0.0
    deciding_seconds: float = 0.0  # of this policy and of building trees: plain decoding has none
    context: float = 0.0

    @property
    def whole(self) -> float:
        """All of it."""
        return self.draft_seconds + self.lookup_seconds + self.deciding_seconds + self.seconds


NOTHING_TAKEN = Taken(0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class Step:
    """What is remembered from planning a step to its end, and until it is learned from."""

    requests: Sequence[Speculating] = ()
    most_nodes: int = 0  # that it has room for
    rests: bool = False  # nothing is looked up or planned
    records: list[Record] = field(default_factory=list)
    tries: bool = False  # more than is known to pay
    looked_up: list[bool] = field(default_factory=list)
    shapes: list[TreeShape | None] = field(default_factory=list)
    probed: int | None = None  # place of the request that drafts to find out, not to be verified
    weighed: dict[int, WeighedDraft] = field(default_factory=dict)  # by place
    kept: dict[int, list[int]] = field(default_factory=dict)  # which nodes, by place
    expected_tokens: float = 0.0
    emitted: Sequence[Sequence[int]] = ()
    taken: Taken = NOTHING_TAKEN
    ended: float = 0.0  # busy seconds

    @property
    def nodes(self) -> int:
        """That are verified."""
        return sum(map(len, self.kept.values()))

    def draft_work(self) -> DraftWork:
        """What drafting computed, about."""
        drafting = [
            (request, weighed.expanded(shape))
            for place, (request, shape) in enumerate(zip(self.requests, self.shapes, strict=True))
            if shape is not None and (weighed := self.weighed.get(place))
        ]
        expanded = zip_longest(*(rows for _, rows in drafting), fillvalue=0)
        deeper = tuple(rows for rows in map(sum, expanded) if rows)
        first = sum(min(max(request.lag, 1), CAUGHT_UP) for request, _ in drafting)
        return DraftWork(first, deeper, sum(request.behind for request, _ in drafting))
