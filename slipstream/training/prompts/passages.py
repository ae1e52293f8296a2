"""Passages for summarization and retrieval: topics, their sentences, and questions on them."""

import msgspec

from slipstream.training.prompts.combine import Dice, blocks


class Topic(msgspec.Struct, frozen=True):
    """Sentences that can be read in their order with any of them left out, but the first."""

    title: str
    sentences: list[str]
    questions: list[str]


def read_topic(title: str, body: str) -> Topic:
    """Lines that begin with ``?`` are questions, the others sentences."""
    lines = body.splitlines()
    return Topic(
        title,
        [line for line in lines if not line.startswith("?")],
        [line[1:].strip() for line in lines if line.startswith("?")],
    )


TOPICS = [read_topic(title, body) for title, body in blocks("passages")]


def some_sentences(topic: Topic, count: int, dice: Dice) -> list[str]:
    """The first sentence and ``count - 1`` of the others, in order."""
    later = range(1, len(topic.sentences))
    chosen = sorted(dice.some(later, count - 1))
    return [topic.sentences[index] for index in (0, *chosen)]


def passage(topic: Topic, count: int, dice: Dice) -> str:
    """``count`` sentences of a topic as one or two paragraphs."""
    sentences = some_sentences(topic, count, dice)
    middle = len(sentences) // 2 if count > 5 and dice.chance(0.4) else len(sentences)
    parts = [" ".join(sentences[:middle]), " ".join(sentences[middle:])]
    return "\n\n".join(part for part in parts if part)
