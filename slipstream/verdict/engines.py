"""What a server says of itself: which engine it is, its version, how much of its drafts it accepts.

Engines name themselves as the owner of the models they list; versions have an address of their own
in each (vLLM ``/version``, SGLang ``/server_info``, formerly ``/get_server_info``, llama-server
``/props``).
"""

import asyncio
from dataclasses import dataclass, replace

import msgspec

from slipstream import __version__
from slipstream.bench.http import Connection, Endpoint
from slipstream.bench.server_metrics import read_metrics, total
from slipstream.errors import UserError

_TIMEOUT_S = 30.0

_OWNERS = {
    "slipstream": "slipstream",
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama-server",
    "tensorrt_llm": "tensorrt-llm",
}
_VERSIONS = {
    "vllm": (("/version", "version"),),
    "sglang": (("/server_info", "version"), ("/get_server_info", "version")),
    "llama-server": (("/props", "build_info"),),
    "tensorrt-llm": (("/version", "version"),),
}


class _Model(msgspec.Struct):
    owned_by: str = ""


class _Models(msgspec.Struct):
    data: list[_Model] = []


@dataclass(frozen=True)
class Identity:
    """An engine's name, as in ``results.Configuration``, and the versions of what runs."""

    engine: str
    versions: dict[str, str]


async def identify(endpoint: Endpoint, known: str) -> Identity:
    """Who answers there; ``known`` is what one knows already, or "unknown"."""
    engine = known
    if engine == "unknown":
        try:
            models = msgspec.json.decode(await _get(endpoint, "/models"), type=_Models)
            owners = {model.owned_by.lower() for model in models.data}
        except (OSError, UserError, msgspec.DecodeError):
            owners = set()
        engine = next((_OWNERS[owner] for owner in owners if owner in _OWNERS), "unknown")
    if engine == "slipstream":
        return Identity(engine, {engine: __version__})
    for path, key in _VERSIONS.get(engine, ()):
        try:
            found = msgspec.json.decode(await _get(replace(endpoint, base=""), path))
        except (OSError, UserError, msgspec.DecodeError):
            continue
        if isinstance(found, dict) and isinstance(found.get(key), str):
            return Identity(engine, {engine: found[key]})
    return Identity(engine, {})


async def _get(endpoint: Endpoint, path: str) -> bytes:
    connection = Connection(endpoint)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            request = endpoint.request("GET", path)
            response = await connection.exchange(request, lambda piece, now: None)
    finally:
        connection.close()
    if response.status != 200:
        raise UserError(f"HTTP {response.status}")
    return response.body


@dataclass(frozen=True)
class Drafted:
    """Counters of a server since its start."""

    steps: float  # of single requests, in which something was drafted
    accepted: float  # draft tokens

    def length_since(self, before: "Drafted") -> float | None:
        """The accepted length in between; None where nothing was drafted."""
        steps = self.steps - before.steps
        return 1 + (self.accepted - before.accepted) / steps if steps > 0 else None


async def drafted(endpoint: Endpoint, engine: str) -> Drafted | None:
    """vLLM's counters. Slipstream says the accepted length in each answer, others do not at all."""
    if engine != "vllm":
        return None
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            found = await read_metrics(endpoint)
    except (OSError, UserError, ValueError):
        return None
    steps = total(found, "vllm:spec_decode_num_drafts_total")
    accepted = total(found, "vllm:spec_decode_num_accepted_tokens_total")
    return None if steps is None or accepted is None else Drafted(steps, accepted)
