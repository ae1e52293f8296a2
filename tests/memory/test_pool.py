"""The page pool: every page is free or held, and freed by its last holder."""

import pytest

from slipstream.memory.pool import PAGE_SIZE, PagePool, pages_for


def take(pool: PagePool, count: int) -> list[int]:
    pages = pool.take(count)
    assert pages is not None
    return pages


def test_pages_are_handed_out_once() -> None:
    pool = PagePool(5)
    pages = take(pool, 2) + take(pool, 3)
    assert sorted(pages) == [0, 1, 2, 3, 4]
    assert pool.free == 0


def test_taking_more_than_there_are_takes_none() -> None:
    pool = PagePool(3)
    take(pool, 1)
    assert pool.take(3) is None
    assert pool.free == 2
    assert take(pool, 0) == []


def test_the_last_holder_frees_a_page() -> None:
    pool = PagePool(1)
    [page] = take(pool, 1)
    pool.retain(page)
    pool.release(page)
    assert pool.free == 0
    pool.release(page)
    assert pool.free == 1
    assert take(pool, 1) == [page]


def test_releasing_a_free_page_is_refused() -> None:
    pool = PagePool(2)
    [page] = take(pool, 1)
    pool.release(page)
    with pytest.raises(AssertionError):
        pool.release(page)


def test_what_only_the_cache_holds_is_evictable() -> None:
    pool = PagePool(2)
    [page] = take(pool, 1)
    pool.cache(page)
    assert (pool.is_evictable(page), pool.evictable, pool.free) == (False, 0, 1)
    pool.release(page)
    assert (pool.is_evictable(page), pool.evictable, pool.free) == (True, 1, 1)
    pool.retain(page)
    assert (pool.is_evictable(page), pool.evictable) == (False, 0)
    pool.retain(page)
    pool.release(page)
    assert pool.evictable == 0
    pool.release(page)
    assert pool.evictable == 1


def test_eviction_frees() -> None:
    pool = PagePool(1)
    [page] = take(pool, 1)
    pool.cache(page)
    with pytest.raises(AssertionError):
        pool.evict(page)
    pool.release(page)
    pool.evict(page)
    assert (pool.evictable, pool.free) == (0, 1)
    # A page taken again is not taken for a cached one.
    assert take(pool, 1) == [page]
    assert not pool.is_evictable(page)


@pytest.mark.parametrize(
    ("slots", "pages"),
    [(0, 0), (1, 1), (PAGE_SIZE, 1), (PAGE_SIZE + 1, 2), (10 * PAGE_SIZE, 10)],
)
def test_pages_for(slots: int, pages: int) -> None:
    assert pages_for(slots) == pages
