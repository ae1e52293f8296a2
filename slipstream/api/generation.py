"""One HTTP request's choices: submitted together, their tokens turned into pieces of text."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.api.engine_client import Arrival, Channel
from slipstream.api.metrics import Metrics
from slipstream.api.output import Piece, TextOutput
from slipstream.api.responses import PromptTokensDetails, SpeculationUsage, Usage
from slipstream.engine.messages import Delta, TokenLogprobs
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
    last_arrival: float | None = None  # seconds of the event loop's clock


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
        self._running: dict[int, _Choice] = {}
        for index, spec in enumerate(choices):
            request_id = channel.submit(spec.prompt, spec.params)
            self._running[request_id] = _Choice(index, spec)
        self.size = len(choices)
        self._prompt_tokens = sum(len(spec.prompt) for spec in choices if spec.counted)
        self._cached_tokens = 0
        self._tokens = 0
        self._steps = 0  # of all choices together
        self._cut_by_text = any(spec.output.may_stop for spec in choices)

    @property
    def done(self) -> bool:
        return not self._running

    async def receive(self) -> dict[int, Piece]:
        """What is new, by index of choice; waits for at least one token.

        Raises EngineDiedError.
        """
        pieces: dict[int, Piece] = {}
        while not pieces:
            self._take(await self._channel.receive(), pieces)
        return pieces

    async def receive_all(self) -> list[Piece]:
        """All that comes until the end, by index of choice.

        No text is made before the end, and nobody is woken, unless a stop string could end a
        choice sooner. Raises EngineDiedError.
        """
        whole = [Piece() for _ in range(self.size)]
        while self._running:
            pieces: dict[int, Piece] = {}
            self._take(await self._channel.receive(to_the_end=not self._cut_by_text), pieces)
            for index, piece in pieces.items():
                whole[index].extend(piece)
        return whole

    def usage(self) -> Usage:
        """Counts so far; the request's prompts are counted once each."""
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._tokens,
            total_tokens=self._prompt_tokens + self._tokens,
            prompt_tokens_details=PromptTokensDetails(self._cached_tokens),
            slipstream=SpeculationUsage(
                round(self._tokens / self._steps, 4) if self._steps else 1.0
            ),
        )

    def close(self) -> None:
        """Cancel what still runs."""
        for _ in self._running:
            self._ended("cancelled")
        self._running.clear()
        self._channel.close()

    def _take(self, arrivals: dict[int, list[Arrival]], pieces: dict[int, Piece]) -> None:
        for request_id, of_choice in arrivals.items():
            choice = self._running.get(request_id)
            if choice is not None:  # otherwise cut by a stop string
                pieces[choice.index] = self._feed(request_id, choice, of_choice)

    def _feed(self, request_id: int, choice: _Choice, arrivals: list[Arrival]) -> Piece:
        token_ids, logprobs, finish = _together([delta for _, delta in arrivals])
        piece = choice.spec.output.feed(token_ids, logprobs, finish)
        self._observe(choice, arrivals, len(piece.token_ids))
        if piece.finish_reason is not None:
            del self._running[request_id]
            self._channel.cancel(request_id)  # a stop string: the engine does not know
            self._ended(piece.finish_reason)
        return piece

    def _observe(self, choice: _Choice, arrivals: list[Arrival], kept: int) -> None:
        """Count the first ``kept`` tokens; a stop string cut off the others."""
        self._tokens += kept
        for now, delta in arrivals:
            tokens = min(kept, len(delta.token_ids))
            if not tokens:
                continue
            kept -= tokens
            self._steps += 1
            if choice.last_arrival is not None:
                self._metrics.later_tokens(now - choice.last_arrival, tokens)
            else:
                self._metrics.first_token(now - self._arrived)
                self._cached_tokens += delta.cached_tokens if choice.spec.counted else 0
            choice.last_arrival = now

    def _ended(self, reason: str) -> None:
        self._metrics.choice_ended(reason, time.monotonic() - self._arrived)


def _together(deltas: list[Delta]) -> tuple[list[int], list[TokenLogprobs] | None, str | None]:
    """Tokens, log probabilities and end of consecutive deltas of one choice."""
    last = deltas[-1]
    if len(deltas) == 1:
        return last.token_ids, last.logprobs, last.finish
    token_ids = [token for delta in deltas for token in delta.token_ids]
    if last.logprobs is None:
        return token_ids, None, last.finish
    return token_ids, [entry for delta in deltas for entry in delta.logprobs or ()], last.finish
