"""Sentences to translate, from English and into English."""

from slipstream.training.prompts.combine import (
    Dice,
    Messages,
    dialogue,
    fill,
    sections,
    tables,
    user,
)

SENTENCES = tables("sentences")
FORMS = sections("translation")


def write(dice: Dice) -> Messages:
    """One to three sentences to translate; at times one was translated before."""
    language = dice.pick(list(SENTENCES))
    pairs = dice.some(SENTENCES[language], dice.pick([1, 1, 1, 2, 2, 3]))
    source, target = (language, "English") if dice.chance(0.6) else ("English", language)
    foreign, english = (" ".join(side) for side in zip(*pairs, strict=True))
    text, translated = (foreign, english) if target == "English" else (english, foreign)
    form = dice.pick(FORMS["form"])
    ask = fill(form, {}, dice, text=text, source=source, target=target)
    if dice.chance(0.9):
        return user(ask)
    return dialogue(ask, translated, fill(dice.pick(FORMS["next"]), {}, dice, target=target))
