"""How much text one token can stand for at most: a text's length alone may refuse it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tokenizers

from slipstream.models.detokenizer import byte_letters

_COMPOSED = 4  # bytes that NFC makes one of, at most


@dataclass(frozen=True)
class TokenSpan:
    """``longest`` is the most bytes of UTF-8 that a token stands for; the bytes in ``lost`` may be
    in no token. ``longest`` None: there is no such bound, because a step may drop characters, or
    a token swallow the blanks around it."""

    longest: int | None
    lost: bytes = b""

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer, vocabulary: Mapping[str, int]) -> "TokenSpan":
        """``vocabulary`` has the added tokens, too."""
        shrinkage = _normalizer_shrinkage(_state(backend.normalizer))
        cutter = _state(backend.pre_tokenizer)
        added = backend.get_added_tokens_decoder().values()
        if shrinkage is None or not _keeps_all(cutter):
            return cls(None)
        if any(token.lstrip or token.rstrip for token in added):
            return cls(None)
        if "ByteLevel" in json.dumps(cutter):
            letters = byte_letters()
            lost = bytes(byte for letter, byte in letters.items() if letter not in vocabulary)
            longest = max(map(len, vocabulary))  # a letter a byte, but not in added tokens
            longest = max([longest, *(len(token.content.encode()) for token in added)])
            return cls(shrinkage * longest, lost)
        if all(f"<0x{byte:02X}>" in vocabulary for byte in range(256)):
            return cls(shrinkage * max(len(token.encode()) for token in vocabulary))
        return cls(None)

    def fewest_tokens(self, text: str) -> int:
        """A number of tokens that ``text`` has at least."""
        if self.longest is None:
            return 0
        return -(-len(text.encode().translate(None, self.lost)) // self.longest)


def _state(step: Any) -> dict[str, Any] | None:
    return None if step is None else json.loads(step.__getstate__())


def _normalizer_shrinkage(state: dict[str, Any] | None) -> int | None:
    """How many bytes become one at most; None where that is not known."""
    match state:
        case None | {"type": "Prepend"}:
            return 1
        case {"type": "NFC"}:
            return _COMPOSED
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
            return 1 if len(new) >= len(old) else None
        case {"type": "Sequence", "normalizers": [first, *rest]}:
            shrinkage = _normalizer_shrinkage(first)
            others = _normalizer_shrinkage({"type": "Sequence", "normalizers": rest})
            return None if shrinkage is None or others is None else shrinkage * others
        case {"type": "Sequence"}:
            return 1
    return None


def _keeps_all(state: dict[str, Any] | None) -> bool:
    """Whether cutting a text loses none of it."""
    match state:
        case None | {"type": "ByteLevel" | "Digits" | "Metaspace"}:
            return True
        case {"type": "Split", "behavior": behavior}:
            return bool(behavior != "Removed")
        case {"type": "Sequence", "pretokenizers": [*steps]}:
            return all(map(_keeps_all, steps))
    return False
