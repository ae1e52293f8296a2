"""The table of costs over rows: it learns, follows, and can be kept."""

import numpy as np
import pytest

from slipstream.speculation.policy.row_costs import KNOTS, RowCosts


def staircase(rows: float) -> float:
    """Seconds: up to 16 rows are free, then each begun 16 costs."""
    return 0.005 + 0.004 * (-(-rows // 16) - 1)


def taught(rounds: int = 60) -> RowCosts:
    """Costs that saw the staircase from a wrong start, in a shuffled order."""
    costs = RowCosts(lambda rows: 0.002 + 0.0001 * rows)
    random = np.random.default_rng(0)
    for _ in range(rounds):
        for rows in random.permutation([1, 4, 8, 16, 17, 24, 32, 33, 48, 49, 64, 128]).tolist():
            costs.learn(rows, float(np.log(staircase(rows) / costs.at(rows))))
    return costs


def test_before_anything_is_measured_it_says_what_was_expected() -> None:
    costs = RowCosts(lambda rows: 0.001 * rows)
    assert costs.at(48) == pytest.approx(0.048)
    assert costs.at(0) == costs.at(1)


def test_it_learns_a_staircase() -> None:
    costs = taught()
    for rows in (1, 8, 16, 17, 32, 48, 64, 128):
        assert costs.at(rows) == pytest.approx(staircase(rows), rel=0.25), rows
    assert costs.at(16) < 0.75 * costs.at(33)


def test_it_never_falls_with_more_rows() -> None:
    seconds = taught().up_to(600)
    assert (np.diff(seconds) >= 0).all()


def test_what_a_slow_moment_made_dear_is_believed_cheap_again() -> None:
    costs = taught()
    dear = [(rows, 3 * s if rows == 8 else s, n) for rows, s, n in costs.table()]
    costs.restore(dear)
    assert costs.at(8) <= costs.at(16)
    for _ in range(400):
        costs.learn(8, float(np.log(staircase(8) / costs.at(8))))
    kept = {rows: seconds for rows, seconds, _ in costs.table()}
    assert kept[8] * costs.drift == pytest.approx(staircase(8), rel=0.1)


def test_a_place_that_really_costs_more_than_the_next_settles() -> None:
    costs = taught()
    for rows in (17, 20) * 200:
        truth = 0.012 if rows == 17 else 0.010
        costs.learn(rows, float(np.log(truth / costs.at(rows))))
    for rows, seconds, _ in costs.table():
        if rows in (17, 20):
            assert 0.008 < seconds * costs.drift < 0.015


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_it_follows_a_machine_that_changes_within_a_dozen_passes(factor: float) -> None:
    costs = taught()
    before = costs.at(128)
    for rows in (4, 8, 16) * 4:
        costs.learn(rows, float(np.log(factor * staircase(rows) / costs.at(rows))))
    assert costs.at(8) == pytest.approx(factor * staircase(8), rel=0.2)
    # What was not measured meanwhile is expected to have changed alike.
    assert costs.at(128) / before == pytest.approx(factor, rel=0.3)


def test_it_can_be_kept() -> None:
    costs, other = taught(), RowCosts(lambda rows: 1.0)
    other.restore(costs.table())
    assert np.array(other.table()) == pytest.approx(np.array(costs.table()))


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_it_refuses_what_are_no_costs(seconds: float) -> None:
    costs = RowCosts(lambda rows: 1.0)
    with pytest.raises(ValueError, match="not a table"):
        costs.restore([(rows, seconds, 1.0) for rows in KNOTS])
    with pytest.raises(ValueError, match="not a table"):
        costs.restore([(rows + 1, 1.0, 1.0) for rows in KNOTS])
