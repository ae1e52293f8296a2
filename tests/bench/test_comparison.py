"""Ratios of paired measurements."""

import numpy as np
import pytest

from slipstream.bench.comparison import (
    mean_interval,
    paired_ratio,
    student_t,
    unpaired_difference,
)


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


@pytest.mark.parametrize("count", [6, 10])
def test_resampling_covers_the_mean_of_a_skewed_distribution_better_than_student(
    count: int,
) -> None:
    random = np.random.default_rng(7)
    covered = {"resampled": 0, "student": 0}
    for _ in range(400):
        values = random.exponential(size=count).tolist()
        low, high = mean_interval(values, 0.95)
        half = student_t(0.95, count - 1) * np.std(values, ddof=1) / np.sqrt(count)
        covered["resampled"] += low <= 1 <= high
        covered["student"] += abs(np.mean(values) - 1) <= half
    assert covered["resampled"] >= 360
    assert covered["resampled"] >= covered["student"]


def test_an_interval_of_equal_values_is_a_point() -> None:
    assert mean_interval([2.0, 2.0, 2.0], 0.95) == (2.0, 2.0)
    assert mean_interval([2.0] * 8, 0.95) == (2.0, 2.0)


def test_an_interval_needs_two_values() -> None:
    with pytest.raises(ValueError, match="at least two"):
        mean_interval([1.0], 0.95)


def test_an_interval_is_the_same_each_time() -> None:
    values = [1.0, 1.1, 0.9, 1.3, 1.05, 0.97]
    assert mean_interval(values, 0.95) == mean_interval(values, 0.95)


def test_values_that_were_not_paired() -> None:
    random = np.random.default_rng(3)
    covered = 0
    for _ in range(1000):
        found = unpaired_difference(
            random.normal(2, 0.3, 4).tolist(), random.normal(1, 0.05, 5).tolist(), 0.95
        )
        assert found is not None
        covered += found[0] <= 1 <= found[1]
    assert 925 <= covered <= 985
    assert unpaired_difference([1.0], [1.0, 2.0], 0.95) is None
