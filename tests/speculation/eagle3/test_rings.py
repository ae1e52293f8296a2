"""Rings of pages: who has which, and what they let go of."""

from slipstream.speculation.eagle3.rings import Rings


def test_no_two_rings_share_a_page() -> None:
    rings = Rings(3, window=64, spare=10)
    pages = [
        {ring.page(block) for block in range(100)} for ring in (rings.of(id) for id in range(3))
    ]
    assert all(len(each) == rings.pages_each == 4 for each in pages)
    assert len(set.union(*pages)) == 3 * 4
    assert rings.slots == 3 * 4 * 32


def test_the_ring_unused_for_longest_changes_hands_empty() -> None:
    rings = Rings(2, window=64, spare=10)
    for id in (1, 2, 1):
        rings.of(id).end = 40
    taken = rings.of(3)
    assert (taken.start, taken.end) == (0, 0)
    assert rings.of(1).end == 40
    assert rings.of(2).end == 0, "it was request 2's that was taken"


def test_a_released_ring_is_free_again() -> None:
    rings = Rings(1, window=64, spare=10)
    first = rings.of(1).first_page
    rings.release(1)
    rings.release(1)
    assert rings.of(2).first_page == first


def test_letting_go_moves_the_start_by_whole_pages() -> None:
    ring = Rings(1, window=64, spare=10).of(1)
    ring.end = 50
    ring.forget_before(-1)
    assert (ring.start, ring.end) == (0, 50)
    ring.forget_before(1)
    assert (ring.start, ring.end) == (32, 50)
    ring.forget_before(2)
    assert (ring.start, ring.end) == (64, 64)
