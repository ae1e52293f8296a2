"""What is asked of the simulated engine: how many requests, how long, how predictable."""

from bisect import bisect_right
from typing import TypeVar

import msgspec

Value = TypeVar("Value", int, float)
Steps = tuple[tuple[float, Value], ...]  # from so many seconds on, that value


class Prompt(msgspec.Struct, frozen=True):
    """One request beside those that are kept in flight."""

    at: float  # seconds
    prompt: int  # tokens
    output: int


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A closed loop: as soon as a request ends the next one begins, as many as the load says."""

    load: Steps[int] = ((0.0, 1),)  # requests in flight
    cancels: bool = False  # whether requests above the load are cancelled, the newest first
    requests: int = 0  # that are begun in all; 0 is without end
    prompt: tuple[int, int] = (50, 200)  # tokens, at least and at most
    output: tuple[int, int] = (512, 512)
    staggered: bool = True  # the first requests are found anywhere in their output
    sampled: float = 0.0  # share of the requests that are not greedy
    text: Steps[float] = ((0.0, 0.0),)  # log odds, by which a guess is right more often
    extra: tuple[Prompt, ...] = ()
    max_step_rows: int = 256  # known tokens of one step, as the engine cuts prompts
    most_draft_rows: int = 4096  # of one step


def at(steps: Steps[Value], now: float) -> Value:
    """The value at a time."""
    place = bisect_right([start for start, _ in steps], now) - 1
    return steps[max(place, 0)][1]
