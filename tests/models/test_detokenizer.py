"""Streamed text, joined, is the text of all tokens decoded at once."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.models.tokenizer import Tokenizer, load_tokenizer
from tests.models.test_tokenizer import sentencepiece_metadata
from tests.models.tiny import tiny_model
from tests.models.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="module")
def tokenizers_by_kind(
    tmp_path_factory: pytest.TempPathFactory, tiny_folders: dict[str, Path]
) -> dict[str, Tokenizer]:
    """A byte-level and a SentencePiece tokenizer."""
    metadata = sentencepiece_metadata()
    model = tiny_model(
        "llama", num_hidden_layers=1, vocab_size=len(metadata["tokenizer.ggml.tokens"])
    )
    path = tmp_path_factory.mktemp("spm") / "m.gguf"
    write_tiny_gguf(path, model, metadata=metadata)
    return {
        "byte-level": load_tokenizer(str(tiny_folders["llama"])),
        "sentencepiece": load_tokenizer(str(path)),
    }


def stream(tokenizer: Tokenizer, ids: list[int], cuts: list[int], skip: bool) -> list[str]:
    """Push ``ids`` in pieces that end at ``cuts``; the pieces of text."""
    detokenizer = tokenizer.detokenizer(skip_special_tokens=skip)
    ends = [*sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    starts = [0, *ends[:-1]]
    texts = [detokenizer.push(ids[a:b]) for a, b in zip(starts, ends, strict=True)]
    return [*texts, detokenizer.finish()]


@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece"])
@given(
    numbers=st.lists(st.integers(0, 2**31), max_size=24),
    cuts=st.lists(st.integers(0, 24), max_size=6),
    skip=st.booleans(),
)
def test_equals_decoding_at_once(
    kind: str,
    tokenizers_by_kind: dict[str, Tokenizer],
    numbers: list[int],
    cuts: list[int],
    skip: bool,
) -> None:
    tokenizer = tokenizers_by_kind[kind]
    ids = [number % (tokenizer.vocab_size + 5) for number in numbers]  # some are no tokens
    whole = tokenizer.decode(ids, skip_special_tokens=skip)
    assert "".join(stream(tokenizer, ids, cuts, skip)) == whole


@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece"])
@given(text=st.text(max_size=20))
def test_text_survives_token_by_token(
    kind: str, tokenizers_by_kind: dict[str, Tokenizer], text: str
) -> None:
    tokenizer = tokenizers_by_kind[kind]
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = stream(tokenizer, ids, list(range(len(ids))), skip=False)
    assert "".join(pieces) == tokenizer.decode(ids, skip_special_tokens=False)
    assert "\ufffd" not in "".join(pieces) or "\ufffd" in text


@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece"])
def test_incomplete_characters_are_held_back(
    kind: str, tokenizers_by_kind: dict[str, Tokenizer]
) -> None:
    tokenizer = tokenizers_by_kind[kind]
    ids = tokenizer.encode("t🙂", add_special_tokens=False)
    detokenizer = tokenizer.detokenizer()
    early = [detokenizer.push([i]) for i in ids[:-1]]
    assert "".join(early) == "t"
    assert detokenizer.push(ids[-1:]) + detokenizer.finish() == "🙂"
    detokenizer = tokenizer.detokenizer()
    detokenizer.push(ids[:-1])
    assert "\ufffd" in detokenizer.finish()


def test_an_id_that_is_no_token_does_not_end_a_run_of_bytes(
    tokenizers_by_kind: dict[str, Tokenizer],
) -> None:
    tokenizer = tokenizers_by_kind["sentencepiece"]
    tokens = sentencepiece_metadata()["tokenizer.ggml.tokens"]
    ids = [tokens.index("<0x00>"), len(tokens) + 1, tokens.index("<0x80>")]
    assert "".join(stream(tokenizer, ids, [1, 2], skip=False)) == "\ufffd\ufffd"
    assert tokenizer.decode(ids) == "\ufffd\ufffd"


def test_default_model_streams_what_it_decodes(default_gguf: Path) -> None:
    tokenizer = load_tokenizer("default")
    text = "Zwölf Boxkämpfer 🥊🥊 <|im_end|> 日本 1234\n\tdef f():  pass"
    ids = tokenizer.encode(text)
    for skip in (True, False):
        pieces = stream(tokenizer, ids, list(range(len(ids))), skip)
        assert "".join(pieces) == tokenizer.decode(ids, skip_special_tokens=skip)
