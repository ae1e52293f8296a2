"""Speculation that does not adapt, and how schedules are written."""

import sys

import pytest

from slipstream.speculation.policy.settings import OFF, ScheduleStep, Speculation, parse_schedule
from slipstream.speculation.policy.static import static_shape
from slipstream.speculation.tree import TreeShape

SHAPE = TreeShape(4, 4, 16)


def test_off_drafts_nothing() -> None:
    assert static_shape(OFF, 1, 100) is None


def test_fixed_is_the_same_at_any_load() -> None:
    fixed = Speculation("fixed", SHAPE)
    assert static_shape(fixed, 1, 100) == static_shape(fixed, 300, 100) == SHAPE


@pytest.mark.parametrize(("remaining", "levels"), [(5, 4), (4, 3), (2, 1)])
def test_nothing_is_drafted_beyond_the_last_token(remaining: int, levels: int) -> None:
    assert static_shape(Speculation("fixed", SHAPE), 1, remaining) == TreeShape(levels, 4, 16)
    assert static_shape(Speculation("fixed", SHAPE), 1, 1) is None


def test_a_schedule_goes_by_the_number_of_requests() -> None:
    schedule = Speculation("schedule", SHAPE, parse_schedule("2-8=16,9-32=4,33-=1", 64))
    rows = [
        shape.num_draft_tokens if (shape := static_shape(schedule, decoding, 100)) else 1
        for decoding in (1, 2, 8, 9, 32, 33, 1000)
    ]
    assert rows == [1, 16, 16, 4, 4, 1, 1]


def test_schedules_are_read() -> None:
    steps = parse_schedule("1-8=16, 9=4,33-=1", 64)
    assert steps == (
        ScheduleStep(1, 8, 16),
        ScheduleStep(9, 9, 4),
        ScheduleStep(33, sys.maxsize, 1),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not of the form"),
        ("1-8", "not of the form"),
        ("1-8=16,", "not of the form"),
        ("0-8=16", "at least 1"),
        ("8-1=16", "to a larger one"),
        ("1-8=16,8-9=4", "begins before"),
        ("1-=16,9=4", "begins before"),
        ("1-8=65", "asks for 65"),
        ("1-8=0", "asks for 0"),
    ],
)
def test_schedules_that_make_no_sense(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_schedule(text, 64)
