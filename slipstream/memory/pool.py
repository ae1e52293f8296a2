"""Pages of K/V slots: who holds which. The keys and values themselves belong to the kernels."""

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels.step_batch import BLOCK

PAGE_SIZE = BLOCK  # slots; so that a full page is one attention block of keys


class PagePool:
    """A fixed number of pages with reference counts; a page nobody holds is free.

    The prefix cache's reference is told apart, so that the pages it alone holds can be counted.
    """

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.evictable = 0  # pages that only the prefix cache holds
        self._references = [0] * pages
        self._cached = bytearray(pages)
        self._free = list(range(pages - 1, -1, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int] | None:
        """``count`` pages with one reference each, or None when there are not enough."""
        if count > len(self._free):
            return None
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._references[page] = 1
        return taken

    def retain(self, page: int) -> None:
        """One more holder of a page that is already held."""
        self.evictable -= self.is_evictable(page)
        self._references[page] += 1

    def release(self, page: int) -> None:
        """One holder fewer; the last one frees the page."""
        assert self._references[page] > 0, page
        self._references[page] -= 1
        self.evictable += self.is_evictable(page)
        if self._references[page] == 0:
            self._free.append(page)

    def cache(self, page: int) -> None:
        """The prefix cache becomes one more holder."""
        self._references[page] += 1
        self._cached[page] = True

    def evict(self, page: int) -> None:
        """Free a page that only the prefix cache holds."""
        assert self.is_evictable(page), page
        self._cached[page] = False
        self.evictable -= 1
        self.release(page)

    def is_evictable(self, page: int) -> bool:
        """Only the prefix cache holds it."""
        return bool(self._cached[page]) and self._references[page] == 1


def pages_for(slots: int) -> int:
    """How many pages hold so many slots."""
    return -(-slots // PAGE_SIZE)


def slots_of(pages: list[int], count: int) -> NDArray[np.int32]:
    """The first ``count`` slots of ``pages``, in logical order."""
    lanes = np.arange(PAGE_SIZE, dtype=np.int32)
    return (np.array(pages, dtype=np.int32)[:, None] * PAGE_SIZE + lanes).reshape(-1)[:count]
