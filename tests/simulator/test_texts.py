"""The adaptive policy on texts that are hard to draft, that change, and with dishonest drafters."""

import pytest

from slipstream.simulator.workload import Workload
from tests.simulator.machines import SERVER, Contest, changed, steady


@pytest.mark.parametrize("requests", [1, 8, 100])
def test_a_drafter_that_is_noise(requests: int) -> None:
    contest = Contest(changed(SERVER, truth=0.0), steady(requests), 20.0)
    assert contest.to_off() >= 0.97, contest.rates()  # from the first step on
    assert contest.to_off(5.0) >= 0.98, contest.rates(5.0)


def test_a_drafter_that_promises_twice_what_it_keeps() -> None:
    contest = Contest(changed(SERVER, truth=0.5), steady(4), 24.0)
    assert contest.to_best(6.0) >= 0.97, contest.rates(6.0)


def test_text_that_flips_between_hard_and_easy() -> None:
    text = tuple((8.0 * i, 1.5 if i % 2 else -5.0) for i in range(4))
    contest = Contest(SERVER, steady(2, text=text), 32.0)
    adaptive = contest.traces["adaptive"]
    assert adaptive.mean(adaptive.kept, 4.0, 8.0) < 0.5  # off while nothing is accepted
    for start in (8.0, 24.0):  # and back within two seconds
        assert adaptive.mean(adaptive.kept, start + 2.0, start + 8.0) > 2.0
        window = (start + 2.0, start + 8.0)
        assert contest.to_best(*window) >= 0.93, contest.rates(*window)
    assert contest.to_off(18.0, 24.0) >= 0.97, contest.rates(18.0, 24.0)
    assert contest.to_best() >= 0.97, contest.rates()


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_sampled_requests(share: float) -> None:
    machine = changed(SERVER, sampled_truth=0.7)
    contest = Contest(machine, steady(6, sampled=share), 24.0)
    assert contest.to_best(6.0) >= 0.97, contest.rates(6.0)


def test_requests_that_differ() -> None:
    """Some texts draft well and others badly: choosing by request is worth something."""
    machine = changed(SERVER, between_requests=2.0)
    workload = Workload(load=((0.0, 8),), output=(400, 400))
    contest = Contest(machine, workload, 24.0)
    assert contest.to_best(6.0) >= 1.0, contest.rates(6.0)
