"""How to launch the engines that are known by name: ``self:adaptive``, ``vllm:3``.

What follows the colon says how much is speculated: ``off``, or a number of draft tokens K (a
chain), or, where the engine drafts trees, one as levels, branches, and nodes with the root
(``sglang:4,4,16``). The flags are those of the engines' own documentation, of the versions of 2026:
docs.sglang.io/docs/advanced_features/speculative_decoding,
docs.vllm.ai/en/latest/features/speculative_decoding, and docs/speculative.md of llama.cpp.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slipstream.errors import UserError

PORT = "{port}"
"""Stands for a free port wherever a command or an address needs one."""

_STEP_ROWS = 256  # our default --max-step-rows


@dataclass(frozen=True)
class Recipe:
    """A command, and what is known about what it starts."""

    engine: str
    command: tuple[str, ...]
    draft_tokens: int | None  # K, the root not counted; None: it varies


@dataclass(frozen=True)
class Ingredients:
    """What a template needs besides the amount of speculation."""

    model: str | None = None
    drafter: str | None = None
    method: str | None = None  # of speculation, in the engine's own word; default: EAGLE-3
    arguments: Sequence[str] = ()  # more of the command line

    def need_model(self, template: str) -> str:
        """Raises ``UserError`` without one."""
        if self.model is None:
            raise UserError(f"{template} needs a model: give --model, or model: in the file")
        return self.model

    def need_drafter(self, template: str) -> str:
        """Raises ``UserError`` without one."""
        if self.drafter is None:
            raise UserError(f"{template} needs a drafter: give --drafter, or drafter: in the file")
        return self.drafter


def recipe(text: str, given: Ingredients) -> Recipe:
    """Of a template such as ``vllm:3``. Raises ``UserError`` if it is none, or something lacks."""
    name, _, amount = text.partition(":")
    if name not in TEMPLATES:
        raise UserError(f"{text!r} is no template; there are {', '.join(EXAMPLES)}")
    return TEMPLATES[name](text, amount, given)


def _self(text: str, amount: str, given: Ingredients) -> Recipe:
    from slipstream.api.tree_shape import tree_shape
    from slipstream.speculation.policy.settings import parse_schedule

    command = ["slipstream", "serve", "--port", PORT]
    command += ["--model", given.model] if given.model else []
    command += ["--drafter", given.drafter] if given.drafter else []
    mode, _, detail = amount.partition(":")
    draft_tokens = None
    if mode == "fixed":
        command += ["--speculation", "fixed"]
        numbers = _numbers(text, detail, 3) if detail else None
        try:
            levels, branches, nodes = numbers or (None, None, None)
            shape = tree_shape(levels, branches, nodes, max_rows=_STEP_ROWS)
        except ValueError as error:
            raise UserError(f"{text}: {error}") from None
        command += _tree(*numbers) if numbers else []
        draft_tokens = shape.num_draft_tokens - 1
    elif mode == "schedule" and detail:
        try:
            parse_schedule(detail, _STEP_ROWS)
        except ValueError as error:
            raise UserError(f"{text}: {error}") from None
        command += ["--speculation", amount]
    elif amount in ("off", "adaptive"):
        command += ["--speculation", amount]
        draft_tokens = 0 if amount == "off" else None
    else:
        raise UserError(
            f"{text}: give self:off, self:adaptive, self:fixed, self:fixed:4,4,16 (levels, "
            "branches, nodes with the root) or self:schedule:1-8=16,9-=4"
        )
    return Recipe("slipstream", (*command, *given.arguments), draft_tokens)


def _tree(levels: int, branches: int, nodes: int) -> list[str]:
    """In SGLang's flags, which are ours, too."""
    numbers = {"num-steps": levels, "eagle-topk": branches, "num-draft-tokens": nodes}
    return [word for key, n in numbers.items() for word in (f"--speculative-{key}", str(n))]


def _sglang(text: str, amount: str, given: Ingredients) -> Recipe:
    command = ["python", "-m", "sglang.launch_server", "--model-path", given.need_model(text)]
    command += ["--host", "127.0.0.1", "--port", PORT]
    draft_tokens = 0
    if amount != "off":
        numbers = _numbers(text, amount, 1, 3)
        levels, branches, nodes = numbers if len(numbers) == 3 else (numbers[0], 1, numbers[0] + 1)
        draft_tokens = nodes - 1
        command += ["--speculative-algorithm", given.method or "EAGLE3"]
        command += ["--speculative-draft-model-path", given.need_drafter(text)]
        command += _tree(levels, branches, nodes)
    return Recipe("sglang", (*command, *given.arguments), draft_tokens)


def _vllm(text: str, amount: str, given: Ingredients) -> Recipe:
    command = ["vllm", "serve", given.need_model(text), "--host", "127.0.0.1", "--port", PORT]
    draft_tokens = 0
    if amount != "off":
        (draft_tokens,) = _numbers(text, amount, 1)
        method = given.method or "eagle3"
        settings = {"method": method, "num_speculative_tokens": draft_tokens}
        if given.drafter or method != "ngram":  # prompt lookup has no model
            settings["model"] = given.need_drafter(text)
        command += ["--speculative-config", json.dumps(settings)]
    return Recipe("vllm", (*command, *given.arguments), draft_tokens)


def _llama_server(text: str, amount: str, given: Ingredients) -> Recipe:
    command = ["llama-server", "--model", given.need_model(text)]
    command += ["--host", "127.0.0.1", "--port", PORT]
    draft_tokens = 0
    if amount != "off":
        (draft_tokens,) = _numbers(text, amount, 1)
        method = given.method or "draft-eagle3"
        command += ["--spec-type", method]
        if given.drafter or method.startswith("draft-"):
            command += ["--model-draft", given.need_drafter(text)]
        command += ["--spec-draft-n-max", str(draft_tokens)]
    return Recipe("llama-server", (*command, *given.arguments), draft_tokens)


def _numbers(text: str, amount: str, *counts: int) -> tuple[int, ...]:
    words = amount.split(",")
    if len(words) not in counts or not all(word.isdecimal() and int(word) for word in words):
        shapes = {1: "a number of draft tokens such as 3", 3: "a tree such as 4,4,16"}
        raise UserError(
            f"{text}: after the colon give off, or {' or '.join(shapes[count] for count in counts)}"
        )
    return tuple(map(int, words))


TEMPLATES: dict[str, Callable[[str, str, Ingredients], Recipe]] = {
    "self": _self,
    "sglang": _sglang,
    "vllm": _vllm,
    "llama-server": _llama_server,
}
EXAMPLES = (
    "self:off",
    "self:fixed",
    "self:fixed:4,4,16",
    "self:adaptive",
    "sglang:off",
    "sglang:4,4,16",
    "vllm:off",
    "vllm:3",
    "llama-server:off",
    "llama-server:3",
)
