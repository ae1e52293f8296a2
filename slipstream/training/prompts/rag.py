"""Questions to be answered from passages that were found for them."""

from slipstream.training.prompts.combine import Dice, Messages, fill, sections, user
from slipstream.training.prompts.passages import TOPICS, Topic, passage

FORMS = sections("rag")


def write(dice: Dice) -> Messages:
    """Two to four short passages and a question on one of them."""
    topics = dice.some(TOPICS, dice.integer(2, 4))
    asked = topics[0]
    label = dice.pick(FORMS["label"])
    passages = []
    for number, topic in enumerate(dice.some(topics, len(topics)), 1):
        text = short(topic, topic is asked, dice)
        passages.append(fill(label, {}, dice, number=str(number), title=topic.title, text=text))
    question = dice.pick(asked.questions)
    form = dice.pick(FORMS["form"])
    return user(fill(form, FORMS, dice, passages="\n\n".join(passages), question=question))


def short(topic: Topic, asked: bool, dice: Dice) -> str:
    """A short passage; most of the topic, if it is the one that the question is about."""
    count = dice.integer(7, 9) if asked else dice.integer(3, 6)
    return passage(topic, count, dice).replace("\n\n", " ")
