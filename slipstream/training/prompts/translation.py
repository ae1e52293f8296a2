"""Sentences to translate, from English and into English."""

from slipstream.training.prompts.combine import (
    SLOT,
    Dice,
    Messages,
    dialogue,
    fill,
    sections,
    tables,
    user,
)

# Pairs of a sentence and its English; ``German_food`` are words for the slot ``{food}`` there.
PAIRS = tables("sentences")
LANGUAGES = [name for name in PAIRS if "_" not in name]
FORMS = sections("translation")


def write(dice: Dice) -> Messages:
    """One to three sentences to translate; at times one was translated before."""
    language = dice.pick(["German", *LANGUAGES[:4]] if dice.chance(0.8) else LANGUAGES[4:])
    pairs = [
        with_words(pair, language, dice)
        for pair in dice.some(PAIRS[language], dice.pick([1, 1, 1, 2, 2, 3]))
    ]
    source, target = (language, "English") if dice.chance(0.6) else ("English", language)
    foreign, english = (" ".join(side) for side in zip(*pairs, strict=True))
    text, translated = (foreign, english) if target == "English" else (english, foreign)
    form = dice.pick(FORMS["form"])
    ask = fill(form, {}, dice, text=text, source=source, target=target)
    if dice.chance(0.9):
        return user(ask)
    return dialogue(ask, translated, fill(dice.pick(FORMS["next"]), {}, dice, target=target))


def with_words(pair: list[str], language: str, dice: Dice) -> list[str]:
    """The two sentences with their slots filled by words that mean the same."""
    slots = {name.lower() for name in SLOT.findall(pair[1])}
    words = {slot: dice.pick(PAIRS[f"{language}_{slot}"]) for slot in sorted(slots)}
    return [
        fill(text, {}, dice, **{slot: both[side] for slot, both in words.items()})
        for side, text in enumerate(pair)
    ]
