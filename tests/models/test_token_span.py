"""No text has fewer tokens than its length says it must have."""

import random
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from slipstream.models.detokenizer import byte_letters
from slipstream.models.token_span import TokenSpan
from slipstream.models.tokenizer import load_tokenizer

PARTS = [
    "\n" + " " * 80,
    "a",
    "é",
    "e\u0301",
    "日本",
    "🙂",
    "\x04",
    "<|im_start|>",
    " the",
    "\u1f82",
]


def span(backend: Tokenizer) -> TokenSpan:
    return TokenSpan.of(backend, backend.get_vocab(with_added_tokens=True))


def byte_level() -> Tokenizer:
    letters = list(byte_letters())
    backend = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return backend


def test_no_text_of_the_default_model_has_fewer(default_gguf: Path) -> None:
    tokenizer = load_tokenizer(str(default_gguf))
    generator = random.Random(0)
    for _ in range(200):
        text = "".join(generator.choices(PARTS, k=generator.randint(0, 30)))
        assert tokenizer.fewest_tokens(text) <= len(tokenizer.encode(text))
    longest = PARTS[0] * 100
    assert tokenizer.fewest_tokens(longest) == len(tokenizer.encode(longest)) == 100


def test_composing_makes_text_shorter() -> None:
    backend = byte_level()
    backend.normalizer = normalizers.NFC()
    for text in ("\u1100\u1161\u11a8" * 9, "\u03b1\u0313\u0300\u0345" * 9, "\U0002f800" * 9):
        assert 0 < span(backend).fewest_tokens(text) <= len(backend.encode(text).ids)


@pytest.mark.parametrize("normalizer", [normalizers.Strip(), normalizers.Replace("aa", "a")])
def test_no_bound_where_text_may_be_dropped(normalizer: normalizers.Normalizer) -> None:
    backend = byte_level()
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizer])
    assert span(backend).longest is None


def test_no_bound_where_a_token_swallows_blanks() -> None:
    backend = byte_level()
    backend.add_tokens([AddedToken("<mask>", lstrip=True)])
    assert span(backend).longest is None
    assert span(backend).fewest_tokens("x" * 99) == 0


def test_no_bound_where_unknown_text_is_one_token() -> None:
    backend = Tokenizer(models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>", fuse_unk=True))
    assert span(backend).longest is None
