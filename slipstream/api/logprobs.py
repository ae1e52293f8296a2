"""Log probabilities in the shapes of the two endpoints."""

from slipstream.api.output import Piece
from slipstream.api.responses import ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob
from slipstream.models.tokenizer import Tokenizer

_LOWEST = -9999.0  # JSON has no infinity


def chat_logprobs(piece: Piece, tokenizer: Tokenizer) -> ChatLogprobs:
    content = []
    for token_id, entry in zip(piece.token_ids, piece.logprobs, strict=True):
        shown = _token(token_id, entry.logprob, tokenizer)
        top = [_token(other, logprob, tokenizer) for other, logprob in entry.top]
        content.append(TokenLogprob(shown.token, shown.logprob, shown.bytes, top))
    return ChatLogprobs(content)


def completion_logprobs(piece: Piece, tokenizer: Tokenizer) -> CompletionLogprobs:
    """As OpenAI does, the emitted token is always among ``top_logprobs``."""
    tokens, values, top = [], [], []
    for token_id, entry in zip(piece.token_ids, piece.logprobs, strict=True):
        shown = _token(token_id, entry.logprob, tokenizer)
        best = [_token(other, logprob, tokenizer) for other, logprob in entry.top]
        tokens.append(_name(shown))
        values.append(shown.logprob)
        top.append({_name(item): item.logprob for item in (*best, shown)})
    return CompletionLogprobs(tokens, values, top, piece.text_offsets)


def _token(token_id: int, logprob: float, tokenizer: Tokenizer) -> TopLogprob:
    raw = tokenizer.token_bytes(token_id)
    return TopLogprob(raw.decode("utf-8", "replace"), max(logprob, _LOWEST), list(raw))


def _name(item: TopLogprob) -> str:
    """The token as a key: bytes that are not text by themselves are spelled out."""
    raw = bytes(item.bytes)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
