"""Emission: each rule against a slow, obvious version of its definition."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.engine import emission
from slipstream.engine.emission import log_probabilities, sampling_rows
from slipstream.engine.params import SamplingParams
from slipstream.engine.request import Request
from slipstream.kernels.noise import NOISE_RANGE, gumbel
from slipstream.kernels.torch.sampling import sample
from slipstream.speculation.batch import build_step_batch
from slipstream.speculation.tree import TokenTree

emit = partial(emission.emit, sample)


def params(temperature: float = 1.0, **fields: object) -> SamplingParams:
    return SamplingParams(max_tokens=8, temperature=temperature, **fields)  # type: ignore[arg-type]


def row(values: Sequence[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def after(*tokens: int) -> np.ndarray:
    return np.array(tokens, dtype=np.int32)


def best(logits: Sequence[float], tokens: Sequence[int] = (), prompt: int = 0, **f: object) -> int:
    return emit(row(logits), params(0, **f), after(*tokens), prompt)


def kept(logits: Sequence[float], params: SamplingParams) -> list[int]:
    """The tokens that top-k, then top-p, then min-p keep, by their definitions."""
    scaled = [float(logit) / params.temperature for logit in logits]
    weights = [math.exp(value - max(scaled)) for value in scaled]
    ranked = sorted(range(len(scaled)), key=lambda token: (-scaled[token], token))
    if params.top_k:
        ranked = ranked[: params.top_k]
    total = math.fsum(weights[token] for token in ranked)
    mass, nucleus = 0.0, []
    for token in ranked:
        if nucleus and mass >= params.top_p * total and params.top_p < 1:
            break
        nucleus.append(token)
        mass += weights[token]
    return sorted(token for token in nucleus if weights[token] >= params.min_p)


def draws(logits: Sequence[float], params: SamplingParams, count: int) -> Counter[int]:
    """How often each token is emitted, over positions."""
    array = row(logits)
    tokens = np.zeros(count, dtype=np.int32)
    return Counter(emit(array, params, tokens[:position], 0) for position in range(count))


# Greedy


def test_greedy_is_argmax() -> None:
    assert best([0.1, 3, -2, 2.9]) == 1


def test_ties_go_to_the_lowest_id() -> None:
    assert best([1, 7, 7, 0, 7]) == 1
    assert best([0] * 1000) == 0


@settings(deadline=None)
@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=30, unique=True), st.integers(0, 2**64 - 1)
)
def test_a_very_small_temperature_is_greedy(logits: list[int], seed: int) -> None:
    quarters = [logit / 4 for logit in logits]
    assert emit(row(quarters), params(1e-4, seed=seed), after(), 0) == best(quarters)


# Truncation


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"top_k": 1}, [1]),
        ({"top_k": 2}, [1, 3]),  # 3 and 4 tie: the lower id stays
        ({"top_k": 3}, [1, 3, 4]),
        ({"top_k": 100}, [0, 1, 2, 3, 4]),
        ({"min_p": 1.0}, [1]),
        ({"min_p": 0.3}, [1, 3, 4]),
        ({"top_p": 0.001}, [1]),
        ({"top_p": 0.6}, [1, 3]),
        ({"top_p": 0.8}, [1, 3, 4]),
        ({"top_k": 3, "top_p": 0.75}, [1, 3]),  # 0.75 of the three, not of all
        ({"top_p": 0.8, "min_p": 0.6}, [1]),
    ],
)
def test_what_truncation_keeps(fields: dict[str, object], expected: list[int]) -> None:
    probabilities = [0.04, 0.48, 0.04, 0.22, 0.22]
    logits = np.log(probabilities).tolist()
    assert kept(logits, params(**fields)) == expected
    assert sorted(draws(logits, params(**fields), 600)) == expected


@pytest.mark.parametrize(("top_p", "count"), [(0.25, 2), (0.5, 4), (0.51, 5), (1.0, 8)])
def test_top_p_of_equal_tokens(top_p: float, count: int) -> None:
    assert sorted(draws([2.5] * 8, params(top_p=top_p), 400)) == list(range(count))


@settings(max_examples=300, deadline=None)
@given(
    logits=st.lists(st.integers(-20, 20), min_size=1, max_size=40),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    # Odd values, so that no sum of equal weights meets them exactly but for its last bits.
    top_k=st.sampled_from([0, 1, 3, 10, 1000]),
    top_p=st.sampled_from([0.013723, 0.317731, 0.618034, 0.904317, 1.0]),
    min_p=st.sampled_from([0.0, 0.00171, 0.0713, 0.517]),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 40),
)
def test_sampling_is_the_best_of_logits_plus_noise_among_what_is_kept(
    logits: list[int],
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int,
    position: int,
) -> None:
    asked = params(temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    halves = [logit / 2 for logit in logits]
    noise = gumbel(seed, position, np.arange(len(logits)))
    expected = max(kept(halves, asked), key=lambda t: halves[t] / temperature + noise[t])
    assert emit(row(halves), asked, np.zeros(position, dtype=np.int32), 0) == expected


# Sampling


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_over_seeds_match_softmax(temperature: float) -> None:
    logits = [0.0, 1.0, -0.5, 0.3, 1.0, -1.5, 0.7, 0.1]
    count = 4000
    array, tokens = row(logits), after(4, 5, 6)
    found = Counter(emit(array, params(temperature, seed=seed), tokens, 3) for seed in range(count))
    weights = np.exp(np.array(logits) / temperature)
    expected = count * weights / weights.sum()
    chi_square = sum((found[t] - expected[t]) ** 2 / expected[t] for t in range(len(logits)))
    assert chi_square < 24.32  # one in a thousand, at 7 degrees of freedom


def test_frequencies_over_positions_match_softmax() -> None:
    probabilities = np.array([0.4, 0.3, 0.2, 0.1])
    found = draws(np.log(probabilities).tolist(), params(seed=7), 4000)
    expected = 4000 * probabilities
    chi_square = sum((found[t] - expected[t]) ** 2 / expected[t] for t in range(4))
    assert chi_square < 16.27  # one in a thousand, at 3 degrees of freedom


def test_skipping_what_cannot_win_changes_nothing() -> None:
    """Many tokens around the border, and a few so far above the rest that most are skipped."""
    generator = np.random.default_rng(0)
    logits = np.concatenate([generator.uniform(-40, -8, 30_000), [0.0, -1.0]]).astype(np.float32)
    scaled = logits.astype(np.float64)
    assert (scaled < -NOISE_RANGE).sum() > 10_000
    ids = np.arange(len(logits))
    far = 0
    for seed in range(150):
        found = emit(logits, params(seed=seed), after(1), 0)
        assert found == int(np.argmax(scaled + gumbel(seed, 1, ids)))
        far += found < 30_000
    assert 0 < far < 150


def test_the_draw_is_a_function_of_its_arguments_only() -> None:
    generator = np.random.default_rng(1)
    logits = generator.normal(size=500).astype(np.float32)
    batch = np.stack([generator.normal(size=500).astype(np.float32), logits, logits])
    asked = params(0.9, top_p=0.95, repetition_penalty=1.2, logit_bias={3: 1.0}, seed=5)
    tokens = after(1, 2, 3, 3)
    before = (logits.copy(), tokens.copy())
    first = emit(logits, asked, tokens, 2)
    assert [emit(line, asked, tokens, 2) for line in batch[1:]] == [first, first]
    assert emit(logits, asked, tokens, 2) == first
    assert np.array_equal(logits, before[0]) and np.array_equal(tokens, before[1])


def test_the_seed_and_the_position_matter() -> None:
    logits = row([0.0] * 1000)
    tokens = np.zeros(50, dtype=np.int32)
    by_seed = {emit(logits, params(seed=seed), tokens, 0) for seed in range(50)}
    by_position = {emit(logits, params(), tokens[:n], 0) for n in range(50)}
    assert len(by_seed) > 40 and len(by_position) > 40


# All rows of a step at once


def test_rows_drawn_at_once_give_what_each_gives_by_itself() -> None:
    asked = [
        params(0),
        params(0.8, seed=2**64 - 1, top_p=0.9),
        params(1.3, seed=4, top_k=7),
        params(0.9, seed=5, repetition_penalty=1.5),  # left to `emit`, row by row
        params(1.0, seed=6, min_p=0.1),
    ]
    requests, trees = [], []
    for number, each in enumerate(asked):
        request = Request.start(number, [1] * (5 + number), each)
        request.committed, request.pages = 3, [number]
        requests.append(request)
        trees.append(TokenTree.chain(request.tokens[3:]).graft([7, 8, 9], [0, 1, 0]))
    emits = [True, True, False, True, True]
    batch = build_step_batch(requests, trees, emits)
    generator = np.random.default_rng(3)
    logits = generator.normal(scale=2, size=(16, 400)).astype(np.float32)
    found = iter(zip(logits, sample(logits, sampling_rows(requests, batch)).tolist(), strict=True))
    for request, emitting in zip(requests, emits, strict=True):
        depths = [0, 1, 2, 1] if emitting else []
        for depth in depths:
            line, token = next(found)
            if not request.adjusts_logits:
                path = np.ones(request.length + depth, dtype=np.int32)
                assert token == emit(line, request.params, path, 0)
    assert next(found, None) is None


# Penalties and bias


@pytest.mark.parametrize("prompt", [0, 1, 3])  # the prompt counts like the output
def test_repetition_divides_what_is_positive_and_multiplies_what_is_negative(prompt: int) -> None:
    logits = [3.0, 2.1, -1.0, -1.2]
    tokens = [0, 0, 2]  # how often does not matter
    assert best(logits, tokens, prompt, repetition_penalty=1.4) == 0  # 3 / 1.4 = 2.14
    assert best(logits, tokens, prompt, repetition_penalty=1.5) == 1  # 3 / 1.5 = 2
    below = [-3.0, -2.0, -1.0, -1.3]
    assert best(below, tokens, prompt, repetition_penalty=1.2) == 2  # -1.2
    assert best(below, tokens, prompt, repetition_penalty=1.4) == 3  # -1.4
    assert best([1.0, 1.5], [0], prompt=1, repetition_penalty=0.5) == 0  # below 1 it rewards


def test_presence_counts_once_and_output_only() -> None:
    logits = [3.0, 2.1, 1.0]
    assert best(logits, [0, 0, 0], 0, presence_penalty=0.8) == 0  # 3 - 0.8 = 2.2
    assert best(logits, [0, 0, 0], 0, presence_penalty=1.0) == 1
    assert best(logits, [0, 0, 0], 3, presence_penalty=1.0) == 0  # all of it prompt
    assert best(logits, [0, 1], 1, presence_penalty=1.0) == 0
    assert best([1.0, 1.5], [0], 0, presence_penalty=-1.0) == 0


def test_frequency_counts_each_time_and_output_only() -> None:
    logits = [3.0, 2.1, 1.0]
    assert best(logits, [0, 0], 0, frequency_penalty=0.4) == 0  # 3 - 0.8 = 2.2
    assert best(logits, [0, 0, 0], 0, frequency_penalty=0.4) == 1  # 3 - 1.2 = 1.8
    assert best(logits, [0, 0, 0], 1, frequency_penalty=0.4) == 0
    assert best(logits, [0, 0], 0, frequency_penalty=0.2, presence_penalty=0.6) == 1  # 3 - 1 = 2


def test_bias_forces_and_forbids() -> None:
    logits = [5.0, 4.0, 3.0]
    assert best(logits, logit_bias={2: 100.0}) == 2
    assert best(logits, logit_bias={0: -100.0}) == 1
    assert best(logits, logit_bias={0: -100.0, 1: -1.5}) == 2
    assert set(draws(logits, params(logit_bias={1: 100.0}), 200)) == {1}
    assert set(draws(logits, params(logit_bias={0: -100.0}), 200)) == {1, 2}


def test_bias_overrides_penalties() -> None:
    fields = {"repetition_penalty": 2.0, "presence_penalty": 2.0, "frequency_penalty": 2.0}
    assert best([1.0, 9.0], [0, 0], 0, logit_bias={0: 100.0}, **fields) == 0


@settings(max_examples=150, deadline=None)
@given(
    logits=st.lists(st.floats(-8, 8, width=32), min_size=6, max_size=6),
    tokens=st.lists(st.integers(0, 5), max_size=12),
    data=st.data(),
)
def test_penalties_by_their_definitions(
    logits: list[float], tokens: list[int], data: st.DataObject
) -> None:
    prompt = data.draw(st.integers(0, len(tokens)))
    repetition = data.draw(st.sampled_from([0.5, 1.0, 1.25, 2.0]))
    presence = data.draw(st.sampled_from([-1.0, 0.0, 0.5, 2.0]))
    frequency = data.draw(st.sampled_from([-0.5, 0.0, 0.25, 2.0]))
    bias = data.draw(st.dictionaries(st.integers(0, 5), st.sampled_from([-100.0, -1.0, 2.0])))
    output = Counter(tokens[prompt:])
    expected = []
    for token, logit in enumerate(logits):
        value = logit
        if token in tokens:
            value = value / repetition if value > 0 else value * repetition
        value -= presence * (output[token] > 0) + frequency * output[token]
        expected.append(value + bias.get(token, 0.0))
    found = best(
        logits,
        tokens,
        prompt,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        logit_bias=bias,
    )
    # The reference is in float64: where it sees a near tie, float32 may choose either.
    assert expected[found] >= max(expected) - 1e-4


# Log probabilities


def test_log_probabilities_are_of_the_models_own_distribution() -> None:
    probabilities = [0.1, 0.5, 0.15, 0.25]
    found = log_probabilities(row(np.log(probabilities).tolist()), 2, 3)
    assert found.logprob == pytest.approx(math.log(0.15), abs=1e-6)
    assert [token for token, _ in found.top] == [1, 3, 2]
    assert [value for _, value in found.top] == pytest.approx(np.log([0.5, 0.25, 0.15]), abs=1e-6)
    assert log_probabilities(row([1, 2]), 0, 0).top == []


def test_log_probabilities_of_large_logits() -> None:
    found = log_probabilities(row([1000, 999]), 1, 1)
    assert found.logprob == pytest.approx(-math.log(1 + math.e))


@settings(deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=25), st.integers(0, 30))
def test_the_top_are_the_best_with_ties_to_the_lowest_id(logits: list[int], top: int) -> None:
    found = log_probabilities(row(logits), 0, top)
    ranked = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    assert [token for token, _ in found.top] == ranked[:top]
    if top:  # a greedy token is the first of the top
        assert found.top[0][0] == best(logits)
