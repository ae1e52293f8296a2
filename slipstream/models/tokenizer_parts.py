"""What any checkpoint format must supply to make a tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import tokenizers
from tokenizers.processors import TemplateProcessing

from slipstream.errors import UserError


@dataclass(frozen=True)
class TokenizerParts:
    """A ready ``tokenizers`` pipeline and what stands beside it.

    ``special_tokens`` maps names such as ``bos_token`` to their text, as chat templates expect.
    ``chat_template`` is Jinja source, or None for a model without one.
    """

    backend: tokenizers.Tokenizer
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    chat_template: str | None = None


def bos_eos_template(
    backend: tokenizers.Tokenizer, bos: str | None, eos: str | None
) -> TemplateProcessing:
    """Puts ``bos`` before and ``eos`` behind every text, where they are given."""
    around = [token for token in (bos, eos) if token is not None]
    special = [(token, backend.token_to_id(token)) for token in around]
    if missing := [token for token, id in special if id is None]:
        raise UserError(f"the tokenizer should add {missing[0]!r} to texts but does not know it")
    single = [piece for piece in (bos, "$A", eos) if piece is not None]
    return TemplateProcessing(single=single, special_tokens=special)
