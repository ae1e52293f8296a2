"""What both endpoints that generate do with a request."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import Request, Response

from slipstream.api.schemas import SamplingRequest
from slipstream.api.service import ServerState, Service, random_seed
from slipstream.api.streaming import Shape, respond
from slipstream.api.translate import check_prompt
from slipstream.models.tokenizer import Tokenizer

Body = TypeVar("Body", bound=SamplingRequest)


async def generate(
    request: Request,
    body: Body,
    prompts_of: Callable[[Body, Service], Awaitable[list[list[int]]]],
    param: str,
    shape_of: Callable[[Body, Tokenizer], Shape],
) -> Response:
    """Run the prompts that ``prompts_of`` finds in field ``param``, and answer. Raises ApiError."""
    arrived = time.monotonic()
    state: ServerState = request.app.state.server
    service = state.require()
    service.check_model(body.model)
    prompts = await prompts_of(body, service)
    for prompt in prompts:
        check_prompt(prompt, service.limits, param)
    state.require()  # the server may have been told to stop while a thread tokenised
    seed = random_seed() if body.seed is None else body.seed
    generation = service.generate(body, prompts, seed, arrived)
    shape = shape_of(body, service.tokenizer)
    return await respond(request, body, generation, shape, service.envelope(shape.id_prefix, seed))
