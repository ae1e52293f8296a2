"""One HTTP request's choices: submitted together, their tokens turned into pieces of text."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from slipstream.api.engine_client import Arrival, Channel
from slipstream.api.metrics import Metrics
from slipstream.api.output import Piece, TextOutput
from slipstream.api.responses import PromptTokensDetails, SpeculationUsage, Usage
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
    spec: ChoiceSpec
    tokens: int = 0
    steps: int = 0
    cached_tokens: int = 0
    last_arrival: float = field(default=0.0)


class Generation:
    """Running choices. Whoever holds one calls ``close`` at the end, whatever happened."""

    def __init__(
        self,
        channel: Channel,
        choices: Sequence[ChoiceSpec],
        metrics: Metrics,
        arrived: float,
    ) -> None:
        """``arrived`` is when the HTTP request came, in seconds of ``time.monotonic``."""
        self._channel = channel
        self._metrics = metrics
        self._arrived = arrived
        self._choices: dict[int, _Choice] = {}
        for index, spec in enumerate(choices):
            request_id = channel.submit(spec.prompt, spec.params)
            self._choices[request_id] = _Choice(index, spec)
        self._running = dict(self._choices)

    @property
    def size(self) -> int:
        """The number of choices."""
        return len(self._choices)

    @property
    def done(self) -> bool:
        return not self._running

    async def receive(self) -> dict[int, Piece]:
        """What is new, by index of choice; waits for at least one token.

        Raises EngineDiedError.
        """
        pieces: dict[int, Piece] = {}
        while not pieces:
            for arrival in await self._channel.receive():
                choice = self._running.get(arrival.delta.id)
                if choice is None:  # cut by a stop string
                    continue
                piece = self._feed(choice, arrival)
                if choice.index in pieces:
                    pieces[choice.index].extend(piece)
                else:
                    pieces[choice.index] = piece
        return pieces

    def usage(self) -> Usage:
        """Counts so far; the request's prompts are counted once each."""
        counted = [choice for choice in self._choices.values() if choice.spec.counted]
        prompt = sum(len(choice.spec.prompt) for choice in counted)
        tokens = sum(choice.tokens for choice in self._choices.values())
        steps = sum(choice.steps for choice in self._choices.values())
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=tokens,
            total_tokens=prompt + tokens,
            prompt_tokens_details=PromptTokensDetails(sum(c.cached_tokens for c in counted)),
            slipstream=SpeculationUsage(round(tokens / steps, 4) if steps else 1.0),
        )

    def close(self) -> None:
        """Cancel what still runs."""
        for _ in self._running:
            self._ended("cancelled")
        self._running.clear()
        self._channel.close()

    def _feed(self, choice: _Choice, arrival: Arrival) -> Piece:
        delta = arrival.delta
        piece = choice.spec.output.feed(delta.token_ids, delta.logprobs, delta.finish)
        self._observe(choice, arrival, len(piece.token_ids))
        if piece.finish_reason is not None:
            del self._running[delta.id]
            self._channel.cancel(delta.id)  # a stop string: the engine does not know
            self._ended(piece.finish_reason)
        return piece

    def _observe(self, choice: _Choice, arrival: Arrival, tokens: int) -> None:
        if not tokens:
            return
        if choice.tokens == 0:
            choice.cached_tokens = arrival.delta.cached_tokens
            self._metrics.first_token(arrival.time - self._arrived)
        else:
            self._metrics.later_tokens(arrival.time - choice.last_arrival, tokens)
        choice.tokens += tokens
        choice.steps += 1
        choice.last_arrival = arrival.time

    def _ended(self, reason: str) -> None:
        self._metrics.choice_ended(reason, time.monotonic() - self._arrived)
