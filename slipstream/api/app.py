"""The ASGI application: routes, errors, and what stands before them."""

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.types import ASGIApp

import slipstream
from slipstream.api import chat, completions, errors
from slipstream.api.errors import error_response, unavailable
from slipstream.api.guard import Guard
from slipstream.api.json_route import Shortcut
from slipstream.api.service import ServerState, Service

router = APIRouter()


def create_app(state: ServerState, api_key: str | None = None) -> ASGIApp:
    """The application over ``state``, which may become ready, and unready, later."""
    app = FastAPI(title="Slipstream", version=slipstream.__version__, docs_url=None, redoc_url=None)
    app.state.server = state
    generating = (chat.router, completions.router)
    for part in (*generating, router):
        app.include_router(part)
    errors.install(app)
    paths = frozenset(
        {"/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/metrics"}
    )
    shortcut = Shortcut(app, [route for part in generating for route in part.routes])
    return Guard(shortcut, metrics=state.metrics, api_key=api_key, paths=paths)


def _state(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


@router.get("/health")
async def health(request: Request) -> Response:
    """200 when a request would succeed now, else 503 and the reason."""
    service = _state(request).require()
    if service.full:
        return error_response(unavailable("the queue is full"))
    return Response(b'{"status":"ok"}', media_type="application/json")


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    return Response(
        _state(request).metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8"
    )


@router.get("/version")
async def version() -> dict[str, str]:
    return {"version": slipstream.__version__}


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, object]:
    return {"object": "list", "data": [_model(_state(request).require())]}


@router.get("/v1/models/{model:path}")
async def get_model(model: str, request: Request) -> dict[str, object]:
    service = _state(request).require()
    service.check_model(model)
    return _model(service)


def _model(service: Service) -> dict[str, object]:
    return {
        "id": service.name,
        "object": "model",
        "created": service.created,
        "owned_by": "slipstream",
        "max_model_len": service.limits.max_model_len,
    }
