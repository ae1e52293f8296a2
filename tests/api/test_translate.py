"""From requests to parameters, and what is refused on the way."""

from typing import Any

import pytest

from slipstream.api.errors import ApiError
from slipstream.api.schemas import ChatCompletionRequest, CompletionRequest
from slipstream.api.translate import Limits, check_prompt, sampling_params, stop_strings
from slipstream.engine.params import Speculation, TreeShape

LIMITS = Limits(vocab_size=100, max_model_len=50, max_step_rows=32, eos_token_ids=(2, 3))


def completion(**fields: Any) -> CompletionRequest:
    return CompletionRequest.model_validate({"prompt": "x", **fields})


def chat(**fields: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest.model_validate(
        {"messages": [{"role": "user", "content": "x"}], **fields}
    )


def test_defaults_are_openais_and_the_rest_of_the_context() -> None:
    [params] = sampling_params(completion(), 10, 7, LIMITS)
    assert params.max_tokens == 40
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (1.0, 1.0, 0, 0.0)
    assert params.stop_token_ids == (2, 3)
    assert params.logprobs is None and params.speculation is None
    assert params.seed == 7


def test_choices_use_consecutive_seeds_around_the_end() -> None:
    params = sampling_params(completion(n=3), 1, 2**64 - 1, LIMITS)
    assert [p.seed for p in params] == [2**64 - 1, 0, 1]
    assert sampling_params(completion(), 1, -1, LIMITS)[0].seed == 2**64 - 1


def test_stop_tokens_and_ignore_eos() -> None:
    request = completion(ignore_eos=True, stop_token_ids=[5, 5, 2])
    assert sampling_params(request, 1, 0, LIMITS)[0].stop_token_ids == (5, 2)


def test_logprobs_of_both_endpoints() -> None:
    assert sampling_params(completion(logprobs=0), 1, 0, LIMITS)[0].logprobs == 0
    assert sampling_params(chat(logprobs=True), 1, 0, LIMITS)[0].logprobs == 0
    assert sampling_params(chat(logprobs=True, top_logprobs=5), 1, 0, LIMITS)[0].logprobs == 5
    assert sampling_params(chat(logprobs=False), 1, 0, LIMITS)[0].logprobs is None


def test_tiny_temperature_is_greedy_and_top_k_is_bounded() -> None:
    [params] = sampling_params(completion(temperature=1e-300, top_k=10**30), 1, 0, LIMITS)
    assert (params.temperature, params.top_k) == (0.0, 100)
    assert sampling_params(completion(top_k=-1), 1, 0, LIMITS)[0].top_k == 0


def test_speculation_of_a_request() -> None:
    fields: dict[str, Any] = {"mode": "fixed", "num_steps": 3, "topk": 1}
    [params] = sampling_params(completion(speculation=fields), 1, 0, LIMITS)
    assert params.speculation == Speculation("fixed", TreeShape(3, 1, 4))
    [params] = sampling_params(completion(speculation={"mode": "off"}), 1, 0, LIMITS)
    assert params.speculation == Speculation("off")
    [params] = sampling_params(completion(speculation={"mode": "adaptive"}), 1, 0, LIMITS)
    assert params.speculation == Speculation("adaptive")


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"max_tokens": 41}, "max_tokens", "41.*50.*40.*10"),
        ({"stop_token_ids": [100]}, "stop_token_ids", "100.*0 to 99"),
        ({"logit_bias": {"x": 1.0}}, "logit_bias", "'x'"),
        ({"logit_bias": {"100": 1.0}}, "logit_bias", "0 to 99"),
        ({"logit_bias": {"-1": 1.0}}, "logit_bias", "'-1'"),
        ({"logit_bias": {"²": 1.0}}, "logit_bias", "²"),
        ({"speculation": {"mode": "off", "topk": 1}}, "speculation", "off"),
        ({"speculation": {"mode": "adaptive", "num_steps": 2}}, "speculation", "adaptive"),
        (
            {"speculation": {"mode": "fixed", "topk": 1, "num_steps": 3, "num_draft_tokens": 16}},
            "speculation",
            "must be 4.*not 16",
        ),
        ({"speculation": {"mode": "fixed", "num_draft_tokens": 33}}, "speculation", "32"),
        ({"speculation": {"mode": "fixed", "num_steps": 0}}, "speculation", "num_steps"),
    ],
)
def test_what_does_not_fit_the_model(fields: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        sampling_params(completion(**fields), 10, 0, LIMITS)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [([], "empty"), ([1, 100], "100.*0 to 99"), ([-1], "-1"), ([1] * 50, "50 tokens.*49")],
)
def test_prompts_that_cannot_run(prompt: list[int], words: str) -> None:
    with pytest.raises(ApiError, match=words):
        check_prompt(prompt, LIMITS, "prompt")
    check_prompt([0] * 49, LIMITS, "prompt")


def test_stop_strings() -> None:
    assert stop_strings(completion(stop="a")) == ["a"]
    assert stop_strings(completion(stop=["a", "b"])) == ["a", "b"]
    assert stop_strings(completion()) == []
    for stop in ("", ["a"] * 17, ["a", ""], "x" * 1025):
        with pytest.raises(ApiError):
            stop_strings(completion(stop=stop))
