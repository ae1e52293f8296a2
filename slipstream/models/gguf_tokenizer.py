"""A tokenizer from the metadata of a GGUF file, which holds no tokenizer.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from slipstream.errors import UserError
from slipstream.models.fields import Fields
from slipstream.models.tokenizer_parts import TokenizerParts

_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type

# How the published tokenizer.json of each family cuts text before byte-pair merging.
_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN_SPLIT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class _PreTokenizer:
    """One family's way of cutting text; ``split`` None is GPT-2's own pattern."""

    split: str | None = None
    single_digits: bool = False
    nfc: bool = False
    whole_words: bool = False  # a word that is a token is taken whole, whatever the merges say
    adds_bos: bool = False  # unless the file says otherwise


_GPT2 = _PreTokenizer()
_LLAMA3 = _PreTokenizer(_LLAMA3_SPLIT, whole_words=True, adds_bos=True)
_QWEN2 = _PreTokenizer(_QWEN2_SPLIT, nfc=True)

_PRE_TOKENIZERS = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "smollm": _PreTokenizer(single_digits=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "tekken": _PreTokenizer(_TEKKEN_SPLIT, whole_words=True, adds_bos=True),
}


def tokenizer_parts_from_gguf(metadata: Mapping[str, Any], origin: str) -> TokenizerParts:
    """``origin`` names the file in errors. Raises ``UserError`` for what is broken or unknown."""
    fields = Fields(
        {k.removeprefix("tokenizer.ggml."): v for k, v in metadata.items()},
        f"the tokenizer in {origin}",
    )
    tokens = _strings(fields, "tokens")
    vocab = {token: id for id, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise UserError(f"{fields.origin} lists the same token twice")
    kind = fields.text("model")
    if kind == "gpt2":
        backend, adds_bos = _byte_level(fields, vocab)
    elif kind == "llama":
        backend, adds_bos = _sentencepiece(fields, vocab), True
    else:
        raise UserError(f"{fields.origin} is of the kind {kind!r}; supported are gpt2 and llama")
    _add_special(backend, tokens, fields)
    special = _special_tokens(fields, tokens)
    backend.post_processor = _around(
        backend,
        special.get("bos_token") if fields.flag("add_bos_token", adds_bos) else None,
        special.get("eos_token") if fields.flag("add_eos_token") else None,
    )
    template = metadata.get("tokenizer.chat_template")
    return TokenizerParts(backend, special, template if isinstance(template, str) else None)


def merges_from_scores(vocab: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """The merges that a SentencePiece vocabulary implies, best first.

    Every way to cut a token into two tokens is a merge with that token's score. Ties are broken as
    transformers breaks them, because the order decides how text is cut.
    """
    candidates: list[tuple[float, int, int, str, str]] = []
    for (token, _), score in zip(vocab.items(), scores, strict=True):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = [(left, right) for left, right in cuts if left in vocab and right in vocab]
        known.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
        candidates += [(score, len(left), len(right), left, right) for left, right in known]
    candidates.sort(key=lambda candidate: candidate[:3], reverse=True)
    return [(left, right) for *_, left, right in candidates]


def _byte_level(fields: Fields, vocab: dict[str, int]) -> tuple[tokenizers.Tokenizer, bool]:
    name = fields.text("pre", "default")
    if name not in _PRE_TOKENIZERS:
        raise UserError(
            f"{fields.origin} cuts text by the rules {name!r}; "
            f"supported are {', '.join(_PRE_TOKENIZERS)}"
        )
    rules = _PRE_TOKENIZERS[name]
    merges = [_pair(merge, fields) for merge in _strings(fields, "merges")]
    backend = _backend(fields, vocab, merges, ignore_merges=rules.whole_words)
    if rules.nfc:
        backend.normalizer = normalizers.NFC()
    steps: list[pre_tokenizers.PreTokenizer] = []
    if rules.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if rules.split is not None:
        steps.append(pre_tokenizers.Split(Regex(rules.split), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rules.split is None))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    return backend, rules.adds_bos


def _sentencepiece(fields: Fields, vocab: dict[str, int]) -> tokenizers.Tokenizer:
    scores = fields.values.get("scores")
    if not isinstance(scores, list) or len(scores) != len(vocab):
        raise UserError(f"{fields.origin} should have one score for each of {len(vocab)} tokens")
    merges = merges_from_scores(vocab, scores)
    backend = _backend(fields, vocab, merges, byte_fallback=True, fuse_unk=True)
    add_space = fields.flag("add_space_prefix", True)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(
        prepend_scheme="first" if add_space else "never", split=False
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if add_space:
        steps.append(decoders.Strip(" ", 1, 0))
    backend.decoder = decoders.Sequence(steps)
    return backend


def _backend(
    fields: Fields, vocab: dict[str, int], merges: list[tuple[str, str]], **options: bool
) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer(BPE(vocab, merges, **options))
    except Exception as error:  # the library raises bare Exception, e.g. for an unknown token
        raise UserError(f"{fields.origin} has merges that do not fit its tokens: {error}") from None


def _add_special(backend: tokenizers.Tokenizer, tokens: list[str], fields: Fields) -> None:
    """Tokens that are found in text before it is cut: control tokens and user-defined ones."""
    types = fields.values.get("token_type") or [0] * len(tokens)
    if not isinstance(types, list) or len(types) != len(tokens):
        raise UserError(f"{fields.origin} should have one type for each of {len(tokens)} tokens")
    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        backend.add_tokens(
            [
                AddedToken(token, normalized=False, special=special)
                for token, found in zip(tokens, types, strict=True)
                if found == kind and token
            ]
        )


def _special_tokens(fields: Fields, tokens: list[str]) -> dict[str, str]:
    names = {
        "bos_token": "bos_token_id",
        "eos_token": "eos_token_id",
        "unk_token": "unknown_token_id",
        "pad_token": "padding_token_id",
    }
    found = {name: fields.token_ids(key) for name, key in names.items()}
    return {n: tokens[ids[0]] for n, ids in found.items() if ids and 0 <= ids[0] < len(tokens)}


def _around(backend: tokenizers.Tokenizer, bos: str | None, eos: str | None) -> TemplateProcessing:
    """Puts ``bos`` before and ``eos`` behind every text, where they are given."""
    around = [token for token in (bos, eos) if token is not None]
    special = [(token, backend.token_to_id(token)) for token in around]
    if missing := [token for token, id in special if id is None]:
        raise UserError(f"the tokenizer should add {missing[0]!r} to texts but does not know it")
    single = [piece for piece in (bos, "$A", eos) if piece is not None]
    return TemplateProcessing(single=single, special_tokens=special)


def _strings(fields: Fields, key: str) -> list[str]:
    values = fields.values.get(key)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise UserError(f"{fields.origin} has no list of {key}")
    return values


def _pair(merge: str, fields: Fields) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not left or not right:
        raise UserError(f"{fields.origin} has the merge {merge[:60]!r}; it should be two tokens")
    return left, right
