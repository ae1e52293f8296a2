"""How deep and how wide to draft, for whom, before anything is drafted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slipstream.speculation.policy.cost_model import CostModel, DraftWork
from slipstream.speculation.policy.outlook import LEVELS, WIDTH

Float64 = NDArray[np.float64]

OPTIONS = [(levels, width) for levels in (1, 2, 3, 4, 6, LEVELS) for width in (1, 2, WIDTH)]
BEST_CHILD = 0.8  # of a path's probability, that its best continuation may have
MANY_REQUESTS = 32  # from which on deep trees cannot pay, so that few options are weighed
_WITHIN = np.array(
    [
        [level < levels and rank < width for level in range(LEVELS) for rank in range(WIDTH)]
        for levels, width in OPTIONS
    ]
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to draft, for the requests in ``chosen`` (bool ``[R]``); ``levels`` 0 is nothing.

    ``gain`` is what that adds to plain decoding, in tokens, the time it takes paid for. A path that
    is less likely than ``followed`` is not worth another level.
    """

    levels: int
    width: int
    chosen: NDArray[np.bool_]
    nodes: int
    emitted: float  # tokens expected of the step
    seconds: float  # expected of drafting and the step, were there nothing but these requests
    gain: float
    followed: float = 0.0


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests that could draft, and what they share the step with.

    ``outlook`` ``[R, LEVELS, WIDTH]``; ``reached`` ``[LEVELS]``, the share of drafts that get so
    deep; ``context`` and ``catching_up`` ``[R]``: tokens committed, and seconds that the drafter
    needs to catch up, as far as this step has to pay for them.
    """

    outlook: Float64
    reached: Float64
    context: Float64
    catching_up: Float64
    first_rows: int  # of the drafter's first level, per request about
    other_rows: int
    most_nodes: int


def choose(demand: Demand, costs: CostModel, price: float) -> Choice:
    """The best option at a ``price`` of so many tokens for a second.

    Every option keeps the nodes that are worth their rows: all prefixes of the likeliest nodes are
    weighed, since costs are a staircase.
    """
    requests = len(demand.context)
    rows = requests + demand.other_rows
    worth = demand.outlook - price * costs.attention * demand.context[:, None, None]
    chosen = _worthwhile(demand, worth, costs, price, rows)
    alone = costs.plain(requests, float(demand.context.sum()))
    plain = Choice(0, 0, chosen & False, 0, requests, alone, 0.0)
    drafting = int(chosen.sum())
    if not (drafting and demand.most_nodes):
        return plain
    most = min(demand.most_nodes, drafting * LEVELS * WIDTH)
    options = range(len(OPTIONS) if requests < MANY_REQUESTS else 6)
    nodes = np.where(_WITHIN[options, None, :], worth[chosen].reshape(drafting, -1), -np.inf)
    nodes = -np.sort(-nodes.reshape(len(options), -1), axis=1)[:, :most]
    seconds = costs.seconds_up_to(rows + nodes.shape[1])
    gains = np.cumsum(nodes, axis=1) - price * (seconds[rows + 1 :] - seconds[rows])
    counts = gains.argmax(axis=1)
    catching_up = float(demand.catching_up[chosen].sum())
    drafts = [_seconds(OPTIONS[option], drafting, demand, costs) for option in options]
    totals = gains[range(len(options)), counts] - price * (np.array(drafts) + catching_up)
    best = int(totals.argmax())
    if not totals[best] > 0:
        return plain
    count = int(counts[best]) + 1
    levels, width = OPTIONS[best]
    # The nodes' attention is in their worth.
    emitted = requests + float(nodes[best, :count].sum())
    own = costs.seconds_up_to(requests + count)
    verifying = float(own[requests + count] - own[requests])
    taken = alone + verifying + drafts[best] + catching_up
    row = float(seconds[rows + count] - seconds[rows]) / count
    level = costs.drafter.at(drafting * width) / drafting
    followed = price * (row + level) / BEST_CHILD
    return Choice(levels, width, chosen, count, emitted, taken, float(totals[best]), followed)


def _worthwhile(
    demand: Demand, worth: Float64, costs: CostModel, price: float, rows: int
) -> NDArray[np.bool_]:
    """Requests that would pay for their own row of the first level and one node; together they pay
    for the rest or nobody drafts."""
    requests = len(demand.context)
    target = costs.seconds_up_to(rows + requests)
    drafter = costs.drafter.up_to(2 * requests)
    rate = (target[-1] - target[rows]) / requests + (drafter[-1] - drafter[requests]) / requests
    worthwhile: NDArray[np.bool_] = worth[:, 0, 0] > price * (rate + demand.catching_up)
    return worthwhile


def _seconds(option: tuple[int, int], drafting: int, demand: Demand, costs: CostModel) -> float:
    levels, width = option
    seconds = costs.draft(DraftWork(drafting * demand.first_rows))
    for reached in demand.reached[1:levels].tolist():
        drafted = 1.0 - (1.0 - reached) ** drafting  # how often any request gets so deep
        if drafted > 0.01:
            rows = drafting * width * reached / drafted
            seconds += drafted * costs.drafter.at(max(round(rows), 1))
    return seconds
