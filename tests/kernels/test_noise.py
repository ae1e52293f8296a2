"""Keyed noise: the published generator, and noise of the right distribution from it."""

import numpy as np
import pytest

from slipstream.kernels.noise import NOISE_RANGE, gumbel, philox


def digits(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


# From the known-answer file of Random123, the authors' own implementation: counter, key, first word
# of the result. The third row holds digits of pi.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", 0x6627E8D5),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", 0x408F276D),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", 0xD16CFE09),
]


@pytest.mark.parametrize(("counter", "key", "word"), KNOWN_ANSWERS)
def test_known_answers(counter: str, key: str, word: int) -> None:
    first, second, third, fourth = digits(counter)
    low, high = digits(key)
    result = philox((np.array([first], dtype=np.uint64), second, third, fourth), high << 32 | low)
    assert result.tolist() == [word]


def test_each_counter_has_its_own_word() -> None:
    counters = np.array([int(counter.split()[0], 16) for counter, _, _ in KNOWN_ANSWERS])
    together = philox((counters.astype(np.uint64), 5, 0, 0), 9)
    alone = [philox((np.array([c], dtype=np.uint64), 5, 0, 0), 9)[0] for c in counters]
    assert together.tolist() == alone


def test_a_tokens_noise_does_not_depend_on_the_other_tokens() -> None:
    everyone = gumbel(3, 17, np.arange(1000))
    for some in (np.array([999]), np.arange(5, 998, 7), np.arange(1000)[::-1]):
        assert gumbel(3, 17, some).tolist() == everyone[some].tolist()


def test_the_keys_bits_all_count() -> None:
    ids = np.arange(4)
    seeds = [0, *(1 << bit for bit in range(64)), 2**64 - 1]
    assert len({gumbel(seed, 0, ids).tobytes() for seed in seeds}) == len(seeds)
    assert len({gumbel(0, position, ids).tobytes() for position in range(1000)}) == 1000


def test_gumbel_distribution() -> None:
    count = 200_000
    noise = np.sort(gumbel(11, 3, np.arange(count)))
    assert abs(noise.mean() - np.euler_gamma) < 0.01
    assert abs(noise.var() - np.pi**2 / 6) < 0.03
    # Kolmogorov-Smirnov at the level of one in a thousand.
    expected = np.exp(-np.exp(-noise))
    steps = np.arange(count + 1) / count
    distance = max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max())
    assert distance < 1.95 / np.sqrt(count)


@pytest.mark.parametrize(("seed", "position"), [(1, 0), (0, 1), (1 << 32, 0), (0, 1 << 16)])
def test_other_keys_are_independent(seed: int, position: int) -> None:
    ids = np.arange(50_000)
    correlation = np.corrcoef(gumbel(0, 0, ids), gumbel(seed, position, ids))[0, 1]
    assert abs(correlation) < 4 / np.sqrt(len(ids))


def test_neighbouring_tokens_are_independent() -> None:
    noise = gumbel(0, 0, np.arange(50_000))
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 4 / np.sqrt(len(noise))


def test_the_range_spans_all_possible_noise() -> None:
    extremes = (np.array([0.0, 2.0**32 - 1]) + 0.5) * 2.0**-32
    least, most = -np.log(-np.log(extremes))
    assert pytest.approx(most - least, abs=1e-9) == NOISE_RANGE
    assert 26 < NOISE_RANGE < 26.01
