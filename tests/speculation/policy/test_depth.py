"""How deep and how wide to draft, for whom."""

import numpy as np
from numpy.typing import NDArray

from slipstream.speculation.policy.cost_model import CostModel, Machine
from slipstream.speculation.policy.depth import Choice, Demand, choose
from slipstream.speculation.policy.outlook import LEVELS, WIDTH

MACHINE = Machine(target_bytes=1e8, target_operations=1e7, drafter_bytes=5e6, seconds_per_pass=1e-4)


def outlook(*best: float) -> NDArray[np.float64]:
    """Each request's best node of level n has chance ``best ** n``."""
    levels = np.array(best)[:, None] ** np.arange(1, LEVELS + 1)
    return levels[:, :, None] * np.array([1.0, 0.2, 0.1, 0.05])[:WIDTH]


def chosen(
    *best: float,
    machine: Machine = MACHINE,
    behind: float = 0.0,
    other_rows: int = 0,
    reached: float = 1.0,
) -> Choice:
    requests = len(best)
    demand = Demand(
        outlook=outlook(*best),
        reached=np.full(LEVELS, reached),
        context=np.zeros(requests),
        catching_up=np.full(requests, behind),
        first_rows=2,
        other_rows=other_rows,
        most_nodes=1000,
    )
    costs = CostModel(machine)
    return choose(demand, costs, requests / costs.plain(requests, 0.0))


def test_likelier_text_is_drafted_deeper() -> None:
    levels = [chosen(chance).levels for chance in (0.02, 0.4, 0.9)]
    assert levels[0] == 0
    assert 1 <= levels[1] < levels[2]


def test_who_drafts_badly_does_not_draft() -> None:
    choice = chosen(0.8, 0.01, 0.8)
    assert choice.levels
    assert choice.chosen.tolist() == [True, False, True]


def test_where_every_row_costs_nothing_is_drafted() -> None:
    costly = Machine(target_bytes=1e6, target_operations=1e9, drafter_bytes=5e6)
    choice = chosen(*[0.7] * 50, machine=costly)
    assert (choice.levels, choice.nodes, choice.gain) == (0, 0, 0.0)
    assert choice.emitted == 50


def test_nobody_catches_up_at_any_price() -> None:
    assert chosen(0.7).levels
    assert chosen(0.7, behind=1.0).levels == 0


def test_a_choice_says_what_it_expects() -> None:
    choice = chosen(0.8)
    assert 1.5 < choice.emitted < 9.0
    assert choice.seconds > CostModel(MACHINE).plain(1, 0.0)
    assert choice.gain > 0


def test_unlikely_paths_are_followed_where_that_is_cheap() -> None:
    cheap, dear = (
        chosen(0.8, machine=Machine(target_operations=operations, drafter_bytes=1e6)).followed
        for operations in (1e7, 6e8)
    )
    assert 0 < cheap < dear < 1


def test_levels_that_are_seldom_reached_cost_less() -> None:
    dear = Machine(drafter_bytes=3e7, target_operations=1e7)
    always, seldom = (chosen(0.75, machine=dear, reached=share) for share in (1.0, 0.3))
    assert seldom.levels > always.levels
