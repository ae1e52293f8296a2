"""What a client may ask of one request, as plain data that crosses the process boundary."""

import msgspec

from slipstream.speculation.policy.settings import Speculation as Speculation
from slipstream.speculation.tree import TreeShape as TreeShape


class SamplingParams(msgspec.Struct, frozen=True):
    """Everything that decides a request's tokens, besides the model and the tokens before them.

    ``temperature`` 0 is argmax. ``stop_token_ids`` already contains the model's end tokens unless
    the client asked to ignore them; the stop token itself is emitted and counted, never shown.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 keeps the whole vocabulary
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # over prompt and output
    presence_penalty: float = 0.0  # over the output
    frequency_penalty: float = 0.0  # over the output
    logit_bias: dict[int, float] = {}
    seed: int = 0  # unsigned 64 bits
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None  # None: none; k: the emitted token's and the k best
    speculation: Speculation | None = None  # None: as the server was started

    @property
    def adjusts_logits(self) -> bool:
        """Penalties or bias make a row's token depend on the tokens before it."""
        return bool(
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
            or self.logit_bias
        )
