"""Questions to be answered from passages that were found for them."""

from slipstream.training.prompts.combine import Dice, Messages, fill, sections, user
from slipstream.training.prompts.passages import TOPICS, Topic, passage

FORMS = sections("rag")


def write(dice: Dice) -> Messages:
    """Two to four short passages, one of which has the answer, and a question."""
    topics = dice.some(TOPICS, dice.integer(2, 4))
    question = dice.pick(dice.pick(topics[:2]).questions)
    label = dice.pick(FORMS["label"])
    passages = "\n\n".join(
        fill(label, {}, dice, number=str(number), title=topic.title, text=short(topic, dice))
        for number, topic in enumerate(dice.some(topics, len(topics)), 1)
    )
    form = dice.pick(FORMS["form"])
    return user(fill(form, FORMS, dice, passages=passages, question=question))


def short(topic: Topic, dice: Dice) -> str:
    return passage(topic, dice.integer(4, 6), dice).replace("\n\n", " ")
