"""Texts from lists: repeatable draws, templates with slots, and the files that hold the lists."""

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
Messages = list[dict[str, str]]
Words = Mapping[str, Sequence[str]]

DATA = Path(__file__).parent / "data"
SLOT = re.compile(r"\{(\w+)\}")
HEADING = re.compile(r"\[(\w+)\]")


class Dice:
    """Draws that are the same on every Python: of ``random``, only ``random()`` promises that."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def integer(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return low + int(self._random() * (high - low + 1))

    def pick(self, items: Sequence[Item]) -> Item:
        return items[int(self._random() * len(items))]

    def some(self, items: Sequence[Item], count: int) -> list[Item]:
        """``count`` different items (all, if there are fewer) in random order."""
        left = list(items)
        return [left.pop(int(self._random() * len(left))) for _ in range(min(count, len(left)))]


def fill(template: str, words: Words, dice: Dice, **given: str) -> str:
    """``template`` with each ``{slot}`` replaced: by ``given[slot]`` as it is, or else by one of
    ``words[slot]``, in which slots are replaced in turn. ``{Slot}`` begins with a capital letter.
    """

    def replacement(match: re.Match[str]) -> str:
        name = match[1]
        slot = name if name in given or name in words else name[0].lower() + name[1:]
        text = given[slot] if slot in given else fill(dice.pick(words[slot]), words, dice, **given)
        return text if slot == name else capitalised(text)

    return SLOT.sub(replacement, template)


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def user(text: str) -> Messages:
    """A chat of one message."""
    return [{"role": "user", "content": text}]


def dialogue(*texts: str) -> Messages:
    """A chat in which the user speaks first and last."""
    return [
        {"role": "assistant" if index % 2 else "user", "content": text}
        for index, text in enumerate(texts)
    ]


def sections(name: str) -> dict[str, list[str]]:
    """The lists of a data file: ``[name]`` begins one, each line is an entry, in which a written
    ``\\n`` is a line break. Empty lines do not count."""
    found: dict[str, list[str]] = {}
    entries: list[str] = []
    for line in (DATA / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if heading := HEADING.fullmatch(line):
            entries = found[heading[1]] = []
        elif line:
            entries.append(line.replace("\\n", "\n"))
    return found


def tables(name: str) -> dict[str, list[list[str]]]:
    """The lists of a data file whose entries are fields between ``|``."""
    return {
        section: [[field.strip() for field in line.split("|")] for line in lines]
        for section, lines in sections(name).items()
    }


def blocks(name: str) -> list[tuple[str, str]]:
    """The entries of a data file of longer texts: a line ``=== title``, then the text."""
    text = (DATA / f"{name}.txt").read_text(encoding="utf-8")
    entries = (entry.partition("\n") for entry in text.split("=== ")[1:])
    return [(title.strip(), body.strip("\n")) for title, _, body in entries]
