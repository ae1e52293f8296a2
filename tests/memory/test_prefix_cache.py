"""The prefix cache: what it finds, what it keeps, and in which order it gives pages back."""

import pytest

from slipstream.memory.pool import PAGE_SIZE, PagePool
from slipstream.memory.prefix_cache import PrefixCache
from tests.memory.pages import text


@pytest.fixture
def pool() -> PagePool:
    return PagePool(10)


@pytest.fixture
def cache(pool: PagePool) -> PrefixCache:
    return PrefixCache(pool)


def offer(cache: PrefixCache, pool: PagePool, *contents: int) -> list[int]:
    """Compute these pages and let the cache alone hold them; the pages it holds."""
    node, held = cache.root, []
    for content in contents:
        taken = pool.take(1)
        assert taken is not None
        node = cache.extend(node, text(content), taken[0])
        pool.release(taken[0])
        if node.page != taken[0]:
            pool.release(node.page)
        held.append(node.page)
    return held


def find(cache: PrefixCache, pool: PagePool, *contents: int) -> list[int]:
    """The pages that match, given back at once."""
    pages = [node.page for node in cache.match(text(*contents))]
    for page in pages:
        pool.release(page)
    return pages


def test_an_empty_cache_matches_nothing(cache: PrefixCache) -> None:
    assert cache.match(text(1, 2)) == []
    assert cache.match(text()) == []


def test_the_longest_run_of_pages_from_the_start_matches(
    cache: PrefixCache, pool: PagePool
) -> None:
    pages = offer(cache, pool, 1, 2, 3)
    assert find(cache, pool, 1, 2, 3, 4) == pages
    assert find(cache, pool, 1, 2, 9) == pages[:2]
    assert find(cache, pool, 1) == pages[:1]
    assert find(cache, pool, 2, 3) == []  # a page is found by all tokens before it, too


def test_only_full_pages_match(cache: PrefixCache, pool: PagePool) -> None:
    pages = offer(cache, pool, 1, 2)
    [node] = cache.match(text(1, 2)[: 2 * PAGE_SIZE - 1])
    assert node.page == pages[0]


def test_one_different_token_is_a_miss(cache: PrefixCache, pool: PagePool) -> None:
    offer(cache, pool, 1)
    tokens = text(1)
    tokens[-1] = 2
    assert cache.match(tokens) == []


def test_a_match_holds_its_pages(cache: PrefixCache, pool: PagePool) -> None:
    pages = offer(cache, pool, 1, 2)
    assert pool.evictable == 2
    nodes = cache.match(text(1, 2))
    assert pool.evictable == 0
    assert cache.evict(2) == 0
    for node in nodes:
        pool.release(node.page)
    assert pool.evictable == 2
    assert find(cache, pool, 1, 2) == pages


def test_equal_pages_are_merged(cache: PrefixCache, pool: PagePool) -> None:
    mine, other = pool.take(2) or []
    first = cache.extend(cache.root, text(1), mine)
    assert first.page == mine
    again = cache.extend(cache.root, text(1), other)
    assert again is first
    # The one who came second now holds the cached page as well, and can let its own go.
    pool.release(other)
    assert pool.free == 9
    pool.release(mine)
    assert pool.evictable == 0
    pool.release(again.page)
    assert (pool.evictable, pool.free) == (1, 9)


def test_offering_a_page_twice_adds_no_reference(cache: PrefixCache, pool: PagePool) -> None:
    [page] = pool.take(1) or []
    assert cache.extend(cache.root, text(1), page) is cache.extend(cache.root, text(1), page)
    pool.release(page)
    assert cache.evict(1) == 1
    assert pool.free == 10


def test_the_least_recently_used_goes_first(cache: PrefixCache, pool: PagePool) -> None:
    for content in (1, 2, 3, 4):
        offer(cache, pool, content)
    find(cache, pool, 1)
    offer(cache, pool, 3)
    assert cache.evict(1) == 1  # 2
    assert cache.evict(2) == 2  # 4, then 1
    assert [len(find(cache, pool, content)) for content in (1, 2, 3, 4)] == [0, 0, 1, 0]
    assert cache.evicted == 3


def test_leaves_go_before_their_parents(cache: PrefixCache, pool: PagePool) -> None:
    pages = offer(cache, pool, 1, 2, 3)
    other = offer(cache, pool, 4)
    find(cache, pool, 1)  # so the first page is the most recently used
    assert cache.evict(1) == 1  # 3, though 2 was used before it
    assert find(cache, pool, 1, 2, 3) == pages[:2]
    assert cache.evict(2) == 2  # 4, then 2: just used
    assert find(cache, pool, 1, 2, 3) == pages[:1]
    assert find(cache, pool, 4) != other
    assert cache.evict(5) == 1
    assert (pool.free, pool.evictable) == (10, 0)


def test_a_parent_stays_while_one_child_is_held(cache: PrefixCache, pool: PagePool) -> None:
    offer(cache, pool, 1, 2)
    offer(cache, pool, 1, 3)
    held = cache.match(text(1, 3))
    assert cache.evict(10) == 1
    assert find(cache, pool, 1, 2) == [held[0].page]
    for node in held:
        pool.release(node.page)
    assert cache.evict(10) == 2
    assert pool.free == 10


def test_a_held_leaf_is_evicted_once_it_is_let_go(cache: PrefixCache, pool: PagePool) -> None:
    offer(cache, pool, 1)
    offer(cache, pool, 2)
    [held] = cache.match(text(1))
    assert cache.evict(2) == 1  # passes over the held one
    pool.release(held.page)
    assert cache.evict(1) == 1
    assert cache.evict(1) == 0


def test_what_was_evicted_can_be_offered_again(cache: PrefixCache, pool: PagePool) -> None:
    for _ in range(3):
        pages = offer(cache, pool, 1, 2)
        assert find(cache, pool, 1, 2) == pages
        assert cache.evict(1) == 1
    assert len(find(cache, pool, 1, 2)) == 1
    assert pool.free + pool.evictable == 10
