"""Ratios of paired measurements."""

import numpy as np
import pytest

from slipstream.bench.comparison import paired_ratio, student_t


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (30, 2.0423), (200, 1.9719)],
)
def test_student_t_as_in_the_tables(degrees: int, expected: float) -> None:
    assert student_t(0.95, degrees) == pytest.approx(expected, abs=5e-5)


def test_a_drift_that_hits_both_leaves_no_uncertainty() -> None:
    ratio = paired_ratio([10.0, 20.0, 50.0], [5.0, 10.0, 25.0])
    assert (ratio.mean, ratio.low95, ratio.high95) == pytest.approx((2, 2, 2))


def test_the_mean_is_geometric() -> None:
    ratio = paired_ratio([2.0, 1.0], [1.0, 2.0])
    assert ratio.mean == pytest.approx(1)
    assert ratio.low95 is not None and ratio.high95 is not None
    assert ratio.low95 * ratio.high95 == pytest.approx(1)


def test_one_pair_has_no_interval() -> None:
    ratio = paired_ratio([3.0], [2.0])
    assert (ratio.mean, ratio.low95, ratio.high95) == (1.5, None, None)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(1000):
        drift = random.normal(0, 0.3, 6)
        ours = np.exp(drift + random.normal(0.1, 0.05, 6))
        theirs = np.exp(drift + random.normal(0, 0.05, 6))
        ratio = paired_ratio(ours.tolist(), theirs.tolist())
        assert ratio.low95 is not None and ratio.high95 is not None
        covered += ratio.low95 <= np.exp(0.1) <= ratio.high95
    assert 925 <= covered <= 975
