"""Text to token ids and back, and chats to prompts, without torch or transformers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slipstream.errors import UserError
from slipstream.models.chat_template import ChatTemplate, ChatTemplateError
from slipstream.models.checkpoint import Checkpoint, open_checkpoint
from slipstream.models.detokenizer import (
    ByteLevelDetokenizer,
    Detokenizer,
    SentencePieceDetokenizer,
    TokenBytes,
)
from slipstream.models.token_span import TokenSpan
from slipstream.models.tokenizer_parts import TokenizerParts


class Tokenizer:
    """One model's tokenizer.

    ``vocab_size`` is the number of ids it can produce, at most the model's. ``eos_token_ids`` are
    all tokens that end a text: those of the model's configuration and the tokenizer's own.
    """

    def __init__(
        self,
        parts: TokenizerParts,
        *,
        bos_token_id: int | None = None,
        eos_token_ids: Iterable[int] = (),
    ) -> None:
        self._backend = parts.backend
        self._bytes = TokenBytes(parts.backend)
        self._special_tokens = parts.special_tokens
        self._template = (
            None
            if parts.chat_template is None
            else ChatTemplate(parts.chat_template, parts.special_tokens)
        )
        vocabulary = parts.backend.get_vocab(with_added_tokens=True)
        self.vocab_size = 1 + max(vocabulary.values(), default=-1)
        self._span = TokenSpan.of(parts.backend, vocabulary)
        own_bos, own_eos = self._special_id("bos_token"), self._special_id("eos_token")
        self.bos_token_id = bos_token_id if bos_token_id is not None else own_bos
        ends = (*eos_token_ids, own_eos)
        self.eos_token_ids = tuple(dict.fromkeys(id for id in ends if id is not None))

    @property
    def has_chat_template(self) -> bool:
        """Whether the model says how a chat is written."""
        return self._template is not None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of ``text``; control tokens spelled out in it become those tokens.

        ``add_special_tokens`` adds what the model wants around a text, such as its first token.
        """
        ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def encode_all(
        self, texts: Sequence[str], *, add_special_tokens: bool = True
    ) -> list[list[int]]:
        """Token ids of each text as ``encode`` gives them, without holding the GIL meanwhile."""
        encodings = self._backend.encode_batch_fast(  # fast: without offsets
            list(texts), add_special_tokens=add_special_tokens
        )
        return [encoding.ids for encoding in encodings]

    def fewest_tokens(self, text: str) -> int:
        """A number of tokens that ``text`` has at least, from its length alone."""
        return self._span.fewest_tokens(text)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ``token_ids``; incomplete characters become U+FFFD."""
        text: str = self._backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        return text

    def detokenizer(self, *, skip_special_tokens: bool = True) -> Detokenizer:
        """A decoder for one sequence that grows token by token."""
        kind = ByteLevelDetokenizer if self._bytes.byte_level else SentencePieceDetokenizer
        return kind(self._bytes, skip_special_tokens=skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes the token stands for, which need not be whole characters."""
        return self._bytes[token_id]

    def token_text(self, token_id: int) -> str:
        """The token for people; incomplete characters become U+FFFD."""
        return self._bytes[token_id].decode(errors="replace")

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The conversation as the model's template writes it.

        ``variables`` are more names for the template. Raises ``ChatTemplateError`` if the model has
        no template or the template refuses the messages.
        """
        if self._template is None:
            raise ChatTemplateError(
                "this model has no chat template, so it cannot chat; it can complete plain text"
            )
        return self._template.render(
            messages, add_generation_prompt=add_generation_prompt, **variables
        )

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int]:
        """Token ids of ``render_chat``: the template itself writes the special tokens."""
        text = self.render_chat(messages, add_generation_prompt=add_generation_prompt, **variables)
        return self.encode(text, add_special_tokens=False)

    def _special_id(self, name: str) -> int | None:
        token = self._special_tokens.get(name)
        id: int | None = None if token is None else self._backend.token_to_id(token)
        return id


def load_tokenizer(model: Checkpoint | str) -> Tokenizer:
    """The tokenizer of an open checkpoint or of a model's name (see ``open_checkpoint``).

    Raises ``UserError`` if it is missing, broken, or made for another model.
    """
    checkpoint = open_checkpoint(model) if isinstance(model, str) else model
    config = checkpoint.config
    tokenizer = Tokenizer(
        checkpoint.tokenizer_parts(),
        bos_token_id=config.bos_token_id,
        eos_token_ids=config.eos_token_ids,
    )
    if tokenizer.vocab_size > config.vocab_size:
        raise UserError(
            f"the tokenizer of {checkpoint.name} does not fit the model: it has "
            f"{tokenizer.vocab_size} ids, the model only {config.vocab_size}"
        )
    return tokenizer
