"""The adaptive policy with the same number of requests in flight all the time."""

import pytest

from tests.simulator.machines import SERVER, Contest, steady


@pytest.mark.parametrize("requests", [1, 2, 5, 10, 16])
def test_few_requests(requests: int) -> None:
    contest = Contest(SERVER, steady(requests), 24.0)
    assert contest.to_best(6.0) >= 0.97, contest.rates(6.0)


@pytest.mark.parametrize("requests", [30, 70, 100, 250])
def test_many_requests(requests: int) -> None:
    contest = Contest(SERVER, steady(requests), 24.0)
    assert contest.to_best(6.0) >= 0.97, contest.rates(6.0)
    assert contest.to_off(6.0) >= 0.99, contest.rates(6.0)
