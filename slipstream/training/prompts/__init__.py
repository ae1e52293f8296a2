"""Prompts for training a drafter: hand-written lists, combined at random but repeatably.

One module per kind draws one prompt at a time; the lists are in ``data/`` and ``functions/``.
"""

from collections.abc import Callable, Iterator

import msgspec

from slipstream.training.prompts.beginnings import beginning
from slipstream.training.prompts.chat import write as write_chat
from slipstream.training.prompts.code import write as write_code
from slipstream.training.prompts.combine import Dice, Messages, user
from slipstream.training.prompts.math import write as write_math
from slipstream.training.prompts.qa import write as write_qa
from slipstream.training.prompts.rag import write as write_rag
from slipstream.training.prompts.summarization import write as write_summarization
from slipstream.training.prompts.translation import write as write_translation


class TrainingPrompt(msgspec.Struct, frozen=True):
    """The messages of one chat request, and what kind of request it is.

    Of one that is ``begun`` the target itself writes the rest of the last message.
    """

    kind: str
    messages: Messages
    begun: bool = False


WRITERS: dict[str, Callable[[Dice], Messages]] = {
    "code": write_code,
    "chat": write_chat,
    "math": write_math,
    "translation": write_translation,
    "summarization": write_summarization,
    "qa": write_qa,
    "rag": write_rag,
}

# How many of each kind; code has more than half, as coding is what drafters help most.
COUNTS = {
    "code": 10400,
    "chat": 3000,
    "math": 1500,
    "translation": 1200,
    "summarization": 1200,
    "qa": 1500,
    "rag": 1200,
}

DRAWS_PER_PROMPT = 20


def written_prompts() -> list[TrainingPrompt]:
    """All prompts, no two alike, in an order that is always the same; every prefix of the list
    has about the mixture of the whole."""
    written = {kind: distinct(kind, count) for kind, count in COUNTS.items()}
    return [TrainingPrompt(kind, next(written[kind])) for kind in mixed(COUNTS)]


def begun_prompts(count: int) -> list[TrainingPrompt]:
    """``count`` prompts for the target to complete, each prefix of the list the same whatever
    ``count`` is. Many are alike: what the target writes differs by its seed."""
    dice = Dice("begun")
    return [TrainingPrompt("its own", user(beginning(dice)), begun=True) for _ in range(count)]


def distinct(kind: str, count: int) -> Iterator[Messages]:
    """``count`` different prompts of one kind."""
    dice, seen = Dice(kind), set[bytes]()
    for _ in range(count * DRAWS_PER_PROMPT):
        messages = WRITERS[kind](dice)
        content = msgspec.json.encode(messages)
        if content not in seen:
            seen.add(content)
            yield messages
        if len(seen) == count:
            return
    raise AssertionError(f"the lists of {kind} give only {len(seen)} prompts, not {count}")


def mixed(counts: dict[str, int]) -> Iterator[str]:
    """Each name as often as ``counts`` says, evenly spread."""
    places = [
        ((index + 0.5) / count, name) for name, count in counts.items() for index in range(count)
    ]
    return (name for _, name in sorted(places))
