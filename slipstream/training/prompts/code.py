"""Programming: stubs to complete, programs to write, snippets to work on, questions."""

from collections.abc import Callable

from slipstream.training.prompts.combine import (
    Dice,
    Messages,
    blocks,
    capitalised,
    dialogue,
    fill,
    sections,
    user,
)
from slipstream.training.prompts.stubs import REFERENCES, write_from_tests, write_stub

PROGRAMS = sections("programs")
SNIPPET_FORMS = sections("snippet_forms")
SNIPPETS = blocks("snippets")
SKELETONS = blocks("skeletons")
BUGS = blocks("bugs")
QUESTIONS = sections("programming")

NOT_TRANSLATED = {"bash", "css", "dockerfile", "html", "regex", "sql", "yaml"}


def write(dice: Dice) -> Messages:
    """One prompt about code."""
    draw = dice.integer(1, 100)
    messages = next(messages for bound, messages in MIXTURE if draw <= bound)(dice)
    if dice.chance(0.04):
        messages.insert(0, {"role": "system", "content": dice.pick(PROGRAMS["system"])})
    return messages


def write_program(dice: Dice) -> str:
    """A function, class, query, script or page to write."""
    if dice.chance(0.25):
        task = dice.pick(dice.pick(REFERENCES).tasks)
        return with_demand(fill("{task_form}", PROGRAMS, dice, task=task), dice)
    form = dice.pick(PROGRAMS["program_form"])
    text = fill(form, PROGRAMS, dice)
    return with_demand(text, dice) if form in ("{general_form}", "{class_form}") else text


def with_demand(text: str, dice: Dice) -> str:
    return f"{text} {dice.pick(PROGRAMS['demand'])}" if dice.chance(0.3) else text


def skeleton(dice: Dice) -> str:
    """The beginning of a program to go on with."""
    language, code = dice.pick(SKELETONS)
    form = dice.pick(SNIPPET_FORMS["skeleton"])
    return fill(form, SNIPPET_FORMS, dice, code=fenced(code, language, dice), language=language)


def fenced(code: str, language: str, dice: Dice) -> str:
    return f"```{language}\n{code}\n```" if dice.chance(0.7) else code


def about_snippet(dice: Dice) -> str:
    """Something to do with a piece of correct code."""
    if dice.chance(0.5):
        language, code = "python", dice.pick(REFERENCES).source
    else:
        language, code = dice.pick(SNIPPETS)
    form = "{plain_form}" if language in NOT_TRANSLATED else "{form}"
    others = [name for name in SNIPPET_FORMS["target"] if name.lower() != language]
    code = fenced(code, language, dice)
    return fill(form, SNIPPET_FORMS, dice, code=code, other=dice.pick(others))


def about_bug(dice: Dice) -> str:
    """A snippet with a mistake; its title is the language and what is seen to go wrong."""
    title, code = dice.pick(BUGS)
    language, _, symptom = title.partition(" ")
    form = dice.pick(SNIPPET_FORMS["bug"])
    symptom = capitalised(symptom)
    code = fenced(code, language, dice)
    return fill(form, SNIPPET_FORMS, dice, code=code, symptom=symptom, language=language)


def question(dice: Dice) -> str:
    return fill("{question}", QUESTIONS, dice)


def follow_up(dice: Dice) -> Messages:
    """A task, a correct answer and what the user wants next."""
    reference = dice.pick(REFERENCES)
    ask = fill("{task_form}", PROGRAMS | {"language": ["Python"]}, dice, task=reference.tasks[0])
    answer = fill("{answer}", SNIPPET_FORMS, dice, code=f"```python\n{reference.source}\n```")
    return dialogue(ask, answer, dice.pick(SNIPPET_FORMS["next"]))


def single(text: Callable[[Dice], str]) -> Callable[[Dice], Messages]:
    return lambda dice: user(text(dice))


# Percentages, added up.
MIXTURE: list[tuple[int, Callable[[Dice], Messages]]] = [
    (30, single(write_stub)),
    (37, single(write_from_tests)),
    (40, single(skeleton)),
    (66, single(write_program)),
    (77, single(about_snippet)),
    (83, single(about_bug)),
    (96, single(question)),
    (100, follow_up),
]
