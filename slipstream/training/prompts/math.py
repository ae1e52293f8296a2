"""Word problems and bare exercises with random small numbers."""

import re

from slipstream.training.prompts.combine import Dice, Messages, fill, sections, user

FORMS = sections("math")

NUMBER = re.compile(r"\{(\d+)-(\d+)\}")


def write(dice: Dice) -> Messages:
    """One problem, with a request on how to answer at times."""
    kind = "story" if dice.chance(0.65) else "exercise"
    template = with_numbers(dice.pick(FORMS[kind]), dice)
    names = dict(zip(["name", "other"], dice.some(FORMS["people"], 2), strict=True))
    problem = fill(template, FORMS, dice, **names)
    return user(fill(dice.pick(FORMS["frame"]), FORMS, dice, problem=problem))


def with_numbers(template: str, dice: Dice) -> str:
    """Each ``{low-high}`` replaced by a number between the two."""
    return NUMBER.sub(lambda match: str(dice.integer(int(match[1]), int(match[2]))), template)
