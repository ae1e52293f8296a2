"""One caller of a server: asks for an answer, records what came when."""

import asyncio
import os
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

import msgspec

from slipstream.bench.answer import Answer, error_text
from slipstream.bench.http import Connection, Endpoint
from slipstream.bench.prompt_sets import Prompt
from slipstream.bench.samples import Role, Sample, TokenEvents

UsageReport = Literal["continuous", "final", "none"]
LengthField = Literal["max_tokens", "max_completion_tokens"]


@dataclass(frozen=True)
class RequestForm:
    """What a request says besides its prompt and its length."""

    model: str
    stream: bool = True
    temperature: float = 0.0
    seed: int | None = None
    ignore_eos: bool = False
    usage: UsageReport = "continuous"  # what to ask a stream for; a whole answer always has it
    length_field: LengthField = "max_tokens"

    def body(self, prompt: Prompt, max_tokens: int) -> bytes:
        """The request as JSON."""
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": prompt,
            self.length_field: max_tokens,
            "temperature": self.temperature,
            "stream": self.stream,
        }
        if self.seed is not None:
            fields["seed"] = self.seed
        if self.ignore_eos:
            fields["ignore_eos"] = True
        if self.stream and self.usage != "none":
            fields["stream_options"] = {"include_usage": True}
            if self.usage == "continuous":
                fields["stream_options"]["continuous_usage_stats"] = True
        return msgspec.json.encode(fields)


@dataclass(frozen=True)
class Target:
    """A server and how to ask it."""

    endpoint: Endpoint
    form: RequestForm
    timeout_s: float = 1800.0  # for one request


class Client:
    """A caller with a connection of its own and at most one request at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._connection = Connection(target.endpoint)
        self._answer = Answer()
        self.status = 0  # of the last response; 0: none came
        self.sample: Sample | None = None  # of the last request; whole or cut off when it has ended

    @property
    def received(self) -> int:
        """Tokens of the present request so far; 0 without streaming."""
        return self._answer.received

    @property
    def heard(self) -> float:
        """When the server last sent something; 0 before."""
        return self._connection.heard

    def close(self) -> None:
        """Drop the connection."""
        self._connection.close()

    async def complete(self, prompt: Prompt, max_tokens: int, role: Role) -> Sample:
        """Ask for an answer of at most ``max_tokens``. Never raises for what a server may do.

        Cancelling drops the connection; ``sample`` then holds what has come of the answer.
        """
        target = self._target
        request = target.endpoint.request(
            "POST", "/chat/completions", target.form.body(prompt, max_tokens)
        )
        self.status = 0
        self._answer = answer = Answer()
        start = perf_counter()
        sample = Sample(role=role, start=start, end=start, events=TokenEvents())
        self.sample = sample
        try:
            async with asyncio.timeout(target.timeout_s):
                response = await self._connection.exchange(request, answer.feed)
        except OSError as error:  # time-outs too
            sample.end = perf_counter()
            sample.error = failure_text(error, target.timeout_s)
            return sample
        except asyncio.CancelledError:
            sample.end, sample.cut_off = perf_counter(), True
            answer.complete_stream(sample)
            raise
        self.status, sample.end = response.status, response.end
        if response.status != 200:
            sample.error = f"HTTP {response.status}: {error_text(response.body)}"
        elif response.event_stream:
            answer.complete_stream(sample)
        else:
            answer.complete_whole(response.body, sample)
        return sample


def failure_text(error: OSError, timeout_s: float) -> str:
    """Why no response came, in a few words that do not depend on the event loop."""
    if isinstance(error, TimeoutError) and not error.errno:
        return f"no complete answer within {timeout_s:g} s"
    if error.errno and error.errno > 0:
        return os.strerror(error.errno).lower()
    return error.strerror or str(error) or type(error).__name__
