"""What any checkpoint format must supply to make a tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import tokenizers


@dataclass(frozen=True)
class TokenizerParts:
    """A ready ``tokenizers`` pipeline and what stands beside it.

    ``special_tokens`` maps names such as ``bos_token`` to their text, as chat templates expect.
    ``chat_template`` is Jinja source, or None for a model without one.
    """

    backend: tokenizers.Tokenizer
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    chat_template: str | None = None
