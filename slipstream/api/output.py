"""Tokens become text: stop strings, held-back text, and where exactly a choice ends.

Pure: one ``TextOutput`` per choice is fed what the engine emitted, whatever the number of tokens
per step, and gives the same text, tokens and log probabilities for any such cutting.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from slipstream.engine.messages import TokenLogprobs
from slipstream.models.detokenizer import Detokenizer


@dataclass(slots=True)
class Piece:
    """What one or several steps added to a choice.

    ``text`` may lag behind ``token_ids`` while it might still turn into a stop string. Where log
    probabilities were asked for, ``text_offsets`` are characters from the start of the choice, one
    per token.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    text_offsets: list[int] = field(default_factory=list)
    finish_reason: str | None = None  # "stop" or "length"
    stop_reason: str | int | None = None  # the stop string or stop token id

    def extend(self, later: "Piece") -> None:
        """Append what came after this piece."""
        self.text += later.text
        self.token_ids += later.token_ids
        self.logprobs += later.logprobs
        self.text_offsets += later.text_offsets
        self.finish_reason = later.finish_reason
        self.stop_reason = later.stop_reason


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
        self.finished = False

    @property
    def may_stop(self) -> bool:
        """Whether text can end the choice before the engine does."""
        return bool(self._stop)

    def feed(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] | None = None,
        finish: str | None = None,
    ) -> Piece:
        """What ``token_ids`` add; after a stop string the rest of them is dropped.

        ``finish`` is the engine's: with "stop" the last token is a stop token, which is counted
        but not shown.
        """
        if not self._stop and logprobs is None:
            return self._feed_plainly(token_ids, finish)
        piece = Piece()
        last = len(token_ids) - 1
        for index, token_id in enumerate(token_ids):
            piece.token_ids.append(token_id)
            piece.text_offsets.append(self._length)
            if logprobs is not None:
                piece.logprobs.append(logprobs[index])
            if finish == "stop" and index == last:
                piece.stop_reason = token_id
            elif self._append(self._detokenizer.push((token_id,)), piece):
                return piece
        if finish is not None:
            self._end(finish, piece)
        return piece

    def _feed_plainly(self, token_ids: Sequence[int], finish: str | None) -> Piece:
        """As ``feed`` where no single token matters: text is made of all of them at once."""
        shown, stop_reason = token_ids, None
        if finish == "stop":
            shown, stop_reason = token_ids[:-1], token_ids[-1]
        text = self._detokenizer.push(shown)
        if finish is not None:
            text += self._detokenizer.finish()
            self.finished = True
        self._length += len(text)
        return Piece(text, list(token_ids), finish_reason=finish, stop_reason=stop_reason)

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
            self.finished = True
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
        self.finished = True


def _partial(text: str, stop: str) -> int:
    """Where the longest end of ``text`` that begins ``stop`` starts; ``len(text)`` if none does."""
    at = max(0, len(text) - len(stop) + 1)
    while (at := text.find(stop[0], at)) >= 0:
        if stop.startswith(text[at:]):
            return at
        at += 1
    return len(text)
