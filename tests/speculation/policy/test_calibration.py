"""Calibration: what a drafter's probabilities are worth."""

import numpy as np
import pytest

from slipstream.speculation.drafter import Source
from slipstream.speculation.policy.calibration import Calibration, Kind

GREEDY: Kind = (Source.MODEL, False)
SAMPLED: Kind = (Source.MODEL, True)


def teach(calibration: Calibration, truth: float, nodes: int, kind: Kind = GREEDY) -> None:
    random = np.random.default_rng(0)
    for likely in random.uniform(0.02, 0.98, nodes).tolist():
        accepted = bool(random.random() < truth * likely)
        calibration.learn(float(np.log(likely)), 1, kind, accepted)


def test_it_believes_a_drafter_at_first() -> None:
    assert Calibration().probability(float(np.log(0.7)), 3, GREEDY) == pytest.approx(0.7)


@pytest.mark.parametrize("truth", [0.5, 1.0])
def test_it_learns_how_honest_a_drafter_is(truth: float) -> None:
    calibration = Calibration()
    teach(calibration, truth, 6000)
    for likely in (0.1, 0.3, 0.6, 0.9):
        found = calibration.probability(float(np.log(likely)), 1, GREEDY)
        assert found == pytest.approx(truth * likely, abs=0.08)


def test_noise_becomes_worthless() -> None:
    calibration = Calibration()
    teach(calibration, 0.0, 2000)
    assert calibration.probability(float(np.log(0.9)), 1, GREEDY) < 0.05


def test_greedy_and_sampled_sources_and_depths_are_apart() -> None:
    calibration = Calibration()
    teach(calibration, 0.0, 500)
    score = float(np.log(0.8))
    assert calibration.probability(score, 1, SAMPLED) == pytest.approx(0.8)
    assert calibration.probability(score, 2, GREEDY) == pytest.approx(0.8)
    assert calibration.probability(score, 1, (Source.LOOKUP, False)) == pytest.approx(0.8)


def test_it_forgets() -> None:
    calibration = Calibration()
    teach(calibration, 0.0, 20_000)
    teach(calibration, 1.0, 20_000)
    assert calibration.probability(float(np.log(0.6)), 1, GREEDY) > 0.45


def test_no_probability_is_above_one() -> None:
    calibration = Calibration()
    for _ in range(100):
        calibration.learn(float(np.log(0.3)), 1, GREEDY, True)
    assert calibration.probability(float(np.log(0.36)), 1, GREEDY) <= 1.0
