"""What the routes work with once the engine is ready."""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import slipstream
from slipstream.api.engine_client import EngineClient
from slipstream.api.errors import ApiError, bad_request, unavailable
from slipstream.api.generation import ChoiceSpec, Generation
from slipstream.api.metrics import Metrics
from slipstream.api.output import TextOutput
from slipstream.api.responses import Envelope
from slipstream.api.schemas import SamplingRequest
from slipstream.api.translate import Limits, prompt_too_long, sampling_params, stop_strings
from slipstream.models.tokenizer import Tokenizer

_LONG_PROMPT = 8192  # characters; tokenising more would hold up the other streams noticeably
_SEED_BITS = 53  # of a seed that we choose: JSON readers that use doubles keep it exact


@dataclass
class Service:
    """A model being served."""

    name: str  # as clients call it
    tokenizer: Tokenizer
    limits: Limits
    client: EngineClient
    metrics: Metrics
    capacity: int  # choices, running and queued
    kernels: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the same request might get other tokens."""
        parts = f"{slipstream.__version__}|{self.name}|{self.kernels}"
        return "fp_" + hashlib.sha256(parts.encode()).hexdigest()[:12]

    def envelope(self, id_prefix: str, seed: int) -> Envelope:
        """The frame of a new response."""
        return Envelope(
            id_prefix + secrets.token_hex(16), int(time.time()), self.name, self.fingerprint, seed
        )

    def check_model(self, model: str | None) -> None:
        """Raises ApiError for a model that is not served here."""
        if model is not None and model != self.name:
            raise ApiError(
                404,
                f"there is no model {model!r} here; this server has {self.name!r}",
                param="model",
                code="model_not_found",
            )

    async def encode(
        self, texts: Sequence[str], param: str, *, add_special_tokens: bool
    ) -> list[list[int]]:
        """Token ids of each text, in a thread where they are long together.

        Raises ApiError for a text in field ``param`` that is too long for any tokens.
        """
        if sum(map(len, texts)) < _LONG_PROMPT:
            return self.tokenizer.encode_all(texts, add_special_tokens=add_special_tokens)
        for text in texts:
            if (tokens := self.tokenizer.fewest_tokens(text)) >= self.limits.max_model_len:
                raise prompt_too_long(f"at least {tokens}", self.limits, param)
        return await asyncio.to_thread(
            self.tokenizer.encode_all, texts, add_special_tokens=add_special_tokens
        )

    def generate(
        self, request: SamplingRequest, prompts: Sequence[list[int]], seed: int, arrived: float
    ) -> Generation:
        """Start ``n`` choices for every prompt, in this order. Raises ApiError."""
        self.check_choices(len(prompts) * request.n)
        stop = stop_strings(request)
        choices = [
            ChoiceSpec(prompt, params, TextOutput(self.tokenizer.detokenizer(), stop), index == 0)
            for prompt in prompts
            for index, params in enumerate(sampling_params(request, len(prompt), seed, self.limits))
        ]
        self._check_room(len(choices))
        return Generation(self.client, choices, self.metrics, arrived)

    def check_choices(self, choices: int) -> None:
        """Raises ApiError for more choices (prompts times n) than an idle server would take."""
        if choices > self.capacity:
            raise bad_request(
                f"the request asks for {choices} choices (prompts times n); this server runs and "
                f"queues at most {self.capacity}",
                "n",
            )

    @property
    def full(self) -> bool:
        return self.client.in_flight >= self.capacity

    def _check_room(self, choices: int) -> None:
        if self.client.failure is not None:
            raise ApiError(500, self.client.failure, code="engine_died")
        if self.client.in_flight + choices > self.capacity:
            raise ApiError(
                429,
                f"the queue is full: {self.client.in_flight} of {self.capacity} choices are "
                "running or waiting; try again soon",
                code="queue_full",
                headers={"Retry-After": "1"},
            )


@dataclass
class ServerState:
    """What the app knows at any time; ``unavailable`` says why it cannot serve."""

    metrics: Metrics = field(default_factory=Metrics)
    service: Service | None = None
    unavailable: str | None = "the model is being loaded"

    def require(self) -> Service:
        """The service. Raises ApiError 503 while there is none."""
        if self.unavailable is not None or self.service is None:
            raise unavailable(self.unavailable or "the model is being loaded")
        return self.service


def random_seed() -> int:
    return secrets.randbits(_SEED_BITS)
