"""Whether configurations answer alike: the same few prompts, greedily, one after the other."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import msgspec

from slipstream.bench.answer import error_text
from slipstream.bench.client import Target, failure_text
from slipstream.bench.http import Connection
from slipstream.bench.prompt_sets import Prompt
from slipstream.errors import UserError
from slipstream.verdict.results import Difference

_CONTEXT = 60  # characters of each text that are shown before and after it parts
_PROMPT = 200  # characters of a prompt that are shown


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Answer(msgspec.Struct):
    choices: list[_Choice]


async def ask(
    target: Target, prompts: Sequence[Prompt], max_tokens: int, timeout_s: float
) -> list[str]:
    """What the server answers greedily. Raises ``UserError`` if it does not, each in that time."""
    form = replace(target.form, stream=False, temperature=0.0, seed=None)
    connection = Connection(target.endpoint)
    texts = []
    try:
        for prompt in prompts:
            request = target.endpoint.request(
                "POST", "/chat/completions", form.body(prompt, max_tokens)
            )
            async with asyncio.timeout(timeout_s):
                response = await connection.exchange(request, lambda piece, now: None)
            if response.status != 200:
                raise UserError(f"HTTP {response.status}: {error_text(response.body)}")
            texts.append(_text(response.body))
    except OSError as error:
        raise UserError(failure_text(error, timeout_s)) from error
    finally:
        connection.close()
    return texts


def _text(body: bytes) -> str:
    try:
        message = msgspec.json.decode(body, type=_Answer).choices[0].message
    except (msgspec.DecodeError, IndexError) as error:
        raise UserError(f"the answer cannot be read: {error}") from error
    return (message.reasoning_content or "") + (message.content or "")


def difference(
    configuration: str,
    baseline: str,
    prompts: Sequence[Prompt],
    texts: Sequence[str],
    baseline_texts: Sequence[str],
) -> Difference:
    """How many answers are not those of the baseline, and where the first of them parts."""
    pairs = zip(prompts, baseline_texts, texts, strict=True)
    different = [pair for pair in pairs if pair[1] != pair[2]]
    if not different:
        return Difference(configuration, baseline, len(texts), 0)
    prompt, ours, theirs = different[0]
    pairwise = zip_longest(ours, theirs)
    at = next(place for place, (one, other) in enumerate(pairwise) if one != other)
    around = slice(max(0, at - _CONTEXT), at + _CONTEXT)
    return Difference(
        configuration=configuration,
        baseline=baseline,
        compared=len(texts),
        different=len(different),
        first_prompt=_shown(prompt),
        first=(ours[around], theirs[around]),
    )


def _shown(prompt: Prompt) -> str:
    content = prompt[-1].get("content") if prompt else ""
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
    return text if len(text) <= _PROMPT else text[:_PROMPT] + "..."
