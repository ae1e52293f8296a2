"""Requests become what the engine understands; everything wrong with them is found here."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from slipstream.api.errors import ApiError, bad_request
from slipstream.api.schemas import (
    ChatCompletionRequest,
    CompletionRequest,
    SamplingRequest,
    SpeculationOptions,
)
from slipstream.api.tree_shape import tree_shape
from slipstream.engine.params import SamplingParams, Speculation

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 1024  # characters
_GREEDY_BELOW = 1e-5  # temperatures under it would only overflow


@dataclass(frozen=True)
class Limits:
    """What the model and the engine allow."""

    vocab_size: int
    max_model_len: int  # prompt and output together, in tokens
    max_step_rows: int
    eos_token_ids: tuple[int, ...]


def check_prompt(token_ids: Sequence[int], limits: Limits, param: str) -> None:
    """Refuse a prompt that the engine could not run. Raises ApiError."""
    if not token_ids:
        raise bad_request("the prompt is empty; it must have at least one token", param)
    if len(token_ids) >= limits.max_model_len:
        raise prompt_too_long(str(len(token_ids)), limits, param)
    if min(token_ids) < 0 or max(token_ids) >= limits.vocab_size:
        wrong = next(t for t in token_ids if not 0 <= t < limits.vocab_size)
        raise bad_request(
            f"token id {wrong} is not in the vocabulary; ids go from 0 to {limits.vocab_size - 1}",
            param,
        )


def prompt_too_long(tokens: str, limits: Limits, param: str) -> ApiError:
    """``tokens`` says how many the prompt has."""
    return bad_request(
        f"the prompt has {tokens} tokens; the context of {limits.max_model_len} tokens "
        f"allows {limits.max_model_len - 1} and one of output",
        param,
        "context_length_exceeded",
    )


def sampling_params(
    request: SamplingRequest, prompt_length: int, seed: int, limits: Limits
) -> list[SamplingParams]:
    """The parameters of each of the ``n`` choices; choice i uses seed + i. Raises ApiError."""
    first = SamplingParams(
        max_tokens=_max_tokens(request, prompt_length, limits),
        temperature=0.0 if request.temperature < _GREEDY_BELOW else request.temperature,
        top_p=request.top_p,
        top_k=min(max(0, request.top_k), limits.vocab_size),
        min_p=request.min_p,
        repetition_penalty=request.repetition_penalty,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        logit_bias=_logit_bias(request.logit_bias, limits),
        stop_token_ids=_stop_token_ids(request, limits),
        logprobs=_logprobs(request),
        speculation=_speculation(request.speculation, limits),
    )
    return [
        msgspec.structs.replace(first, seed=(seed + choice) % 2**64) for choice in range(request.n)
    ]


def stop_strings(request: SamplingRequest) -> list[str]:
    """The request's stop strings as a list. Raises ApiError."""
    stop = [request.stop] if isinstance(request.stop, str) else request.stop
    if len(stop) > MAX_STOP_STRINGS:
        raise bad_request(
            f"stop has {len(stop)} strings; at most {MAX_STOP_STRINGS} are allowed", "stop"
        )
    for text in stop:
        if not 1 <= len(text) <= MAX_STOP_LENGTH:
            raise bad_request(
                f"a stop string must have 1 to {MAX_STOP_LENGTH} characters, not {len(text)}",
                "stop",
            )
    return stop


def _max_tokens(request: SamplingRequest, prompt_length: int, limits: Limits) -> int:
    left = limits.max_model_len - prompt_length
    param, asked = "max_tokens", request.max_tokens
    if isinstance(request, ChatCompletionRequest) and request.max_completion_tokens is not None:
        param, asked = "max_completion_tokens", request.max_completion_tokens
    if asked is None:
        return left
    if asked > left:
        raise bad_request(
            f"{param} is {asked}, but the model's context of {limits.max_model_len} tokens leaves "
            f"{left} after the prompt's {prompt_length}",
            param,
            "context_length_exceeded",
        )
    return asked


def _logit_bias(bias: dict[str, float], limits: Limits) -> dict[int, float]:
    if len(bias) > limits.vocab_size:
        raise bad_request(
            f"logit_bias has {len(bias)} keys; there are {limits.vocab_size} token ids",
            "logit_bias",
        )
    result = {}
    for key, value in bias.items():
        # isdecimal() alone lets other scripts' digits through, and int() underscores and spaces.
        if not (key.isascii() and key.isdecimal() and len(key) < 20):
            raise bad_request(f"logit_bias has the key {key!r}; keys are token ids", "logit_bias")
        _check_token_id(int(key), limits, "logit_bias")
        result[int(key)] = value
    return result


def _check_token_id(token_id: int, limits: Limits, param: str) -> None:
    if not 0 <= token_id < limits.vocab_size:
        raise bad_request(
            f"{param} has the token id {token_id}; ids go from 0 to {limits.vocab_size - 1}", param
        )


def _stop_token_ids(request: SamplingRequest, limits: Limits) -> tuple[int, ...]:
    for token_id in request.stop_token_ids:
        _check_token_id(token_id, limits, "stop_token_ids")
    end = () if request.ignore_eos else limits.eos_token_ids
    return tuple(dict.fromkeys((*end, *request.stop_token_ids)))


def _logprobs(request: SamplingRequest) -> int | None:
    if isinstance(request, ChatCompletionRequest):
        return (request.top_logprobs or 0) if request.logprobs else None
    assert isinstance(request, CompletionRequest)
    return request.logprobs


def _speculation(options: SpeculationOptions | None, limits: Limits) -> Speculation | None:
    if options is None:
        return None
    numbers = (options.num_steps, options.topk, options.num_draft_tokens)
    if options.mode != "fixed":
        if any(number is not None for number in numbers):
            raise bad_request(
                f"speculation has mode {options.mode!r}, so it takes no num_steps, topk or "
                "num_draft_tokens",
                "speculation",
            )
        return Speculation(mode=options.mode)
    try:
        return Speculation(mode="fixed", shape=tree_shape(*numbers, limits.max_step_rows))
    except ValueError as error:
        raise bad_request(f"speculation: {error}", "speculation") from None
