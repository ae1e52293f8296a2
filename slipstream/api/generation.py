"""One HTTP request's choices: submitted together, their tokens turned into pieces of text."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.api.engine_client import EngineClient, EngineDiedError
from slipstream.api.metrics import Metrics
from slipstream.api.output import Piece, TextOutput
from slipstream.api.responses import PromptTokensDetails, SpeculationUsage, Usage
from slipstream.engine.messages import Delta
from slipstream.engine.params import SamplingParams


@dataclass(slots=True)
class ChoiceSpec:
    """What one choice starts from. ``counted`` is False where an earlier choice of the request
    has the same prompt, which is counted once."""

    prompt: list[int]
    params: SamplingParams
    output: TextOutput
    counted: bool = True


@dataclass(slots=True)
class _Choice:
    index: int
    output: TextOutput
    counted: bool
    last_arrival: float | None = None  # seconds of the event loop's clock


class Generation:
    """Running choices. Whoever holds one calls ``close`` at the end, whatever happened.

    What comes gathers here, at most ``max_tokens`` per choice, until it is taken, so a slow client
    holds up nobody but itself.
    """

    def __init__(
        self,
        client: EngineClient,
        choices: Sequence[ChoiceSpec],
        metrics: Metrics,
        arrived: float,
    ) -> None:
        """``arrived`` is when the HTTP request came, in seconds of ``time.monotonic``."""
        self._client = client
        self._metrics = metrics
        self._arrived = arrived
        self._all = [
            _Choice(index, spec.output, spec.counted) for index, spec in enumerate(choices)
        ]
        self._running = {
            client.submit(self, spec.prompt, spec.params): choice
            for choice, spec in zip(self._all, choices, strict=True)
        }
        self._news: dict[int, _Choice] = {}  # by index: something came that was not taken
        self._waiter: asyncio.Future[None] | None = None
        self._waits_for_all = False
        self._prompt_tokens = sum(len(spec.prompt) for spec in choices if spec.counted)
        self._cached_tokens = 0
        self._tokens = 0
        self._steps = 0  # of all choices together

    @property
    def done(self) -> bool:
        return not self._running

    async def receive(self) -> dict[int, Piece]:
        """What is new, by index of choice; waits for at least one token.

        Raises EngineDiedError.
        """
        while not self._news:
            await self._woken()
        news, self._news = self._news, {}
        return {index: choice.output.take() for index, choice in news.items()}

    async def receive_all(self) -> list[Piece]:
        """All choices from their start to their end, woken only then. Raises EngineDiedError."""
        self._waits_for_all = True
        while self._running:
            await self._woken()
        return [choice.output.take() for choice in self._all]

    def usage(self) -> Usage:
        """Counts so far; the request's prompts are counted once each."""
        tokens, steps = self._tokens, self._steps
        accepted_length = 1.0 if tokens == steps else round(tokens / steps, 4)
        return Usage(
            self._prompt_tokens,
            tokens,
            self._prompt_tokens + tokens,
            PromptTokensDetails(self._cached_tokens),
            SpeculationUsage(accepted_length),
        )

    def close(self) -> None:
        """Cancel what still runs."""
        for request_id in self._running:
            self._client.cancel(request_id)
            self._ended("cancelled")
        self._running.clear()

    def put(self, now: float, delta: Delta) -> None:
        """See ``Receiver``."""
        choice = self._running[delta.id]
        output = choice.output
        tokens = output.push(delta.token_ids, delta.logprobs, delta.finish)
        if tokens:
            self._count(choice, now, delta, tokens)
        if output.finish_reason is not None:
            del self._running[delta.id]
            self._client.cancel(delta.id)  # a stop string: the engine does not know
            self._ended(output.finish_reason)
        self._news[choice.index] = choice
        if not (self._waits_for_all and self._running):
            self.wake()

    def wake(self) -> None:
        """See ``Receiver``."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _woken(self) -> asyncio.Future[None]:
        if self._client.failure is not None:
            raise EngineDiedError(self._client.failure)
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _count(self, choice: _Choice, now: float, delta: Delta, tokens: int) -> None:
        self._tokens += tokens
        self._steps += 1
        if choice.last_arrival is not None:
            self._metrics.later_tokens(now - choice.last_arrival, tokens)
        else:
            self._metrics.first_token(now - self._arrived)
            self._cached_tokens += delta.cached_tokens if choice.counted else 0
        choice.last_arrival = now

    def _ended(self, reason: str) -> None:
        self._metrics.choice_ended(reason, time.monotonic() - self._arrived)
