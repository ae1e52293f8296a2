"""``POST /v1/completions``."""

from fastapi import APIRouter, Request, Response
from msgspec import UNSET

from slipstream.api.endpoint import generate
from slipstream.api.errors import bad_request
from slipstream.api.json_route import JSONRoute
from slipstream.api.logprobs import completion_logprobs
from slipstream.api.output import Piece
from slipstream.api.responses import Choice
from slipstream.api.schemas import CompletionRequest
from slipstream.api.service import Service
from slipstream.models.tokenizer import Tokenizer

router = APIRouter(route_class=JSONRoute)


@router.post("/v1/completions")
async def create_completion(body: CompletionRequest, request: Request) -> Response:
    return await generate(request, body, _prompts, "prompt", CompletionShape)


async def _prompts(body: CompletionRequest, service: Service) -> list[list[int]]:
    """Every prompt as token ids. Raises ApiError, also where ``n`` choices of each are too many."""
    prompt = body.prompt
    if not prompt:
        raise bad_request("the prompt is empty; it must have at least one token", "prompt")
    if isinstance(prompt, str):
        return await service.encode([prompt], "prompt", add_special_tokens=True)
    # The schema lets through lists of one form only.
    if token_ids := [item for item in prompt if isinstance(item, int)]:
        return [token_ids]
    service.check_choices(len(prompt) * body.n)  # now, because a body may hold millions
    if texts := [item for item in prompt if isinstance(item, str)]:
        return await service.encode(texts, "prompt", add_special_tokens=True)
    return [item for item in prompt if isinstance(item, list)]


class CompletionShape:
    """Shows pieces as text completions, whole and in chunks alike."""

    id_prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, body: CompletionRequest, tokenizer: Tokenizer) -> None:
        self._body = body
        self._tokenizer = tokenizer

    def whole(self, index: int, piece: Piece) -> Choice:
        logprobs = None
        if self._body.logprobs is not None:
            logprobs = completion_logprobs(piece, self._tokenizer)
        return Choice(
            index=index,
            text=piece.text,
            logprobs=logprobs,
            finish_reason=piece.finish_reason,
            stop_reason=piece.stop_reason,
            token_ids=piece.token_ids if self._body.return_token_ids else UNSET,
        )

    chunk = whole
