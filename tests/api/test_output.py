"""Tokens to text, with tokens that are characters or parts of them."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.api.output import Piece, TextOutput
from slipstream.engine.messages import TokenLogprobs

END = 256


class ByteDetokenizer:
    """Token ids are bytes; incomplete characters wait for the rest."""

    def __init__(self) -> None:
        self._bytes = b""

    def push(self, token_ids: Iterable[int]) -> str:
        self._bytes += bytes(token_ids)
        try:
            text = self._bytes.decode()
        except UnicodeDecodeError:
            return ""
        self._bytes = b""
        return text

    def finish(self) -> str:
        text, self._bytes = self._bytes.decode("utf-8", "replace"), b""
        return text


def run(steps: list[list[int]], stop: list[str], finish: str = "length") -> tuple[Piece, list[str]]:
    """Everything put together, and the text of each step."""
    whole, texts = TextOutput(ByteDetokenizer(), stop), []
    single = TextOutput(ByteDetokenizer(), stop)
    for number, step in enumerate(steps):
        logprobs = [TokenLogprobs(-float(token), []) for token in step]
        end = finish if number == len(steps) - 1 else None
        kept = whole.push(step, logprobs, end)
        assert kept == single.push(step, logprobs, end)
        piece = single.take()
        assert len(piece.token_ids) == kept
        texts.append(piece.text)
        if whole.finish_reason:
            break
    return whole.take(), texts


def test_a_stop_string_cuts_text_tokens_and_logprobs_inside_a_step() -> None:
    piece, _ = run([list(b"one STOP two")], ["STOP"])
    assert piece.text == "one "
    assert bytes(piece.token_ids) == b"one STOP"
    assert [entry.logprob for entry in piece.logprobs] == [-float(b) for b in b"one STOP"]
    assert piece.text_offsets == list(range(8))
    assert (piece.finish_reason, piece.stop_reason) == ("stop", "STOP")


def test_what_may_become_a_stop_string_is_held_back_and_released() -> None:
    _, texts = run([list(b"ab"), list(b"S"), list(b"T"), list(b"x"), list(b"ST")], ["STOP"])
    assert texts == ["ab", "", "", "STx", "ST"]


def test_the_earliest_stop_string_wins() -> None:
    piece, _ = run([list(b"abcd")], ["d", "bc"])
    assert (piece.text, piece.stop_reason) == ("a", "bc")


def test_a_shorter_stop_string_inside_the_beginning_of_a_longer_one() -> None:
    piece, _ = run([list(b"xab")], ["abc", "b"])
    assert (piece.text, piece.stop_reason) == ("xa", "b")


def test_a_stop_token_is_counted_and_not_shown() -> None:
    output = TextOutput(ByteDetokenizer(), ["never"])
    assert output.push([*b"hi n", END], finish="stop") == 5
    piece = output.take()
    assert piece.text == "hi n"
    assert piece.token_ids == [*b"hi n", END]
    assert (piece.finish_reason, piece.stop_reason) == ("stop", END)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_split_over_tokens_comes_out_whole(cut: int) -> None:
    raw = "a🙂b".encode()
    piece, texts = run([list(raw[:cut]), list(raw[cut:])], [])
    assert piece.text == "a🙂b"
    assert "\ufffd" not in "".join(texts)


def test_an_unfinished_character_at_the_end_is_replaced() -> None:
    piece, _ = run([list("é".encode()[:1])], [])
    assert piece.text == "\ufffd"


@given(st.text("ab🙂", min_size=1), st.booleans(), st.data())
def test_text_made_late_is_the_same(text: str, stops: bool, data: st.DataObject) -> None:
    output = TextOutput(ByteDetokenizer())
    raw = [*text.encode(), *([END] if stops else [])]
    shown = ""
    for number, token in enumerate(raw, start=1):
        finish = ("stop" if stops else "length") if number == len(raw) else None
        assert output.push([token], finish=finish) == 1
        if finish or data.draw(st.booleans()):
            piece = output.take()
            shown += piece.text
    assert (shown, piece.finish_reason) == (text, "stop" if stops else "length")
    assert piece.stop_reason == (END if stops else None)


texts = st.text(alphabet="ab🙂", max_size=12)


@given(texts, st.lists(st.text("ab🙂", min_size=1, max_size=4), max_size=3), st.data())
def test_any_cutting_into_steps_gives_the_same(
    text: str, stop: list[str], data: st.DataObject
) -> None:
    raw = list(text.encode()) or [97]
    cuts = [*sorted(data.draw(st.sets(st.integers(1, len(raw))))), len(raw)]
    steps = [raw[a:b] for a, b in zip([0, *cuts], cuts, strict=False) if a < b]
    whole, shown = run(steps, stop)
    single, _ = run([[token] for token in raw], stop)
    assert whole == single
    assert "".join(shown) == whole.text
    ends = [text.find(s) + len(s) for s in stop if s in text]
    if ends and len(text):
        assert whole.finish_reason == "stop"
        assert len(bytes(whole.token_ids).decode()) == min(ends)
        assert not any(s in whole.text for s in stop)
    elif text:
        assert (whole.text, whole.finish_reason) == (text, "length")
