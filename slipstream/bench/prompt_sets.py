"""What is asked: the prompt sets of the package, a user's own file, and dealing from them."""

import random
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from slipstream.errors import UserError

PACKAGED = ("coding", "encyclopedic")

Prompt = list[Any]
"""The messages of one chat request; their form is the server's to judge."""


class _Line(msgspec.Struct):
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None


_decode = msgspec.json.Decoder(str | _Line).decode


def load_prompts(source: str) -> list[Prompt]:
    """The prompts of a packaged set or of a JSON lines file, each text once, in their order.

    A line of a file is a string, an object with ``prompt`` (a string), or an object with
    ``messages`` (as in a chat request). Raises ``UserError`` naming file and line otherwise.
    """
    if source in PACKAGED:
        # Not a package of its own: the folder holds data only.
        text = (resources.files("slipstream.bench") / "prompts" / f"{source}.jsonl").read_bytes()
    else:
        text = _read(source)
    lines = enumerate(text.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1)
    prompts = [_prompt(line, f"{source}, line {number}") for number, line in lines if line.strip()]
    if not prompts:
        raise UserError(f"{source} holds no prompts: it needs one JSON string or object a line")
    return list({msgspec.json.encode(prompt): prompt for prompt in prompts}.values())


def _read(source: str) -> bytes:
    path = Path(source)
    if not path.exists():
        sets = ", ".join(PACKAGED)
        raise UserError(f"no prompt set or file {source!r}: give {sets}, or a JSON lines file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the prompts in {source}: {error.strerror}") from error


def _prompt(line: bytes, where: str) -> Prompt:
    try:
        parsed = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f'{where}: not a string or an object with "prompt" or "messages" ({error})'
        ) from error
    if isinstance(parsed, _Line) and parsed.messages and parsed.prompt is None:
        return parsed.messages
    text = parsed.prompt if isinstance(parsed, _Line) and not parsed.messages else parsed
    if not isinstance(text, str) or not text.strip():
        raise UserError(f'{where}: needs a text, or exactly one of "prompt" and "messages"')
    return [{"role": "user", "content": text}]


class PromptDeck:
    """Deals prompts in random order, each once before any comes again."""

    def __init__(self, prompts: list[Prompt], seed: int) -> None:
        self._prompts = prompts
        self._random = random.Random(seed)
        self._left: list[Prompt] = []
        self.dealt = 0

    @property
    def repeats(self) -> bool:
        """Whether a prompt was dealt a second time."""
        return self.dealt > len(self._prompts)

    def deal(self) -> Prompt:
        """The next prompt."""
        if not self._left:
            self._left = self._random.sample(self._prompts, len(self._prompts))
        self.dealt += 1
        return self._left.pop()


def numbered(deck: PromptDeck, tag: str) -> Iterator[Prompt]:
    """Prompts that no server has seen: each starts with a number of its own.

    So no prefix cache knows them, as long as no other call has the same ``tag``. A message whose
    content is not plain text gets a message with the number before it.
    """
    number = 0
    while True:
        number += 1
        title = f"Task {tag}-{number}:"
        first, *others = deck.deal()
        if isinstance(content := first.get("content"), str):
            yield [first | {"content": f"{title}\n\n{content}"}, *others]
        else:
            yield [{"role": "user", "content": title}, first, *others]
