"""Pages for requests: free ones first, then those that only the prefix cache holds."""

import numpy as np
from numpy.typing import NDArray

from slipstream.memory.pool import PAGE_SIZE, PagePool
from slipstream.memory.prefix_cache import CachedPage, PrefixCache


class Memory:
    """The page pool, with or without a prefix cache over it."""

    def __init__(self, pages: int, prefix_cache: bool) -> None:
        self.pool = PagePool(pages)
        self._cache = PrefixCache(self.pool) if prefix_cache else None

    @property
    def evicted_pages(self) -> int:
        return self._cache.evicted if self._cache else 0

    def match(self, tokens: NDArray[np.int32]) -> list[CachedPage]:
        """Cached pages that the tokens start with; see `PrefixCache.match`."""
        return self._cache.match(tokens) if self._cache else []

    def take(self, count: int) -> list[int] | None:
        """``count`` pages, evicting from the prefix cache where needed, or None.

        Nothing is evicted in vain: a request that waits must not empty the cache.
        """
        missing = count - self.pool.free
        if self._cache and 0 < missing <= self.pool.evictable:
            self._cache.evict(missing)
        return self.pool.take(count)

    def release(self, pages: list[int]) -> None:
        for page in pages:
            self.pool.release(page)

    def publish(
        self, tokens: NDArray[np.int32], pages: list[int], cached: list[CachedPage]
    ) -> None:
        """Offer the full pages of the committed ``tokens`` beyond those in ``cached`` to the cache.

        ``cached`` grows by them; where the cache had the same tokens already, its page replaces
        the one in ``pages``.
        """
        if self._cache is None:
            return
        for index in range(len(cached), len(tokens) // PAGE_SIZE):
            parent = cached[-1] if cached else self._cache.root
            start = index * PAGE_SIZE
            node = self._cache.extend(parent, tokens[start : start + PAGE_SIZE], pages[index])
            if node.page != pages[index]:
                self.pool.release(pages[index])
                pages[index] = node.page
            cached.append(node)
