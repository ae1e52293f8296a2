"""Reading an answer: token events out of an event stream or a whole JSON document."""

from typing import Any

import msgspec

from slipstream.bench.samples import Sample, TokenEvents


class _Extension(msgspec.Struct, gc=False):
    accepted_length: float | None = None


class _Usage(msgspec.Struct, gc=False):
    completion_tokens: int = 0
    slipstream: _Extension | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, gc=False):
    """The fields we need of a chunk, and of a whole answer: the decoder skips all others."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


class _ErrorBody(msgspec.Struct):
    message: str = ""


class _ErrorDocument(msgspec.Struct):
    error: _ErrorBody | str | None = None
    message: str | None = None


def error_text(body: bytes) -> str:
    """What an error answer says, in one line of at most 300 characters."""
    text = ""
    try:
        document = msgspec.json.decode(body, type=_ErrorDocument)
        error = document.error
        text = error.message if isinstance(error, _ErrorBody) else error or document.message or ""
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    return " ".join((text or body.decode(errors="replace")).split())[:300]


class Answer:
    """What has come of one answer so far.

    While a stream runs its pieces are only noted: reading them together, later, takes half the
    time, and the load generator shares the processor with what it measures.
    """

    def __init__(self) -> None:
        self.error: str | None = None
        self._finished = False
        self._unread: list[tuple[bytes, float]] = []  # pieces, and when they came
        self._rest = b""  # of a line
        self._counted = TokenEvents()  # where usage says that tokens were added
        self._texts = TokenEvents()  # where text came: one each, whatever it stands for
        self._usage_tokens = 0
        self._usage_steps = 0  # how often usage went up
        self._accepted_length: float | None = None

    @property
    def received(self) -> int:
        """Tokens so far, as far as one can tell."""
        self._read()
        return max(self._usage_tokens, int(self._texts.total()))

    def feed(self, piece: bytes, now: float) -> None:
        """Take the next piece of the event stream, which came ``now``."""
        self._unread.append((piece, now))

    def _read(self) -> None:
        unread, self._unread = self._unread, []
        for piece, now in unread:
            lines = (self._rest + piece).split(b"\n")
            self._rest = lines.pop()
            for line in lines:
                if line.startswith(b"data:"):
                    self._event(line[5:], now)

    def _event(self, data: bytes, now: float) -> None:
        if data.strip() == b"[DONE]":
            self._finished = True
            return
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.error = self.error or f"unreadable chunk: {error}"
            return
        if chunk.error is not None:
            self.error = self.error or error_text(data)
        for choice in chunk.choices or ():
            delta = choice.delta
            if delta and (delta.content or delta.reasoning_content or delta.reasoning):
                self._texts.add(now, 1)
            if choice.finish_reason:
                self._finished = True
        if chunk.usage:
            self._read_usage(chunk.usage, now)

    def _read_usage(self, usage: _Usage, now: float) -> None:
        if usage.completion_tokens > self._usage_tokens:
            self._counted.add(now, usage.completion_tokens - self._usage_tokens)
            self._usage_tokens = usage.completion_tokens
            self._usage_steps += 1
        if usage.slipstream and usage.slipstream.accepted_length:
            self._accepted_length = usage.slipstream.accepted_length

    def complete_stream(self, sample: Sample) -> None:
        """Put the events of a stream that has ended, or was cut off, into its sample."""
        self._read()
        chunks = self._texts.total()
        if self._usage_steps > 1 or (self._usage_steps and not chunks):
            sample.events = self._counted
        elif self._usage_steps:  # known at the end only: every chunk gets the same share
            self._texts.scale(self._usage_tokens / chunks)
            sample.events = self._texts
            sample.token_source = "final usage" if chunks > 1 else "usage"
        else:
            sample.events, sample.token_source = self._texts, "chunks"
        sample.accepted_length = self._accepted_length
        sample.error = self.error
        if sample.cut_off:
            return
        if not self._finished:
            sample.error = sample.error or "the stream ended before the answer was finished"
        elif not sample.events.times:
            sample.error = sample.error or "the answer holds no token"

    def complete_whole(self, body: bytes, sample: Sample) -> None:
        """Spread the tokens of an answer that came in one piece over its request's life.

        One token each time an equal part of the time has passed, the last one at the end.
        """
        sample.streamed, sample.token_source = False, "final usage"
        try:
            document = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            sample.error = f"unreadable answer: {error}"
            return
        usage = document.usage
        if document.error is not None:
            sample.error = error_text(body)
        elif usage is None:
            sample.error = "the answer has no usage, so its tokens cannot be counted"
        if usage is None or sample.error:
            return
        self._read_usage(usage, sample.end)
        sample.accepted_length = self._accepted_length
        life = sample.end - sample.start
        for index in range(1, self._usage_tokens + 1):
            sample.events.add(sample.start + life * index / self._usage_tokens, 1)
        if not self._usage_tokens:
            sample.error = "the answer holds no token"
