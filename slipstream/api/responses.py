"""Answers as msgspec structs, which encode in about a microsecond each."""

from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: int


class SpeculationUsage(msgspec.Struct):
    accepted_length: float  # tokens emitted per step and choice, 1 or more


class Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    slipstream: SpeculationUsage


class ChatMessage(msgspec.Struct):
    content: str
    role: str = "assistant"
    refusal: None = None


class ChatDelta(msgspec.Struct):
    content: str
    role: str | UnsetType = UNSET


class TopLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class Choice(msgspec.Struct, kw_only=True):
    """A choice of either endpoint; whole, or what one chunk adds to it."""

    index: int
    message: ChatMessage | UnsetType = UNSET
    delta: ChatDelta | UnsetType = UNSET
    text: str | UnsetType = UNSET
    logprobs: ChatLogprobs | CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | UnsetType = UNSET


class Answer(msgspec.Struct, kw_only=True):
    """A whole response of either endpoint, or one chunk of it."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Choice]
    system_fingerprint: str
    seed: int
    usage: Usage | UnsetType | None = UNSET


@dataclass(frozen=True, slots=True)
class Envelope:
    """What all chunks of one response have in common."""

    id: str
    created: int
    model: str
    fingerprint: str
    seed: int

    def answer(
        self, kind: str, choices: list[Choice], usage: Usage | UnsetType | None = UNSET
    ) -> Answer:
        return Answer(
            id=self.id,
            object=kind,
            created=self.created,
            model=self.model,
            choices=choices,
            system_fingerprint=self.fingerprint,
            seed=self.seed,
            usage=usage,
        )
