"""What can be asked of speculation, as plain data that crosses the process boundary."""

import re
import sys
from typing import Literal

import msgspec

from slipstream.speculation.tree import TreeShape

Mode = Literal["off", "fixed", "schedule", "adaptive"]

_STEP = re.compile(r"(\d+)(-(\d*))?=(\d+)")
EXAMPLE = "schedule:1-8=16,9-32=4,33-=1"


class ScheduleStep(msgspec.Struct, frozen=True):
    """With ``low`` to ``high`` requests decoding, trees of so many rows, the root included."""

    low: int
    high: int
    rows: int


class Speculation(msgspec.Struct, frozen=True):
    """``shape`` is that of ``fixed`` and, with another number of rows, of ``schedule``."""

    mode: Mode = "adaptive"
    shape: TreeShape = TreeShape(num_steps=4, topk=4, num_draft_tokens=16)
    schedule: tuple[ScheduleStep, ...] = ()


OFF = Speculation(mode="off")


def parse_schedule(text: str, max_rows: int) -> tuple[ScheduleStep, ...]:
    """Steps written as ``1-8=16,9-32=4,33-=1``; the last may be open, ``5=2`` is one number.

    Raises ``ValueError`` with one line on what is wrong.
    """
    steps: list[ScheduleStep] = []
    for part in text.split(","):
        match = _STEP.fullmatch(part.strip())
        if not match:
            raise ValueError(f"{part.strip()!r} is not of the form 9-32=4; write {EXAMPLE}")
        low, rows = int(match[1]), int(match[4])
        high = low if match[2] is None else int(match[3]) if match[3] else sys.maxsize
        if not 1 <= low <= high:
            raise ValueError(
                f"{part.strip()!r} should go from a number, at least 1, to a larger one"
            )
        if steps and low <= steps[-1].high:
            raise ValueError(f"{part.strip()!r} begins before the step before it ends")
        if not 1 <= rows <= max_rows:
            raise ValueError(
                f"{part.strip()!r} asks for {rows} draft tokens; it must be 1 (the root alone) to "
                f"{max_rows}"
            )
        steps.append(ScheduleStep(low, high, rows))
    return tuple(steps)
