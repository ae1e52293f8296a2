"""The tokenizer of a Hugging Face folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from slipstream.errors import UserError
from slipstream.models.json_file import read_optional_json_object
from slipstream.models.tokenizer_parts import TokenizerParts

_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


def tokenizer_parts_from_folder(folder: Path) -> TokenizerParts:
    """Reads tokenizer.json and, where they are, its companions. Raises ``UserError``.

    What is added around a text stands in tokenizer.json; as in transformers, the flags in
    tokenizer_config.json (``add_bos_token``) are for building that file and count no more.
    """
    path = folder / "tokenizer.json"
    if not path.exists():
        raise UserError(
            f"{folder} has no tokenizer.json; saving the model's fast tokenizer with transformers "
            "writes one"
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise UserError(f"{path} is not a tokenizer ({_one_line(error)})") from None
    backend.no_truncation()
    backend.no_padding()
    config = read_optional_json_object(folder / "tokenizer_config.json")
    special = _special_tokens(config | _old_map(folder, config))
    return TokenizerParts(backend, special, _chat_template(folder, config))


def _old_map(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Special tokens that only the older special_tokens_map.json names."""
    old = read_optional_json_object(folder / "special_tokens_map.json")
    return {name: token for name, token in old.items() if config.get(name) is None}


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name in _SPECIAL_NAMES:
        token = config.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            found[name] = text
    return found


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {path}: {_one_line(error)}") from None
    template = config.get("chat_template")
    if isinstance(template, list):  # several by name; the one for plain chat is called default
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
