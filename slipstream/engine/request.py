"""One request's life inside the engine, as data."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slipstream.engine.params import SamplingParams
from slipstream.memory.prefix_cache import CachedPage
from slipstream.speculation.policy.settings import OFF, Speculation


@dataclass(slots=True, eq=False)
class Request:
    """Tokens known, tokens committed, pages held.

    Positions ``0 .. committed - 1`` have their K and V in the pages, in logical order; the tokens
    from there to ``length`` are known and still to be computed. Preemption sets ``committed`` to 0
    and gives the pages back; nothing else has to be remembered.
    """

    id: int
    params: SamplingParams
    prompt_length: int
    buffer: NDArray[np.int32]  # [prompt + max_tokens]
    length: int  # tokens known: the prompt and the output so far
    adjusts_logits: bool  # as its params say
    speculation: Speculation = OFF
    committed: int = 0
    pages: list[int] = field(default_factory=list)
    cached: list[CachedPage] = field(default_factory=list)  # the first pages, shared by the cache
    cached_tokens: int | None = None  # at its first admission

    @classmethod
    def start(cls, id: int, token_ids: list[int], params: SamplingParams) -> "Request":
        buffer = np.zeros(len(token_ids) + params.max_tokens, dtype=np.int32)
        buffer[: len(token_ids)] = token_ids
        known = len(token_ids)
        return cls(id, params, known, buffer, known, params.adjusts_logits)

    @property
    def tokens(self) -> NDArray[np.int32]:
        """All known tokens, a view."""
        return self.buffer[: self.length]

    @property
    def pending(self) -> int:
        """Known tokens whose K and V are still to be computed, at least 1."""
        return self.length - self.committed

    @property
    def remaining(self) -> int:
        """Tokens it may still emit."""
        return len(self.buffer) - self.length

    def append(self, token: int) -> str | None:
        """Take an emitted token; why the request ends with it, or None."""
        self.buffer[self.length] = token
        self.length += 1
        if token in self.params.stop_token_ids:
            return "stop"
        return "length" if self.length == len(self.buffer) else None
