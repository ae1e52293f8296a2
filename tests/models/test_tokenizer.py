"""Token ids equal those of transformers."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from slipstream.errors import UserError
from slipstream.models.gguf_file import GGUFFile
from slipstream.models.tokenizer import load_tokenizer
from tests.models.tiny import make_tiny, tiny_model
from tests.models.tiny_gguf import write_tiny_gguf

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  two  leading and   three inner spaces \n\n\t tabs\r\nend ",
    "0 1 12 123 1234567890, 3.14159, 1e-05, 0xFF, 2024-01-31, a1b22c333",
    "  7   88    999",
    "½ ² ٣ ४२ Ⅷ ①",
    "🙂 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ok🙂ok",
    "def f(x: int) -> list[int]:\n    return [i**2 for i in range(x)]  # don't\n",
    '#include <stdio.h>\nint main(void) {\n\tprintf("%d\\n", 42);\n}\n',
    "naïve café, Ångström, ﬁne, e\u0301 against \u00e9",
    "Привет, мир! Καλημέρα κόσμε. שלום עולם. مرحبا بالعالم",
    "你好，世界。日本語のテキスト。한국어 텍스트 ทดสอบ हिन्दी",  # noqa: RUF001
    "I'm you're WE'LL they'd it's",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "a<|endoftext|>b <|im_end|> c <|not_a_token|>",
]


def default_as_published(path: Path) -> PreTrainedTokenizerFast:
    """The default model's vocabulary in the pipeline that SmolLM2's tokenizer.json publishes.

    transformers' own loading of this file knows no pre-tokenizer called ``smollm`` and cuts like
    GPT-2, which differs where blanks stand before digits; so it cannot be the reference.
    """
    metadata = GGUFFile(path).metadata
    vocab = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    backend = Tokenizer(models.BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    special = [token for token, i in vocab.items() if i < 17]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        unk_token="<|endoftext|>",
        pad_token="<|im_end|>",
        chat_template=metadata["tokenizer.chat_template"],
    )


def test_default_model_equals_transformers(default_gguf: Path) -> None:
    ours, theirs = load_tokenizer("default"), default_as_published(default_gguf)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text), text
        ids = theirs.encode(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
    assert ours.encode_all(TEXTS) == [ours.encode(text) for text in TEXTS]
    assert ours.vocab_size == 49152
    assert ours.eos_token_ids == (2,)


def test_default_model_where_transformers_reads_the_file_itself(default_gguf: Path) -> None:
    theirs = AutoTokenizer.from_pretrained(default_gguf.parent, gguf_file=default_gguf.name)
    ours = load_tokenizer("default")
    same = [text for text in TEXTS if ours.encode(text) == theirs.encode(text)]
    assert set(TEXTS) - set(same) == {"  7   88    999", "½ ² ٣ ४२ Ⅷ ①"}


def test_default_chat_equals_transformers(default_gguf: Path) -> None:
    ours, theirs = load_tokenizer("default"), default_as_published(default_gguf)
    messages = [
        {"role": "user", "content": "What is 12 times 12?"},
        {"role": "assistant", "content": "144 🙂"},
        {"role": "user", "content": "Thanks"},
    ]
    for prompt in (True, False):
        expected: Any = theirs.apply_chat_template(
            messages, add_generation_prompt=prompt, return_dict=False
        )
        assert ours.apply_chat_template(messages, add_generation_prompt=prompt) == expected


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_folder_equals_transformers(architecture: str, tiny_folders: dict[str, Path]) -> None:
    folder = tiny_folders[architecture]
    # AutoTokenizer would replace the pipeline in tokenizer.json by that of Qwen's own models.
    ours, theirs = load_tokenizer(str(folder)), PreTrainedTokenizerFast.from_pretrained(folder)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text), text
        assert ours.decode(ours.encode(text), skip_special_tokens=False) == theirs.decode(
            theirs.encode(text)
        )
    messages = [{"role": "user", "content": "hi"}]
    rendered = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert ours.render_chat(messages) == rendered
    assert (ours.bos_token_id, ours.eos_token_ids) == (0, (2,))


def test_folder_that_adds_a_first_token(tmp_path: Path) -> None:
    make_tiny("llama", tmp_path, num_hidden_layers=1)
    path = tmp_path / "tokenizer.json"
    backend = Tokenizer.from_file(str(path))
    backend.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    backend.save(str(path))
    config = tmp_path / "tokenizer_config.json"  # its flag counts for nothing in transformers
    config.write_text(json.dumps(json.loads(config.read_text()) | {"add_bos_token": False}))
    ours, theirs = load_tokenizer(str(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    assert ours.encode("the model") == theirs.encode("the model")
    assert ours.encode("the model")[0] == 0
    assert ours.encode("the model", add_special_tokens=False) == ours.encode("the model")[1:]


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "tekken", "gpt-2", "default"])
def test_gguf_pre_tokenizers_equal_transformers(pre: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    # transformers adds no first token here unless the file says so; published Llama 3 files do.
    metadata = {"tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": pre == "llama-bpe"}
    write_tiny_gguf(path, tiny_model("llama", num_hidden_layers=1), metadata=metadata)
    ours = load_tokenizer(str(path))
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    # Qwen's published pipeline composes accents first (NFC); transformers does not with a GGUF.
    composed = [text for text in TEXTS if pre != "qwen2" or "\u0301" not in text]
    for text in composed:
        assert ours.encode(text) == theirs.encode(text), text
    assert (ours.encode("the")[0] == 0) == (pre == "llama-bpe")


def sentencepiece_metadata() -> dict[str, Any]:
    """A Llama 2 style vocabulary: control tokens, bytes, pieces with scores."""
    words = ["▁the", "▁model", "▁token", "ing", "▁▁", "he", "▁t", "ode", "el", "tok", "en", "▁m"]
    pieces = [*words, *sorted({letter for word in words for letter in word}), "123", "12"]
    pieces += [a + b for a, b in itertools.product("to", "ken") if a + b not in pieces]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *pieces, *"123"]
    normal = len(tokens) - 259
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": None,
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(i // 3) for i in range(normal)],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * normal,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def test_gguf_sentencepiece_equals_transformers(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    metadata = sentencepiece_metadata()
    size = len(metadata["tokenizer.ggml.tokens"])
    model = tiny_model("llama", num_hidden_layers=1, vocab_size=size)
    write_tiny_gguf(path, model, metadata=metadata)
    ours = load_tokenizer(str(path))
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    texts = [*TEXTS, "the model tokening the token 123 12", " the", "<s>the</s> model"]
    for text in texts:
        assert ours.encode(text) == theirs.encode(text), text
        assert ours.decode(ours.encode(text)) == theirs.decode(
            theirs.encode(text), skip_special_tokens=True
        )
    assert ours.encode("the")[0] == 1


def test_unknown_pre_tokenizer_is_refused(tmp_path: Path) -> None:
    model = tiny_model("llama", num_hidden_layers=1)
    path = write_tiny_gguf(tmp_path / "m.gguf", model, metadata={"tokenizer.ggml.pre": "martian"})
    with pytest.raises(UserError, match="rules 'martian'; supported are default, gpt-2, smollm"):
        load_tokenizer(str(path))


def test_tokenizer_with_more_ids_than_the_model_is_refused(tmp_path: Path) -> None:
    make_tiny("llama", tmp_path, num_hidden_layers=1, vocab_size=300)
    with pytest.raises(
        UserError, match="does not fit the model: it has 352 ids, the model only 300"
    ):
        load_tokenizer(str(tmp_path))


def test_token_bytes(default_gguf: Path) -> None:
    tokenizer = load_tokenizer("default")
    ids = tokenizer.encode("naïve 🙂")
    assert b"".join(tokenizer.token_bytes(i) for i in ids) == "naïve 🙂".encode()
    assert tokenizer.token_text(tokenizer.encode("<|im_end|>")[0]) == "<|im_end|>"
    assert tokenizer.token_bytes(10**6) == b""
