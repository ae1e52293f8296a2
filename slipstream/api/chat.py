"""``POST /v1/chat/completions``."""

from fastapi import APIRouter, Request, Response
from msgspec import UNSET

from slipstream.api.endpoint import generate
from slipstream.api.errors import bad_request
from slipstream.api.json_route import JSONRoute
from slipstream.api.logprobs import chat_logprobs
from slipstream.api.output import Piece
from slipstream.api.responses import ChatDelta, ChatMessage, Choice
from slipstream.api.schemas import ChatCompletionRequest, Message
from slipstream.api.service import Service
from slipstream.models.chat_template import ChatTemplateError
from slipstream.models.tokenizer import Tokenizer

router = APIRouter(route_class=JSONRoute)


@router.post("/v1/chat/completions")
async def create_chat_completion(body: ChatCompletionRequest, request: Request) -> Response:
    return await generate(request, body, _prompts, "messages", ChatShape)


async def _prompts(body: ChatCompletionRequest, service: Service) -> list[list[int]]:
    """The one conversation as token ids. Raises ApiError where the model's template refuses it."""
    try:
        text = service.tokenizer.render_chat(
            [_turn(message) for message in body.messages], **body.chat_template_kwargs
        )
    except ChatTemplateError as error:
        raise bad_request(str(error), "messages", "chat_template") from None
    # The template writes the special tokens itself.
    return await service.encode([text], "messages", add_special_tokens=False)


def _turn(message: Message) -> dict[str, str]:
    """A message as chat templates know it: plain text, and no role that came later."""
    content = message.content
    if not isinstance(content, str):
        content = "\n".join(part.text for part in content)
    role = "system" if message.role == "developer" else message.role
    turn = {"role": role, "content": content}
    return turn if message.name is None else {**turn, "name": message.name}


class ChatShape:
    """Shows pieces as chat completions."""

    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, body: ChatCompletionRequest, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._logprobs = body.logprobs
        self._token_ids = body.return_token_ids
        self._begun: set[int] = set()

    def whole(self, index: int, piece: Piece) -> Choice:
        choice = self._choice(index, piece)
        choice.message = ChatMessage(piece.text)
        return choice

    def chunk(self, index: int, piece: Piece) -> Choice:
        choice = self._choice(index, piece)
        choice.delta = ChatDelta(piece.text)
        if index not in self._begun:
            self._begun.add(index)
            choice.delta.role = "assistant"
        return choice

    def _choice(self, index: int, piece: Piece) -> Choice:
        return Choice(
            index=index,
            logprobs=chat_logprobs(piece, self._tokenizer) if self._logprobs else None,
            finish_reason=piece.finish_reason,
            stop_reason=piece.stop_reason,
            token_ids=piece.token_ids if self._token_ids else UNSET,
        )
