"""Tokens become text: stop strings, held-back text, and where exactly a choice ends.

Pure: one ``TextOutput`` per choice takes what the engine emitted, whatever the number of tokens
per step, and gives the same text, tokens and log probabilities for any such cutting.
"""

from collections.abc import Sequence

import msgspec

from slipstream.engine.messages import TokenLogprobs
from slipstream.models.detokenizer import Detokenizer


class Piece(msgspec.Struct):
    """What one or several steps added to a choice.

    ``text`` may lag behind ``token_ids`` while it might still turn into a stop string. Where log
    probabilities were asked for, ``text_offsets`` are characters from the start of the choice, one
    per token.
    """

    text: str = ""
    token_ids: list[int] = []
    logprobs: list[TokenLogprobs] = []
    text_offsets: list[int] = []
    finish_reason: str | None = None  # "stop" or "length"
    stop_reason: str | int | None = None  # the stop string or stop token id


class TextOutput:
    """The text of one choice, cut at the first stop string.

    The token that completes a stop string is the choice's last: it and those before it are
    counted and keep their log probabilities; the text ends before the stop string.
    """

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str] = ()) -> None:
        self._detokenizer = detokenizer
        self._stop = stop
        self._held = ""  # may become a stop string
        self._length = 0  # characters so far, the held ones included
        self._piece = Piece()  # not taken yet
        self._textless = False  # the text of its tokens is still to be made

    @property
    def finish_reason(self) -> str | None:
        """Why the piece that is to be taken is the choice's last, if it is."""
        return self._piece.finish_reason

    def push(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] | None = None,
        finish: str | None = None,
    ) -> int:
        """Add tokens; how many of them count: after a stop string the rest is dropped.

        ``finish`` is the engine's: with "stop" the last token is a stop token, which is counted
        but not shown.
        """
        piece = self._piece
        if not self._stop and logprobs is None:
            # No single token matters, so text can wait until somebody wants it.
            piece.token_ids += token_ids
            piece.finish_reason = finish
            if finish == "stop":
                piece.stop_reason = token_ids[-1]
            self._textless = True
            return len(token_ids)
        last = len(token_ids) - 1
        for index, token_id in enumerate(token_ids):
            piece.token_ids.append(token_id)
            piece.text_offsets.append(self._length)
            if logprobs is not None:
                piece.logprobs.append(logprobs[index])
            if finish == "stop" and index == last:
                piece.stop_reason = token_id
            elif self._append(self._detokenizer.push((token_id,)), piece):
                return index + 1
        if finish is not None:
            self._end(finish, piece)
        return len(token_ids)

    def take(self) -> Piece:
        """What was added since the last call."""
        piece, self._piece = self._piece, Piece()
        if self._textless:
            self._make_text(piece)
        return piece

    def _make_text(self, piece: Piece) -> None:
        """The text of a piece's tokens, of all at once."""
        shown = piece.token_ids if piece.stop_reason is None else piece.token_ids[:-1]
        piece.text = self._detokenizer.push(shown)
        if piece.finish_reason is not None:
            piece.text += self._detokenizer.finish()
        self._textless = False

    def _append(self, text: str, piece: Piece) -> bool:
        """Add ``text``, as far as it is safe to show; True when a stop string ended the choice."""
        if not text:
            return False
        self._length += len(text)
        text = self._held + text
        found = [(text.find(stop), stop) for stop in self._stop]
        found = [(at, stop) for at, stop in found if at >= 0]
        if found:
            at, stop = min(found)
            piece.text += text[:at]
            piece.finish_reason, piece.stop_reason = "stop", stop
            return True
        safe = min((_partial(text, stop) for stop in self._stop), default=len(text))
        piece.text += text[:safe]
        self._held = text[safe:]
        return False

    def _end(self, finish: str, piece: Piece) -> None:
        if self._append(self._detokenizer.finish(), piece):
            return
        piece.text += self._held
        piece.finish_reason = finish


def _partial(text: str, stop: str) -> int:
    """Where the longest end of ``text`` that begins ``stop`` starts; ``len(text)`` if none does."""
    at = max(0, len(text) - len(stop) + 1)
    while (at := text.find(stop[0], at)) >= 0:
        if stop.startswith(text[at:]):
            return at
        at += 1
    return len(text)
