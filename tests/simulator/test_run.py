"""The machine's arithmetic, and a step loop that loses nothing."""

import numpy as np
import pytest

from slipstream.simulator.machine import EIGHT_PCIE_GPUS, TWO_AMX_CORES
from slipstream.simulator.run import simulate
from slipstream.simulator.workload import Prompt, Workload, at
from slipstream.speculation.policy.settings import OFF, Speculation
from tests.simulator.machines import ADAPTIVE, STATIC, changed, steady

QUIET = changed(TWO_AMX_CORES, jitter=0.0, context_bytes=0.0)


def test_a_staircase() -> None:
    def seconds(rows: float) -> float:
        return QUIET.step(np.array([rows]), np.zeros(1), 1)

    assert seconds(1) == seconds(16) == pytest.approx(4e-4 + 96e6 / 15e9 + 2e-5)
    assert seconds(33) == seconds(48) < seconds(49)
    assert seconds(256) == pytest.approx(0.056, rel=0.05)


def test_experts_are_read_as_rows_choose_them() -> None:
    machine = changed(EIGHT_PCIE_GPUS, step_seconds=0.0, row_seconds=0.0, request_seconds=0.0)
    few, many = (machine.step(np.ones(n), np.zeros(n), 0) for n in (1, 500))
    assert few == pytest.approx((28e9 + 408e9 / 32) / 12.2e12)
    assert many == pytest.approx((28e9 + 408e9) / 12.2e12, rel=0.01)
    alike = machine.step(np.array([16.0]), np.zeros(1), 0)
    assert few < alike < machine.step(np.ones(16), np.zeros(16), 0)


def test_off_takes_a_step_for_each_token() -> None:
    workload = Workload(requests=3, prompt=(10, 10), output=(20, 20), staggered=False)
    trace = simulate(QUIET, workload, OFF, 1e9)
    assert sum(trace.tokens) == 60
    assert trace.tokens == trace.expected
    step = QUIET.step(np.ones(1), np.zeros(1), 1)
    assert trace.ends[-1] == pytest.approx(60 * step)


@pytest.mark.parametrize("speculation", [*STATIC.values(), ADAPTIVE])
def test_every_request_gets_its_tokens(speculation: Speculation) -> None:
    workload = Workload(
        load=((0.0, 3), (1.0, 7)),
        requests=12,
        prompt=(1, 600),
        output=(1, 60),
        staggered=False,
        sampled=0.5,
        extra=(Prompt(0.5, 900, 7),),
    )
    runs = [simulate(TWO_AMX_CORES, workload, one, 1e9) for one in (OFF, speculation)]
    assert sum(runs[0].tokens) == sum(runs[1].tokens)


def test_the_same_seed_gives_the_same_run() -> None:
    runs = [simulate(TWO_AMX_CORES, steady(3), ADAPTIVE, 1.0, seed=5) for _ in range(2)]
    assert runs[0] == runs[1]


def test_an_idle_engine_waits() -> None:
    workload = Workload(load=((0.0, 0), (2.0, 1)), requests=1, staggered=False, output=(4, 4))
    trace = simulate(QUIET, workload, OFF, 1e9)
    assert 2.0 < trace.ends[0] < 2.1
    assert sum(trace.tokens) == 4


def test_a_slow_machine_takes_longer() -> None:
    rates = [
        simulate(QUIET, steady(2), OFF, 2.0, pace=pace).rate(1.0)
        for pace in (((0.0, 1.0),), ((0.0, 1.0), (1.0, 2.0)))
    ]
    assert rates[0] == pytest.approx(2 * rates[1], rel=0.02)


def test_values_that_step() -> None:
    assert [at(((0.0, 1), (2.0, 5)), now) for now in (0.0, 1.9, 2.0, 9.0)] == [1, 1, 5, 5]
