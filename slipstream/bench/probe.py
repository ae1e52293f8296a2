"""Finding out which model a server serves and which fields of a request it takes."""

import asyncio
import itertools
from dataclasses import replace
from urllib.parse import urlsplit

import msgspec

from slipstream.bench.answer import error_text
from slipstream.bench.client import (
    Client,
    LengthField,
    RequestForm,
    Target,
    UsageReport,
    failure_text,
)
from slipstream.bench.http import Connection, Endpoint
from slipstream.bench.prompt_sets import Prompt
from slipstream.bench.samples import Sample
from slipstream.errors import UserError

_PROMPT: Prompt = [{"role": "user", "content": "Count from one to ten."}]
_TOKENS = 8
_TIMEOUT_S = 300.0  # a server may compile during its first request
_ATTEMPTS = 3  # a server that is only busy should not end the benchmark before it starts
_REFUSED = (400, 422)  # how servers answer a field that they do not know


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class SeveralModelsError(UserError):
    """Which model to ask for is not known, and waiting does not tell."""


async def prepare(wanted: Target) -> tuple[Target, list[str]]:
    """The target as the server takes it, and what the user should know about it, a line each.

    A form without a model's name gets the one that the server serves. Raises ``UserError`` if the
    server is down, is not OpenAI-compatible, or refuses even a plain request.
    """
    patient = replace(wanted, timeout_s=min(wanted.timeout_s, _TIMEOUT_S))
    if not wanted.form.model:
        model = await served_model(wanted.endpoint, patient.timeout_s)
        patient = replace(patient, form=replace(wanted.form, model=model))
    fitted, sample = await fit(patient)
    return replace(fitted, timeout_s=wanted.timeout_s), notes(wanted.form, fitted, sample)


async def served_model(endpoint: Endpoint, timeout_s: float) -> str:
    """The one model in ``/v1/models``; raises ``UserError`` if there is not exactly one."""
    where = f"http{'s' if endpoint.tls else ''}://{endpoint.authority}"
    connection = Connection(endpoint)
    try:
        async with asyncio.timeout(timeout_s):
            request = endpoint.request("GET", "/models")
            response = await connection.exchange(request, lambda piece, now: None)
    except OSError as error:
        reason = failure_text(error, timeout_s)
        raise UserError(f"no server answers at {where}: {reason}; is it running?") from error
    finally:
        connection.close()
    if response.status != 200:
        said = error_text(response.body)
        raise UserError(f"{where}{endpoint.base}/models answers HTTP {response.status}: {said}")
    try:
        models = [model.id for model in msgspec.json.decode(response.body, type=_Models).data]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{where}{endpoint.base}/models is not a list of models: is this an "
            "OpenAI-compatible server? (or name the model with --model)"
        ) from error
    if len(models) != 1:
        said = f"{where} serves {len(models)} models"
        if not models:
            raise UserError(f"{said}: choose with --model what requests should ask for")
        names = ", ".join(models[:10])
        choose = "choose with --model, or for a verdict with model: in its file"
        raise SeveralModelsError(f"{said}: {choose} ({names})")
    return models[0]


async def check_url(url: str) -> None:
    """Raises ``UserError`` unless a plain GET of this address is answered with status 200."""
    parts = urlsplit(url)
    endpoint = replace(Endpoint.of(f"{parts.scheme}://{parts.netloc}"), base="")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = Connection(endpoint)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            response = await connection.exchange(
                endpoint.request("GET", path), lambda piece, now: None
            )
    except OSError as error:
        reason = failure_text(error, _TIMEOUT_S)
        raise UserError(f"no server answers at {url}: {reason}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise UserError(f"{url} answers HTTP {response.status}")


async def fit(target: Target) -> tuple[Target, Sample]:
    """The target with the richest form of request that the server takes, and its answer to one.

    Tries to do without as few of the optional fields as possible. Raises ``UserError`` if the
    server answers none of the forms.
    """
    refusal: str | None = None
    for form in _forms(target.form):
        candidate = replace(target, form=form)
        client = Client(candidate)
        try:
            sample = await _ask(client)
        finally:
            client.close()
        if sample.error is None:
            return candidate, sample
        refusal = refusal or sample.error
        if client.status not in _REFUSED:
            break
    raise UserError(f"the server at {target.endpoint.authority} fails a first request: {refusal}")


async def _ask(client: Client) -> Sample:
    for attempt in range(1, _ATTEMPTS + 1):
        sample = await client.complete(_PROMPT, _TOKENS, "warmup")
        if client.status != 429 and client.status < 500:
            break
        if attempt < _ATTEMPTS:
            await asyncio.sleep(attempt)
    return sample


def _forms(wanted: RequestForm) -> list[RequestForm]:
    """The wanted form first, then those that give up one thing, then two, and so on."""
    usages: tuple[UsageReport, ...] = ("continuous", "final", "none")
    lengths: tuple[LengthField, ...] = ("max_tokens", "max_completion_tokens")
    forms = itertools.product(
        enumerate(usages if wanted.stream else usages[:1]),
        enumerate((True, False) if wanted.ignore_eos else (False,)),
        enumerate((wanted.seed, None) if wanted.seed is not None else (None,)),
        enumerate(lengths),
    )
    by_loss = sorted(forms, key=lambda form: sum(rank for rank, _ in form))
    return [
        replace(wanted, usage=usage, ignore_eos=ignore_eos, seed=seed, length_field=length_field)
        for (_, usage), (_, ignore_eos), (_, seed), (_, length_field) in by_loss
    ]


def notes(wanted: RequestForm, target: Target, sample: Sample) -> list[str]:
    """What the user should know about how this server is measured, a line each."""
    form = target.form
    lines = []
    if wanted.ignore_eos and not form.ignore_eos:
        lines.append("the server does not take ignore_eos: answers may end before --max-tokens")
    if wanted.seed is not None and form.seed is None:
        lines.append("the server does not take a seed: sampled answers differ from run to run")
    if wanted.stream and not sample.streamed:
        lines.append("the server does not stream: no time to first token, no inter-token latency")
    if sample.streamed and sample.token_source == "final usage":
        lines.append("no usage while streaming: each answer's tokens are spread over its chunks")
    if sample.streamed and sample.token_source == "chunks":
        lines.append("no usage at all: a chunk counts as one token, which may be too few")
    return lines
