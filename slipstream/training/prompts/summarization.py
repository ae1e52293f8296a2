"""Passages to summarise."""

from slipstream.training.prompts.combine import Dice, Messages, fill, sections, user
from slipstream.training.prompts.passages import TOPICS, passage

FORMS = sections("summarization")


def write(dice: Dice) -> Messages:
    """One passage, or a few on different topics, with a request for a summary."""
    topics = dice.some(TOPICS, dice.pick([1, 1, 1, 1, 2, 3]))
    parts = []
    for topic in topics:
        text = passage(topic, dice.integer(6, len(topic.sentences)), dice)
        parts.append(f"{topic.title}\n{text}" if len(topics) > 1 or dice.chance(0.2) else text)
    form = dice.pick(FORMS["form"] if len(topics) == 1 else FORMS["several"])
    return user(fill(form, FORMS, dice, text="\n\n".join(parts)))
