"""Errors as OpenAI clients expect them: ``{"error": {message, type, param, code}}``."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException


class ApiError(Exception):
    """What a client did wrong, or what keeps the server from serving it.

    ``message`` says what is wrong and what is allowed, in one line: line breaks and other control
    characters, which names and values of a body may have, become escapes. ``param`` names the
    field at fault.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)
        self.param = param
        self.code = code
        self.headers = headers


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def unavailable(reason: str) -> ApiError:
    return ApiError(503, reason, code="unavailable", headers={"Retry-After": "1"})


def _type(status: int) -> str:
    if status == HTTPStatus.UNAUTHORIZED:
        return "authentication_error"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def error_body(error: ApiError) -> bytes:
    """The JSON document that describes ``error``."""
    return msgspec.json.encode(
        {
            "error": {
                "message": error.message,
                "type": _type(error.status),
                "param": error.param,
                "code": error.code,
            }
        }
    )


def internal_error() -> ApiError:
    return ApiError(500, "internal error; the server's log has the details")


def error_response(error: ApiError) -> Response:
    return Response(error_body(error), error.status, error.headers, "application/json")


def _explain(problem: Mapping[str, Any]) -> ApiError:
    """One pydantic finding, in words that name the field and the value."""
    path = [str(part) for part in problem["loc"]]
    kind = problem["type"]
    if not path:
        return bad_request("the body must be a JSON object, sent as Content-Type: application/json")
    field = ".".join(path)
    if kind == "extra_forbidden":
        return bad_request(f"unknown field: {field}", field, "unknown_parameter")
    if kind == "missing":
        return bad_request(f"{field} is required", field, "missing_required_parameter")
    message = problem["msg"].removeprefix("Input should be ")
    value = _short(problem.get("input"))
    return bad_request(f"{field} must be {message}, not {value}", field, "invalid_value")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def explain(problems: Sequence[Mapping[str, Any]]) -> ApiError:
    """The first of pydantic's findings; unknown fields are all named at once."""
    unknown = [
        ".".join(str(part) for part in problem["loc"])
        for problem in problems
        if problem["type"] == "extra_forbidden"
    ]
    if len(unknown) > 1:
        return bad_request(f"unknown fields: {', '.join(unknown)}", unknown[0], "unknown_parameter")
    return _explain(problems[0])


async def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = {
        404: f"there is no {request.method} {request.url.path} here",
        405: f"{request.url.path} does not answer {request.method}",
    }.get(error.status_code, str(error.detail))
    return error_response(ApiError(error.status_code, message, headers=error.headers))


async def _on_exception(_: Request, __: Exception) -> Response:
    return error_response(internal_error())


def install(app: FastAPI) -> None:
    """Make every error of ``app`` speak OpenAI's shape."""
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_exception)
