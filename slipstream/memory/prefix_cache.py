"""Radix prefix cache: full pages of tokens computed before, found by their tokens.

A radix tree with one page per edge (after Zheng et al., "SGLang", 2024). The row contract makes a
cached page hold the very bits that computing it again would give.
"""

import heapq
from itertools import count

import numpy as np
from numpy.typing import NDArray

from slipstream.memory.pool import PAGE_SIZE, PagePool


class CachedPage:
    """A node: one full page, reached by the tokens of all pages before it."""

    __slots__ = ("children", "key", "last_used", "page", "parent")

    def __init__(self, parent: "CachedPage | None", key: bytes, page: int) -> None:
        self.parent = parent
        self.key = key
        self.page = page
        self.children: dict[bytes, CachedPage] = {}
        self.last_used = 0


class PrefixCache:
    """Holds one reference on each of its pages; what nobody else holds can be evicted."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._clock = count(1)
        self.root = CachedPage(None, b"", -1)
        self._leaves: list[tuple[int, int, CachedPage]] = []  # heap by last use, checked lazily
        self._order = count()
        self.evicted = 0  # pages, since the start

    def match(self, tokens: NDArray[np.int32]) -> list[CachedPage]:
        """The longest cached run of full pages at the start of ``tokens``, from the first page.

        Each page gains a reference, which the caller gives back to the pool.
        """
        path: list[CachedPage] = []
        node = self.root
        for start in range(0, len(tokens) - PAGE_SIZE + 1, PAGE_SIZE):
            child = node.children.get(tokens[start : start + PAGE_SIZE].tobytes())
            if child is None:
                break
            self._pool.retain(child.page)
            child.last_used = next(self._clock)
            path.append(child)
            node = child
        return path

    def extend(self, node: CachedPage, tokens: NDArray[np.int32], page: int) -> CachedPage:
        """Offer the full page that follows ``node``; the cache keeps it, or the one it has.

        If the returned node holds another page, that one has gained a reference for the caller,
        who should use it and give back ``page``: both hold the same bits.
        """
        key = tokens.tobytes()
        child = node.children.get(key)
        if child is None:
            child = CachedPage(node, key, page)
            node.children[key] = child
            self._pool.cache(page)
            self._push(child)
        elif child.page != page:
            self._pool.retain(child.page)
        child.last_used = next(self._clock)
        return child

    def evict(self, pages: int) -> int:
        """Give back the least recently used pages that only the cache holds; how many it were."""
        freed = 0
        held: list[CachedPage] = []
        while freed < pages and self._leaves:
            used, _, node = heapq.heappop(self._leaves)
            if node.children or node.parent is None:
                continue
            if used != node.last_used:
                self._push(node)
            elif not self._pool.is_evictable(node.page):
                held.append(node)
            else:
                self._drop(node)
                freed += 1
        for node in held:
            self._push(node)
        self.evicted += freed
        return freed

    def _drop(self, node: CachedPage) -> None:
        parent = node.parent
        assert parent is not None
        del parent.children[node.key]
        node.parent = None
        self._pool.evict(node.page)
        if not parent.children and parent is not self.root:
            self._push(parent)

    def _push(self, node: CachedPage) -> None:
        heapq.heappush(self._leaves, (node.last_used, next(self._order), node))
