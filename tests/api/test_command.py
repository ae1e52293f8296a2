"""What the command line says, before anything is loaded."""

import sys

import pytest

from slipstream.api.command import parse_speculation
from slipstream.engine.params import Speculation, TreeShape
from slipstream.errors import UserError
from slipstream.speculation.policy.settings import ScheduleStep


def parse(text: str, *shape: int | None, max_step_rows: int = 256) -> Speculation:
    steps, topk, tokens = shape or (None, None, None)
    return parse_speculation(text, steps, topk, tokens, max_step_rows=max_step_rows)


def test_speculation_is_counted_as_sglang_does() -> None:
    assert parse("fixed") == Speculation("fixed", TreeShape(4, 4, 16))
    assert parse("fixed", 5, 1, None).shape == TreeShape(5, 1, 6)


def test_nothing_more_is_needed_to_adapt_or_not_to_speculate() -> None:
    assert parse("adaptive") == Speculation("adaptive")
    assert parse("off") == Speculation("off")


def test_a_schedule_takes_levels_and_branches() -> None:
    assert parse("schedule:1-8=16,9-32=4,33-=1", 5, 2, None) == Speculation(
        "schedule",
        TreeShape(5, 2, 16),
        (ScheduleStep(1, 8, 16), ScheduleStep(9, 32, 4), ScheduleStep(33, sys.maxsize, 1)),
    )


@pytest.mark.parametrize(
    ("mode", "shape", "words"),
    [
        ("off", (2, None, None), "--speculation fixed"),
        ("adaptive", (None, None, 4), "--speculation fixed"),
        ("on", (None, None, None), "--speculation on is unknown.*schedule:1-8=16"),
        ("off:1", (None, None, None), "off:1 is unknown"),
        ("fixed", (5, 1, 5), r"must be 6 \(num_steps \+ 1\), not 5"),
        ("fixed", (0, None, None), "num_steps must be from 1"),
        ("fixed", (None, 0, None), "topk must be from 1"),
        ("fixed", (None, None, 1), "num_draft_tokens must be from 2"),
        ("fixed", (None, None, 65), "64"),
        ("schedule", (None, None, None), "not of the form 9-32=4"),
        ("schedule:1-8", (None, None, None), "'1-8' is not of the form"),
        ("schedule:1-8=4,8-9=2", (None, None, None), "'8-9=2' begins before"),
        ("schedule:4-2=4", (None, None, None), "'4-2=4' should go from"),
        ("schedule:1-=65", (None, None, None), "asks for 65 draft tokens.*64"),
        ("schedule:1-=4", (None, None, 4), "leave --speculative-num-draft-tokens out"),
        ("schedule:1-=4", (0, None, None), "num_steps must be from 1"),
    ],
)
def test_what_does_not_fit(
    mode: str, shape: tuple[int | None, int | None, int | None], words: str
) -> None:
    with pytest.raises(UserError, match=words) as caught:
        parse(mode, *shape, max_step_rows=64)
    assert "\n" not in str(caught.value)
