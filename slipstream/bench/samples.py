"""What the load generator records. Times are seconds on the clock of ``time.perf_counter``."""

from array import array
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["warmup", "measured", "filler"]
"""Why a request was sent: to reach the steady state, to be measured, or to keep it up."""

TokenSource = Literal["usage", "final usage", "chunks"]
"""How tokens were counted: usage as they came, usage at the end spread out, one per chunk."""


@dataclass(slots=True)
class TokenEvents:
    """When tokens arrived: ``tokens[i]`` of them at ``times[i]``, in ascending order of time."""

    times: "array[float]" = field(default_factory=lambda: array("d"))
    tokens: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, time: float, tokens: float) -> None:
        """Record tokens at a time; what arrives in one read of the socket is one event."""
        if self.times and self.times[-1] == time:
            self.tokens[-1] += tokens
        else:
            self.times.append(time)
            self.tokens.append(tokens)

    def scale(self, factor: float) -> None:
        """Let every event stand for so many times its tokens."""
        for index in range(len(self.tokens)):
            self.tokens[index] *= factor

    def total(self) -> float:
        """All tokens."""
        return sum(self.tokens)


@dataclass(slots=True)
class Sample:
    """One request, as the client saw it. ``error`` is one line, None where all went well."""

    role: Role
    start: float  # just before the request was written
    end: float  # the last byte of the answer, or the failure
    events: TokenEvents
    token_source: TokenSource = "usage"
    streamed: bool = True  # False: events are spread over the request's life
    accepted_length: float | None = None  # tokens per step, where the server reports it
    error: str | None = None
    cut_off: bool = False  # by us: the events are those of the part that came


@dataclass(slots=True)
class LevelRun:
    """Everything that happened at one load.

    From ``window_start`` to ``window_end``, the steady window, ``concurrency`` are in flight.
    """

    concurrency: int  # 0: requests arrived by themselves, see ``arrivals``
    samples: list[Sample]  # in the order in which they ended
    window_start: float
    window_end: float
    client_cpu_s: float  # processor seconds of this process in the steady window
    event_loop_lag_s: float = 0.0  # the worst delay of this process in the steady window

    def of_role(self, *roles: Role) -> list[Sample]:
        """The samples of these roles."""
        return [sample for sample in self.samples if sample.role in roles]
