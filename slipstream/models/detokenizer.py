"""Tokens back to text, one at a time, for streaming."""

import codecs
import json
import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Protocol

import tokenizers

from slipstream.errors import UserError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Detokenizer(Protocol):
    """Text of one growing sequence. All that ``push`` and ``finish`` return, joined, is the text
    of all ids decoded at once; what a later token could still change is held back."""

    def push(self, token_ids: Iterable[int]) -> str:
        """Add tokens; returns the text that is certain now."""

    def finish(self) -> str:
        """No more tokens come; returns the text held back."""


class TokenBytes(dict[int, bytes]):
    """The bytes that each token stands for, empty for ids that are no tokens, as padded
    vocabularies have; worked out at first use. ``special`` are the control tokens, which text for
    people leaves out; ``strips_space`` tells that a text loses its first
    blank, which SentencePiece had put there.

    Raises ``UserError`` for a tokenizer that is neither byte-level nor SentencePiece-like.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        steps = _decoder_steps(backend)
        kinds = [step["type"] for step in steps]
        self.byte_level = kinds == ["ByteLevel"]
        self.strips_space = "Strip" in kinds
        if not self.byte_level and kinds not in (
            ["Replace", "ByteFallback", "Fuse"],
            ["Replace", "ByteFallback", "Fuse", "Strip"],
        ):
            raise UserError(
                f"tokenizer.json decodes with {', '.join(kinds) or 'nothing'}; supported are "
                "byte-level and SentencePiece decoders"
            )
        added = backend.get_added_tokens_decoder()
        self.special = frozenset(id for id, token in added.items() if token.special)

    def is_token(self, token_id: int) -> bool:
        """Whether the tokenizer has this id; padded vocabularies have more ids than tokens."""
        return self._backend.id_to_token(token_id) is not None

    def byte_of(self, token_id: int) -> int | None:
        """The byte that a SentencePiece byte token stands for; None for all other tokens."""
        if self.byte_level:
            return None
        found = _BYTE_TOKEN.fullmatch(self._backend.id_to_token(token_id) or "")
        return int(found[1], 16) if found else None

    def __missing__(self, token_id: int) -> bytes:
        self[token_id] = self._compute(token_id)
        return self[token_id]

    def _compute(self, token_id: int) -> bytes:
        token = self._backend.id_to_token(token_id)
        if token is None:
            return b""
        if not self.byte_level:
            byte = self.byte_of(token_id)
            return token.replace("▁", " ").encode() if byte is None else bytes([byte])
        if all(letter in _BYTE_OF_LETTER for letter in token):
            return bytes(_BYTE_OF_LETTER[letter] for letter in token)
        return token.encode()


class ByteLevelDetokenizer:
    """For byte-level tokenizers: holds back bytes that are the start of a character."""

    def __init__(self, token_bytes: TokenBytes, *, skip_special_tokens: bool) -> None:
        self._bytes = token_bytes
        self._hidden: AbstractSet[int] = token_bytes.special if skip_special_tokens else frozenset()
        self._rest = b""  # of a character

    def push(self, token_ids: Iterable[int]) -> str:
        """See ``Detokenizer``."""
        shown = [self._bytes[i] for i in token_ids if i not in self._hidden]
        return self._decode(self._rest + b"".join(shown), final=False)

    def finish(self) -> str:
        """See ``Detokenizer``."""
        return self._decode(self._rest, final=True)

    def _decode(self, raw: bytes, final: bool) -> str:
        text, used = codecs.utf_8_decode(raw, "replace", final)
        self._rest = raw[used:]
        return text


class SentencePieceDetokenizer:
    """For SentencePiece tokenizers: holds back a run of byte tokens until it ends, because one bad
    byte turns the whole run into replacement characters."""

    def __init__(self, token_bytes: TokenBytes, *, skip_special_tokens: bool) -> None:
        self._bytes = token_bytes
        self._hidden: AbstractSet[int] = token_bytes.special if skip_special_tokens else frozenset()
        self._run = bytearray()
        self._strip = token_bytes.strips_space

    def push(self, token_ids: Iterable[int]) -> str:
        """See ``Detokenizer``."""
        text = ""
        for id in token_ids:
            if id in self._hidden:
                continue
            byte = self._bytes.byte_of(id)
            if byte is not None:
                self._run.append(byte)
            elif self._bytes.is_token(id):  # other ids do not end a run of bytes
                text += self._end_run() + self._bytes[id].decode()
        return self._strip_first(text)

    def finish(self) -> str:
        """See ``Detokenizer``."""
        return self._strip_first(self._end_run())

    def _end_run(self) -> str:
        run, self._run = bytes(self._run), bytearray()
        try:
            return run.decode()
        except UnicodeDecodeError:
            return "\N{REPLACEMENT CHARACTER}" * len(run)

    def _strip_first(self, text: str) -> str:
        if self._strip and text:
            self._strip = False
            return text.removeprefix(" ")
        return text


def _decoder_steps(backend: tokenizers.Tokenizer) -> list[dict[str, str]]:
    decoder = json.loads(backend.to_str())["decoder"] or {"type": "Sequence", "decoders": []}
    steps: list[dict[str, str]] = (
        decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    )
    return steps


def byte_letters() -> dict[str, int]:
    """The letter by which byte-level vocabularies write each byte: printable ones as they are, the
    others as the letters from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in printable}
    hidden = [byte for byte in range(256) if byte not in printable]
    return letters | {chr(256 + index): byte for index, byte in enumerate(hidden)}


_BYTE_OF_LETTER = byte_letters()
