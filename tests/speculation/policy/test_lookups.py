"""Whose text is looked up: what it wins after its rows are paid for."""

from slipstream.speculation.drafter import Draft, Source
from slipstream.speculation.policy.calibration import Calibration
from slipstream.speculation.policy.lookups import TRY_EVERY, Lookups
from slipstream.speculation.policy.outlook import Record
from slipstream.speculation.policy.weighing import WeighedDraft

FOUND = Draft([7], [0], [-0.1], [Source.LOOKUP])
PRICE = 100.0  # tokens per second


def after(row: float, right: bool, kept: list[int]) -> tuple[Lookups, Record]:
    """Lookups of a request whose finds were all right or all wrong, with rows at this price."""
    lookups, record = Lookups(), Record()
    weighed = WeighedDraft.of(FOUND, Calibration(), False, 1.0)
    for _ in range(300):
        lookups.learn(record, weighed, [right], kept, row)
    return lookups, record


def asked(lookups: Lookups, record: Record) -> int:
    """In how many steps of ``TRY_EVERY``."""
    steps = range(1, TRY_EVERY + 1)
    return sum(lookups.wanted([record], PRICE, step)[0] for step in steps)


def test_right_finds_in_cheap_rows_are_looked_up_always() -> None:
    assert asked(*after(0.1, True, [0])) == TRY_EVERY


def test_what_wins_less_than_its_rows_is_only_tried() -> None:
    for lookups, record in (after(1.0, True, [0]), after(0.1, False, [0]), after(0.1, True, [])):
        assert asked(lookups, record) == 1


def test_who_has_just_begun_is_expected_to_win_what_all_have_won() -> None:
    lookups, _ = after(1.0, True, [0])
    assert asked(lookups, Record(found=lookups.usual)) == 1
    lookups, _ = after(0.1, True, [0])
    assert asked(lookups, Record(found=lookups.usual)) == TRY_EVERY
