"""The adaptive policy with costs that it guessed wrongly at first."""

import pytest

from tests.simulator.machines import SERVER, Contest, steady


@pytest.mark.parametrize(
    ("factor", "row_factor"),
    [(factor, row_factor) for factor in (1 / 3, 3.0) for row_factor in (1 / 3, 1.0, 3.0)],
)
def test_a_cost_model_that_starts_wrong(factor: float, row_factor: float) -> None:
    for requests, seconds in ((4, 12.0), (60, 12.0)):
        contest = Contest(SERVER, steady(requests), seconds, guess=(factor, row_factor))
        assert contest.to_best(4.0) >= 0.97, (requests, contest.rates(4.0))
        assert contest.to_off(0.0, 4.0) >= 0.95, (requests, contest.rates(0.0, 4.0))
