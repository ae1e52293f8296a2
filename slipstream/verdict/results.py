"""What a verdict measured: the document that is written, read again, rendered and compared.

It holds facts only; what follows from them is computed when it is rendered (`analysis`).
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from slipstream.errors import UserError

FORMAT = 1


class Percentiles(msgspec.Struct, frozen=True):
    """In seconds; tokens or requests count alike, see ``bench.statistics``."""

    avg: float
    p50: float
    p95: float
    p99: float


class RequestSample(msgspec.Struct, frozen=True):
    """One request. Times are seconds since its measurement's window opened, so may be negative."""

    start: float
    end: float
    first_token: float | None  # time of; None where nothing came, or without streaming
    tokens: float
    measured: bool  # False: it warmed up or kept up the load
    error: str | None = None


class Load(msgspec.Struct, frozen=True):
    """So many requests in flight, or so many arriving per second; exactly one is not None."""

    concurrency: Annotated[int, Meta(ge=1)] | None = None
    rate: Annotated[float, Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.rate is None):
            raise ValueError("a load has either a concurrency or a rate")

    @property
    def label(self) -> str:
        """For people: ``C=30``, ``2.5/s``."""
        return f"C={self.concurrency}" if self.rate is None else f"{self.rate:g}/s"


class Measurement(msgspec.Struct, frozen=True):
    """One configuration at one load in one round."""

    configuration: str
    load: Load
    round: int  # from 0
    window_s: float
    tok_s: float  # of all requests together
    per_request_tok_s: float | None
    latency_s: Percentiles | None  # of whole requests
    ttft_s: Percentiles | None
    itl_s: Percentiles | None
    accepted_length: float | None  # where the server reports it
    in_flight: float  # requests, on average over the window
    client_cpu_share: float  # of one core
    event_loop_lag_s: float  # the worst that was seen
    samples: list[RequestSample]


class Configuration(msgspec.Struct, frozen=True):
    """What was measured, as far as a reader needs it to repeat it."""

    name: str
    command: list[str] | None  # None: a server that was running
    url: str
    engine: str  # "slipstream", "vllm", "sglang", "llama-server", "tensorrt-llm" or "unknown"
    model: str  # as the server names it
    draft_tokens: int | None  # K, the root not counted; 0 is off, None: nobody knows or it adapts
    versions: dict[str, str] = {}


class Difference(msgspec.Struct, frozen=True):
    """Of the answers of two configurations to the same prompts at temperature 0."""

    configuration: str
    baseline: str
    compared: int
    different: int
    first_prompt: str | None = None
    first: tuple[str, str] | None = None  # baseline's and the other's text, around where they part


class Failure(msgspec.Struct, frozen=True):
    """A configuration that could not be measured, or not to the end."""

    configuration: str
    load: Load | None  # None: it never became ready
    round: int
    reason: str  # for people, may have the last lines of a log


class Settings(msgspec.Struct, frozen=True):
    """How it was measured."""

    prompts: str
    max_tokens: int
    temperature: float
    ignore_eos: bool
    rounds: Annotated[int, Meta(ge=1)]  # at most; a load may stop early
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    side_by_side: bool = False
    repeated_prompts: bool = False
    stop_early: bool = True  # a load may end before its last round; its intervals pay for the look


class Results(msgspec.Struct):
    """Everything. ``configurations[0]`` is the baseline."""

    created: str  # ISO 8601, UTC
    slipstream: str  # version
    hardware: dict[str, str]
    settings: Settings
    configurations: Annotated[list[Configuration], Meta(min_length=1)]
    loads: list[Load]
    measurements: list[Measurement] = []
    differences: list[Difference] = []
    failures: list[Failure] = []
    notes: list[str] = []  # about the measuring: saturation, answers of unequal length, ...
    stopped_early: dict[str, str] = {}  # label of a load: why
    complete: bool = False
    format: int = FORMAT


def read(path: Path) -> Results:
    """Raises ``UserError`` if there is no such document."""
    try:
        results = msgspec.json.decode(path.read_bytes(), type=Results)
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is no verdict's JSON: {error}") from error
    if results.format != FORMAT:
        raise UserError(f"{path} has format {results.format}; this version reads {FORMAT}")
    return results


def write(path: Path, results: Results) -> None:
    """Whole or not at all, unless the path is a device or a pipe."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=1)
    path = path.resolve()  # a link stays one
    if path.exists() and not path.is_file():
        path.write_bytes(text)
        return
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(text)
    partial.replace(path)
