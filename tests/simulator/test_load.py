"""The adaptive policy under load that steps, and that bursts."""

from slipstream.simulator.run import simulate
from slipstream.simulator.workload import Prompt, Workload
from tests.simulator.machines import ADAPTIVE, SERVER, STATIC, Contest, steady


def test_load_that_steps_between_one_and_sixty() -> None:
    load = tuple((10.0 * i, 60 if i % 2 else 1) for i in range(4))
    contest = Contest(
        SERVER, Workload(load=load, cancels=True, prompt=(16, 48), output=(64, 256)), 40.0
    )
    assert contest.to_best() >= 1.0, contest.rates()
    adaptive = contest.traces["adaptive"]
    assert adaptive.mean(adaptive.kept, 22.0, 30.0) > 1.0  # it came back


def test_load_that_crosses_the_break_even_point_again_and_again() -> None:
    load = tuple((2.0 * i, 40 if i % 2 else 12) for i in range(12))
    contest = Contest(
        SERVER, Workload(load=load, cancels=True, prompt=(16, 48), output=(64, 256)), 24.0
    )
    assert contest.to_best(4.0) >= 0.97, contest.rates(4.0)


def test_a_burst_on_an_idle_engine() -> None:
    load = ((0.0, 0), (1.0, 200))
    workload = Workload(load=load, requests=200, output=(32, 128), staggered=False)
    ends = {
        name: simulate(SERVER, workload, speculation, 1e9).ends[-1]
        for name, speculation in (STATIC | {"adaptive": ADAPTIVE}).items()
    }
    adaptive = ends.pop("adaptive")
    assert adaptive - 1.0 <= (min(ends.values()) - 1.0) / 0.97, (adaptive, ends)


def test_a_long_prompt_among_short_decodes() -> None:
    workload = steady(4, extra=(Prompt(8.0, 2500, 64),))
    contest = Contest(SERVER, workload, 20.0)
    assert contest.to_best(6.0) >= 0.97, contest.rates(6.0)
    assert contest.to_off(8.0, 10.0) >= 0.97, contest.rates(8.0, 10.0)
