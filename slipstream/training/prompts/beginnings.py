"""Beginnings of prompts that the target itself goes on writing.

A chat model whose turn it is to be the user writes what it was trained to answer, so its own
prompts are as varied as that (Xu et al., "Magpie", 2024). A few words say what about.
"""

from slipstream.training.prompts.combine import Dice, fill, sections
from slipstream.training.prompts.passages import TOPICS, some_sentences

BEGINNINGS = sections("beginnings")
SHARES = {"code": 0.25, "question": 0.12, "math": 0.08, "writing": 0.12, "text": 0.13}


def beginning(dice: Dice) -> str:
    """What a prompt begins with; of the rest of `SHARES` nothing at all."""
    place = dice.integer(0, 99) / 100
    for kind, share in SHARES.items():
        if place < share:
            sentence = " ".join(some_sentences(dice.pick(TOPICS), dice.integer(1, 3), dice))
            return fill(dice.pick(BEGINNINGS[kind]), {}, dice, sentence=sentence)
        place -= share
    return ""
