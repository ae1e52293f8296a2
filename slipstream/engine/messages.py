"""What the HTTP process and the engine process say to each other.

Frames on a local stream socket: four bytes of length (little endian), then one msgpack document.
Each side sends at most one frame per step.
"""

import msgspec

from slipstream.engine.params import SamplingParams


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """A request to run. ``id`` is chosen by the HTTP process and never reused."""

    id: int
    token_ids: list[int]
    params: SamplingParams


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Nobody wants this request's tokens any more; unknown or finished ids are ignored."""

    id: int


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Finish what is running, then exit with status 0."""


class Commands(msgspec.Struct, frozen=True, tag="commands"):
    """HTTP process to engine: what happened since the last frame, in order."""

    commands: list[Submit | Cancel | Drain]


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log probabilities at one emitted token, of the model's own distribution.

    That is: before penalties, bias, temperature and truncation.
    """

    logprob: float
    top: list[tuple[int, float]]  # (token id, logprob), best first


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """The tokens one request emitted in one step (its accepted length is their number)."""

    id: int
    token_ids: list[int]
    finish: str | None = None  # "stop": a stop token id, the last in token_ids; "length"
    logprobs: list[TokenLogprobs] | None = None  # one per token, when asked for
    cached_tokens: int = 0  # prompt tokens that came from the prefix cache
    proposed: int = 0  # draft nodes of this step (the root not counted)


class EngineStats(msgspec.Struct, frozen=True):
    """Counters since start (``*_total``) and gauges of the moment."""

    steps_total: int = 0
    rows_total: int = 0
    prompt_tokens_total: int = 0  # computed, so without those that the prefix cache gave
    cached_tokens_total: int = 0
    generated_tokens_total: int = 0
    draft_nodes_total: int = 0
    accepted_nodes_total: int = 0
    preemptions_total: int = 0
    evicted_pages_total: int = 0
    step_seconds_total: float = 0.0
    drafted_nodes_total: int = 0  # before the policy left out those that are not worth their rows
    draft_seconds_total: float = 0.0
    expected_step_seconds_total: float = 0.0  # without drafting
    expected_tokens_total: float = 0.0  # of requests whose speculation adapts
    running: int = 0
    waiting: int = 0
    pages: int = 0
    pages_free: int = 0
    pages_cached: int = 0  # held by the prefix cache alone, so evictable
    speculation: str = "idle"  # why it is on or off, for people


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Engine to HTTP process, once: a request would succeed now."""

    kernels: str  # what computes, for people
    max_model_len: int  # prompt and output together, in tokens
    max_running_requests: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Engine to HTTP process: it cannot start; exit status 2 follows. One line for people."""

    message: str


class Report(msgspec.Struct, frozen=True, tag="report"):
    """Engine to HTTP process: what one step brought."""

    deltas: list[Delta]
    stats: EngineStats


FromEngine = Ready | Failed | Report

encode = msgspec.msgpack.Encoder().encode
decode_commands = msgspec.msgpack.Decoder(Commands).decode
decode_from_engine = msgspec.msgpack.Decoder(FromEngine).decode


def frame(message: Commands | FromEngine) -> bytes:
    """The message as it goes over the socket."""
    body = encode(message)
    return len(body).to_bytes(4, "little") + body
