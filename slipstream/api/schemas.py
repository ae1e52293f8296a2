"""Requests as pydantic models: OpenAI's fields and Slipstream's extensions.

What depends on the model (token ids, lengths) is checked in ``translate``.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, SkipValidation, model_validator

from slipstream.api.errors import bad_request

MAX_ITEMS = 10_000  # messages, or parts of one: more would hold up all streams while they are read

# Fields that ask for something else than the tokens: accepted, without effect.
HARMLESS = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)

# Fields of OpenAI that Slipstream does not have, and the values that ask for nothing.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "suffix": (),
    "tool_choice": ("none",),
    "tools": ([],),
    "verbosity": (),
    "web_search_options": (),
}


class Model(BaseModel):
    """Nothing is converted and nothing unknown is let through: a typo must not go unnoticed."""

    model_config = ConfigDict(strict=True, extra="forbid")


class StreamOptions(Model):
    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False  # OpenAI's padding against eavesdroppers: never sent


class SpeculationOptions(Model):
    """How to speculate for this request; without it, as the server was started."""

    mode: Literal["off", "fixed", "adaptive"]
    num_steps: int | None = None
    topk: int | None = None
    num_draft_tokens: int | None = None


class SamplingRequest(Model):
    """What chat and text completions have in common."""

    model: str | None = None
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    ignore_eos: bool = False
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] = Field(default_factory=dict)
    max_tokens: int | None = Field(default=None, ge=1)
    min_p: float = Field(default=0.0, ge=0, le=1)
    n: int = Field(default=1, ge=1, le=128)
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    repetition_penalty: float = Field(default=1.0, ge=0.01, le=100)
    return_token_ids: bool = False
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    speculation: SpeculationOptions | None = None
    stop: str | Annotated[list[str], Field(fail_fast=True)] = Field(default_factory=list)
    stop_token_ids: list[int] = Field(default_factory=list, max_length=64)
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float = Field(default=1.0, ge=0, le=2)
    top_k: int = Field(default=0, ge=-1)  # 0 and -1: the whole vocabulary
    top_p: float = Field(default=1.0, gt=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _known_elsewhere(cls, body: Any) -> Any:
        """Drop nulls and harmless fields; refuse what is known but not supported."""
        if not isinstance(body, dict):
            return body
        for name, allowed in UNSUPPORTED.items():
            value = body.get(name)
            if value is not None and value not in allowed:
                raise bad_request(f"{name} is not supported", name, "unsupported_parameter")
        dropped = HARMLESS | UNSUPPORTED.keys()
        return {k: v for k, v in body.items() if v is not None and k not in dropped}

    @model_validator(mode="after")
    def _streaming(self) -> "SamplingRequest":
        if self.stream_options is not None and not self.stream:
            raise bad_request("stream_options needs stream: true", "stream_options")
        return self


class TextPart(Model):
    type: Literal["text"]
    text: str


class Message(Model):
    """One turn of a conversation, its text in one piece or in parts."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _text_only(cls, message: Any) -> Any:
        """Drop empty fields, as in answers sent back; refuse tools, images and audio."""
        if not isinstance(message, dict):
            return message
        if message.get("role") in ("tool", "function"):
            raise bad_request("messages of tools are not supported", "messages")
        for name in ("tool_calls", "function_call", "tool_call_id", "audio"):
            if message.get(name):
                raise bad_request(f"{name} in messages is not supported", "messages")
        content = message.get("content")
        _check_number(content, "parts of a message", "messages")
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind != "text":
                raise bad_request(
                    f"content parts of type {kind!r} are not supported; only 'text' is",
                    "messages",
                    "unsupported_content",
                )
            if kind is None or not isinstance(part.get("text"), str):
                raise bad_request(
                    'content must be a string or a list of parts like {"type": "text", "text": ""}',
                    "messages",
                    "invalid_value",
                )
        return {k: v for k, v in message.items() if v not in (None, [], {})}


class ChatCompletionRequest(SamplingRequest):
    messages: Annotated[list[Message], FailFast()]
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)  # for the model's template
    logprobs: bool = False
    max_completion_tokens: int | None = Field(default=None, ge=1)
    top_logprobs: int | None = Field(default=None, ge=0, le=20)

    @model_validator(mode="before")
    @classmethod
    def _not_too_many(cls, body: Any) -> Any:
        """Now, because each message takes microseconds to check."""
        if isinstance(body, dict):
            _check_number(body.get("messages"), "messages", "messages")
        return body

    @model_validator(mode="after")
    def _consistent(self) -> "ChatCompletionRequest":
        if not self.messages:
            raise bad_request("messages is empty; it must have at least one", "messages")
        if self.top_logprobs is not None and not self.logprobs:
            raise bad_request("top_logprobs needs logprobs: true", "top_logprobs")
        for name in ("self", "messages", "add_generation_prompt", "tools"):
            if name in self.chat_template_kwargs:
                raise bad_request(f"chat_template_kwargs cannot set {name}", "chat_template_kwargs")
        asked = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(asked) > 1:
            raise bad_request(
                "max_tokens and max_completion_tokens differ; give one of them", "max_tokens"
            )
        return self


class CompletionRequest(SamplingRequest):
    prompt: SkipValidation[str | list[str] | list[int] | list[list[int]]]  # see _prompt_form
    logprobs: int | None = Field(default=None, ge=0, le=20)

    @model_validator(mode="before")
    @classmethod
    def _prompt_form(cls, body: Any) -> Any:
        """One clear sentence instead of a finding per form that a prompt does not have."""
        if isinstance(body, dict) and body.get("prompt") is not None:
            prompt = body["prompt"]
            if not isinstance(prompt, str) and not _is_list_of_one_form(prompt):
                raise bad_request(
                    "prompt must be a string, a list of strings, a list of token ids, or a list "
                    "of such lists",
                    "prompt",
                    "invalid_value",
                )
        return body


def _check_number(items: Any, name: str, param: str) -> None:
    """Raises ApiError if ``items`` is a list of too many."""
    if isinstance(items, list) and len(items) > MAX_ITEMS:
        raise bad_request(f"there are {len(items)} {name}; at most {MAX_ITEMS} are allowed", param)


def _is_list_of_one_form(prompt: Any) -> bool:
    if not isinstance(prompt, list):
        return False
    kinds = set(map(type, prompt))
    if kinds == {list}:
        return all(set(map(type, item)) <= {int} for item in prompt)
    return kinds <= {str} or kinds <= {int}
