"""Everyday requests: writing, roles to play, reasoning, extraction, science, humanities."""

from slipstream.training.prompts.combine import Dice, Messages, dialogue, fill, sections, user

WORDS = sections("chat")


def write(dice: Dice) -> Messages:
    """One request, at times with a system message or as the end of a conversation."""
    if dice.chance(0.12):
        opening, answer, *next_texts = dice.pick(WORDS["conversation"]).split(" | ")
        messages = dialogue(opening, answer, dice.pick(next_texts))
    else:
        messages = user(fill("{request}", WORDS, dice))
    if dice.chance(0.1):
        messages.insert(0, {"role": "system", "content": dice.pick(WORDS["system"])})
    return messages
