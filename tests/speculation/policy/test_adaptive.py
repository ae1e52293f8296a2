"""The policy object itself: what it asks for, what it keeps, and that off is off."""

from math import inf, log

import pytest

from slipstream.speculation.drafter import NO_DRAFT, Draft
from slipstream.speculation.policy.adaptive import AdaptivePolicy
from slipstream.speculation.policy.cost_model import CostModel, Machine
from slipstream.speculation.policy.step import Speculating, Taken

CHEAP_ROWS = Machine(target_operations=1e6, drafter_bytes=4e6, drafter_operations=1e6)
COSTLY_ROWS = Machine(target_bytes=1e6, target_operations=2e9, drafter_bytes=4e6)


def policy(machine: Machine = CHEAP_ROWS, most_nodes: int = 1000) -> AdaptivePolicy:
    return AdaptivePolicy(CostModel(machine), most_nodes)


def request(id: int, remaining: int = 100, lag: int = 1) -> Speculating:
    return Speculating(id, 50, remaining, False, lag)


def chain(*chances: float) -> Draft:
    """Each chance that of a path."""
    size = len(chances)
    return Draft(list(range(size)), list(range(size)), [log(chance) for chance in chances])


def test_without_requests_there_is_nothing_to_do() -> None:
    adaptive = policy()
    assert adaptive.plan([], 5) == []
    assert adaptive.prune([], 5) == []
    adaptive.observe([], Taken(5, 100.0, 0.0, 0.01))


def test_cheap_rows_are_used() -> None:
    adaptive = policy()
    shapes = adaptive.plan([request(0), request(1)], 0)
    assert all(shape is not None and shape.num_steps >= 1 for shape in shapes)
    kept = adaptive.prune([chain(0.9, 0.8, 0.001), chain(0.7)], 0)
    assert [len(draft.tokens) for draft in kept] == [2, 1]


@pytest.mark.parametrize("remaining", [1, 2, 3])
def test_never_beyond_the_last_token(remaining: int) -> None:
    (shape,) = policy().plan([request(0, remaining)], 0)
    assert (shape.num_steps if shape else 0) <= remaining - 1


def test_never_more_nodes_than_a_step_can_have() -> None:
    adaptive = policy(most_nodes=3)
    adaptive.plan([request(0), request(1)], 0)
    kept = adaptive.prune([chain(0.9, 0.9, 0.9), chain(0.9, 0.9, 0.9)], 0)
    assert sum(len(draft.tokens) for draft in kept) <= 3


@pytest.mark.parametrize("others", [998, 1000, 2000])
def test_nodes_that_others_have_leave_less_room(others: int) -> None:
    adaptive = policy()
    adaptive.plan([request(0), request(1)], others, other_nodes=others)
    kept = adaptive.prune([chain(0.9, 0.9, 0.9), chain(0.9, 0.9, 0.9)], others)
    assert sum(len(draft.tokens) for draft in kept) <= max(1000 - others, 0)


def test_off_is_off() -> None:
    """Where rows are dear nothing is drafted but a rare probe, whose nodes are not verified."""
    adaptive = policy(COSTLY_ROWS)
    requests = [request(id) for id in range(40)]
    drafts = 0
    for _ in range(300):
        shapes = adaptive.plan(requests, 0)
        asked = [chain(0.6) if shape else NO_DRAFT for shape in shapes]
        drafts += sum(shape is not None for shape in shapes)
        assert not any(draft.tokens for draft in adaptive.prune(asked, 0))
        seconds = adaptive.costs.drafter.at(2) if any(shapes) else 0.0
        adaptive.observe([[7]] * 40, Taken(40, 2000.0, seconds, 0.4))
    assert 20 <= drafts <= 300  # 120 seconds: at least one in six, at most two a second
    assert adaptive.summary().kept == 0


def test_it_forgets_requests_and_sums_up() -> None:
    adaptive = policy()
    for step in range(50):
        adaptive.plan([request(step)], 0)
        adaptive.prune([chain(0.8)], 0)
        adaptive.observe([[0, 5]], Taken(2, 100.0, 0.001, 0.01))
        adaptive.forget(step)
    adaptive.plan([request(99)], 0)
    summary = adaptive.summary()
    assert summary.emitted == 2 * summary.steps > 0
    assert summary.accepted == summary.steps
    assert not set(range(50)) & set(adaptive._records)


def test_what_the_drafter_is_not_sure_of_ends_where_levels_cost() -> None:
    adaptive = policy(Machine(target_operations=5e7, drafter_bytes=1e7, drafter_operations=1e6))
    least = set()
    for _ in range(40):
        (shape,) = adaptive.plan([request(0)], 0)
        adaptive.prune([chain(0.9, 0.8) if shape else NO_DRAFT], 0)
        adaptive.observe([[0, 1, 5]], Taken(3, 150.0, 0.001, 0.01))
        if shape:
            least.add(shape.least_score)
    assert min(least) == -inf  # sometimes more is drafted, to see what it is worth
    assert any(-4 < score <= 0 for score in least)


def decode(adaptive: AdaptivePolicy, steps: int, requests: int, deciding: float) -> int:
    """Steps of which the policy rested, with drafts that are never right."""
    rested = 0
    asking = [request(id) for id in range(requests)]
    for _ in range(steps):
        drafts = [NO_DRAFT] * requests
        if adaptive.rests(requests):
            rested += 1
            taken = Taken(requests, 50.0 * requests, 0.0, 0.01)
        else:
            shapes = adaptive.plan(asking, 0)
            drafts = [chain(0.01) if shape else NO_DRAFT for shape in shapes]
            taken = Taken(requests, 50.0 * requests, 0.001, 0.01, deciding_seconds=deciding)
        adaptive.prune(drafts, 0)
        adaptive.observe([[99]] * requests, taken)
    return rested


def test_where_nothing_is_won_it_hardly_ever_looks() -> None:
    adaptive = policy(COSTLY_ROWS)
    decode(adaptive, 200, 4, deciding=0.001)
    assert 150 <= decode(adaptive, 200, 4, deciding=0.001) < 200
    assert decode(adaptive, 1, 1, deciding=0.001) == 0  # the load has fallen
