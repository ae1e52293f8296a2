"""Ratios, winners, early ends and crossovers against speeds that are known."""

import math

import numpy as np
import pytest

from slipstream.verdict.analysis import (
    answer,
    answers,
    confidence,
    crossovers,
    looks,
    ratio,
    single_choices,
    tight_enough,
)
from slipstream.verdict.results import Load, Measurement, Results, Settings
from tests.verdict.synthetic import measurement, off, paying_until, results

ONE = Load(1)


def coverage(rounds: int, noise: float, trials: int) -> float:
    """How often the interval of a ratio of 1.3 has it."""
    covered = 0
    for seed in range(trials):
        found = results(
            {"off": lambda c: 40.0, "fixed": lambda c: 52.0},
            (1,),
            rounds=rounds,
            noise=noise,
            seed=seed,
        )
        value = ratio(found, "fixed", "off", ONE)
        assert value is not None and value.low is not None and value.high is not None
        covered += value.low <= 1.3 <= value.high
    return covered / trials


@pytest.mark.parametrize(("rounds", "trials"), [(3, 1500), (5, 1500), (6, 500), (8, 500)])
def test_an_interval_covers_the_truth_as_often_as_it_says(rounds: int, trials: int) -> None:
    assert coverage(rounds, 0.02, trials) == pytest.approx(0.95, abs=0.02)


def early(noise: float, seed: int, truth: float, rounds: int) -> tuple[Results, bool]:
    """Rounds are measured until the load is said to be known well enough."""
    random = np.random.default_rng(seed)
    found = results({"off": off, "fixed": off}, (1,), rounds=0)
    found.settings = Settings("coding", 64, 0.0, True, rounds)
    for round_ in range(rounds):
        common = math.exp(random.normal(0, 0.2))
        for name, speed in (("off", 40.0), ("fixed", 40.0 * truth)):
            value = speed * common * math.exp(random.normal(0, noise))
            found.measurements.append(measurement(name, ONE, round_, value))
        if tight_enough(found, ONE):
            return found, True
    return found, False


@pytest.mark.parametrize("noise", [0.0015, 0.004, 0.008])
@pytest.mark.parametrize("truth", [1.0, 1.2])
def test_intervals_cover_the_truth_also_where_a_load_ends_early(noise: float, truth: float) -> None:
    trials, covered, ended, different = 400, 0, 0, 0
    for seed in range(trials):
        found, stopped = early(noise, seed, truth, rounds=6)
        value = ratio(found, "fixed", "off", ONE)
        assert value is not None and value.low is not None and value.high is not None
        covered += value.low <= truth <= value.high
        different += answer(found, ONE).kind == "winner"
        ended += stopped
    assert 0.93 <= covered / trials <= 0.995
    if truth == 1:
        assert different / trials <= 0.06
    if noise < 0.004:
        assert ended > 0.5 * trials  # it is worth something


def test_a_load_ends_early_only_at_a_look() -> None:
    assert [looks(rounds) for rounds in (1, 3, 4, 6, 9, 10)] == [
        (1,),
        (3,),
        (3, 4),
        (3, 6),
        (5, 9),
        (5, 10),
    ]
    same = {"off": lambda c: 40.0, "fixed": lambda c: 48.0}
    for rounds in range(1, 7):
        found = results(same, (1,), rounds=rounds, noise=0.0)
        found.settings = Settings("coding", 64, 0.0, True, 6)
        assert (tight_enough(found, ONE) is not None) == (rounds == 3)


def test_looking_early_is_paid_for() -> None:
    found = results({"off": off, "fixed": off}, (1,), rounds=6)
    assert confidence(found) == pytest.approx(0.95)
    found.settings = Settings("coding", 64, 0.0, True, 6)
    assert confidence(found) == pytest.approx(0.975)
    found.settings = Settings("coding", 64, 0.0, True, 3)  # too few to end earlier
    assert confidence(found) == pytest.approx(0.95)


@pytest.mark.parametrize(("configurations", "rounds"), [(2, 4), (2, 6), (3, 5)])
def test_equal_configurations_are_called_no_different(configurations: int, rounds: int) -> None:
    trials, kinds = 300, []
    speeds = dict.fromkeys(["off", "fixed", "small", "adaptive"][:configurations], off)
    for seed in range(trials):
        found = results(speeds, (5,), rounds=rounds, noise=0.004, seed=seed)
        kinds.append(answer(found, Load(5)).kind)
    assert kinds.count("no difference") / trials >= 0.92


def test_the_winner_is_better_than_each_other_one() -> None:
    found = results({"off": off, "fixed": lambda c: 1.3 * off(c), "small": lambda c: 1.1 * off(c)})
    for one in answers(found):
        assert (one.kind, one.best) == ("winner", ("fixed",))
        assert one.ratios["fixed"].mean == pytest.approx(1.3, rel=0.02)


def test_of_two_that_are_alike_none_wins_but_the_third_loses() -> None:
    found = results({"off": off, "fixed": lambda c: 1.3 * off(c), "small": lambda c: 1.3 * off(c)})
    kinds = [(one.kind, set(one.best)) for one in answers(found)]
    assert kinds.count(("several", {"fixed", "small"})) >= 4


def test_a_wide_interval_is_no_answer() -> None:
    found = results({"off": off, "fixed": off}, (1,), rounds=3, noise=0.1)
    one = answer(found, ONE)
    assert one.kind == "could not tell" and one.within is not None and one.within > 0.05


def test_one_round_is_no_answer() -> None:
    found = results({"off": off, "fixed": lambda c: 2 * off(c)}, (1,), rounds=1)
    one = answer(found, ONE)
    assert (one.kind, one.within) == ("could not tell", None)
    assert one.ratios["fixed"].low is None


def test_what_was_not_measured_is_left_out() -> None:
    found = results({"off": off, "fixed": off}, (1, 2), rounds=2)

    def without(drop: tuple[str, Load]) -> list[Measurement]:
        return [m for m in found.measurements if (m.configuration, m.load) != drop]

    found.measurements = without(("fixed", Load(2)))
    assert answer(found, Load(2)).kind == "alone"
    found.measurements = without(("off", Load(2)))
    assert answer(found, Load(2)).kind == "nothing"
    # The baseline says at which loads a single choice must have been measured.
    assert {choice.name for choice in single_choices(found)} == {"off", "fixed"}


def test_pairs_are_of_the_same_round() -> None:
    found = results({"off": off, "fixed": lambda c: 2 * off(c)}, (1,), rounds=4, noise=0.0)
    found.measurements = [
        m
        for m in found.measurements
        if (m.configuration, m.round) not in {("fixed", 0), ("off", 3)}
    ]
    value = ratio(found, "fixed", "off", ONE)
    assert value is not None and value.rounds == 2
    assert value.mean == pytest.approx(2)


@pytest.mark.parametrize("truth", [1.7, 3.0, 7.0, 20.0])
def test_a_crossover_is_found_where_it_is(truth: float) -> None:
    levels = (1, 2, 5, 10, 30)
    certain, covered = 0, 0
    for seed in range(20):
        found = results({"off": off, "fixed": paying_until(truth)}, levels, noise=0.01, seed=seed)
        (one,) = crossovers(found, "fixed")
        assert one.faster_below
        assert one.at == pytest.approx(truth, rel=0.15)
        certain += one.certain
        covered += (one.low or 0) <= truth <= (one.high or math.inf)
    assert certain >= 17
    assert covered >= 17


def test_a_crossover_to_the_better() -> None:
    found = results({"off": off, "fixed": paying_until(7.0, gain=-0.25)})
    (one,) = crossovers(found, "fixed")
    assert not one.faster_below
    assert one.low is not None and one.high is not None
    assert one.low < one.at < one.high


def test_no_crossover_where_there_is_none() -> None:
    assert not crossovers(results({"off": off, "fixed": lambda c: 1.2 * off(c)}), "fixed")


def test_a_crossover_of_the_means_alone_is_not_certain() -> None:
    found = results({"off": off, "fixed": paying_until(4.0)}, rounds=1, noise=0.0)
    (one,) = crossovers(found, "fixed")
    assert not one.certain and (one.low, one.high) == (None, None)
    assert one.at == pytest.approx(4.0, rel=0.05)


def test_the_best_single_choice_is_over_all_loads() -> None:
    found = results({"off": off, "fixed": paying_until(3.0), "adaptive": lambda c: 1.1 * off(c)})
    best, *_, last = single_choices(found)
    assert (best.name, last.name) == ("adaptive", "fixed")
    assert best.low is not None and 1 < best.low < best.mean
    assert (last.worst_load, last.worst) == (Load(30), pytest.approx(10**-0.25, rel=0.03))
