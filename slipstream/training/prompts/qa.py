"""Short factual questions: hand-written ones, and tables of facts asked from several sides."""

from slipstream.training.prompts.combine import (
    Dice,
    Messages,
    dialogue,
    fill,
    sections,
    tables,
    user,
)

FACTS = tables("facts")
FORMS = sections("qa_forms")
QUESTIONS = sections("questions")["question"]


def write(dice: Dice) -> Messages:
    """One factual question, at times after another that was answered."""
    draw = dice.integer(1, 10)
    if draw == 1:
        question, answer = from_table(dice)
        return dialogue(question, answer, dice.pick(FORMS["next"]))
    question = from_table(dice)[0] if draw <= 5 else dice.pick(QUESTIONS)
    return user(fill(dice.pick(FORMS["frame"]), FORMS, dice, question=question))


def from_table(dice: Dice) -> tuple[str, str]:
    """A question about a table's fact, and its answer."""
    table = dice.pick(list(FACTS))
    fields = dict(zip("abcd", dice.pick(FACTS[table]), strict=False))
    answered, question = dice.pick(FORMS[table]).split(" ", 1)
    return fill(question, {}, dice, **fields), fill("{Answer}.", {}, dice, answer=fields[answered])
