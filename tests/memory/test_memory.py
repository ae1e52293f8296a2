"""Pages for requests, with and without a prefix cache."""

from slipstream.memory.memory import Memory
from slipstream.memory.pool import PAGE_SIZE
from tests.memory.pages import text


def fill(memory: Memory, *contents: int) -> None:
    """Let the cache alone hold these pages."""
    pages = memory.take(len(contents)) or []
    memory.publish(text(*contents), pages, [])
    memory.release(pages)


def test_without_a_prefix_cache_nothing_is_kept() -> None:
    memory = Memory(4, prefix_cache=False)
    fill(memory, 1, 2)
    assert memory.match(text(1, 2)) == []
    assert memory.pool.free == 4
    assert memory.take(5) is None


def test_free_pages_are_taken_before_anything_is_evicted() -> None:
    memory = Memory(5, prefix_cache=True)
    fill(memory, 1, 2)
    assert len(memory.take(3) or []) == 3
    assert memory.evicted_pages == 0
    assert len(memory.take(1) or []) == 1
    assert memory.evicted_pages == 1
    assert len(memory.match(text(1, 2))) == 1


def test_nothing_is_evicted_in_vain() -> None:
    memory = Memory(5, prefix_cache=True)
    fill(memory, 1, 2)
    held = memory.take(2) or []
    assert memory.take(4) is None
    assert memory.evicted_pages == 0
    assert len(memory.match(text(1, 2))) == 2
    assert len(held) == 2


def test_what_matches_is_not_evicted_for_the_rest() -> None:
    memory = Memory(4, prefix_cache=True)
    fill(memory, 1, 2)
    fill(memory, 3)
    assert len(memory.match(text(1, 2))) == 2
    assert len(memory.take(2) or []) == 2
    assert memory.evicted_pages == 1
    assert memory.match(text(3)) == []


def test_only_full_committed_pages_are_published() -> None:
    memory = Memory(4, prefix_cache=True)
    pages = memory.take(3) or []
    tokens = text(1, 2, 3)
    cached = memory.match(tokens)
    memory.publish(tokens[: PAGE_SIZE - 1], pages, cached)
    assert cached == []
    memory.publish(tokens[: 2 * PAGE_SIZE + 5], pages, cached)
    assert [node.page for node in cached] == pages[:2]
    memory.publish(tokens, pages, cached)
    assert [node.page for node in cached] == pages
    memory.release(pages)
    assert (memory.pool.free, memory.pool.evictable) == (1, 3)


def test_equal_pages_computed_side_by_side_become_one() -> None:
    memory = Memory(4, prefix_cache=True)
    first, second = memory.take(2) or [], memory.take(2) or []
    memory.publish(text(1, 2), first, [])
    kept = list(second)
    memory.publish(text(1, 3), second, [])
    assert second == [first[0], kept[1]]
    assert memory.pool.free == 1
    memory.release(first)
    assert memory.pool.evictable == 1  # the other page is still held by the second
    memory.release(second)
    assert (memory.pool.free, memory.pool.evictable) == (1, 3)
