"""Where the drafter keeps its own keys and values: a ring of pages for each request.

An entry belongs to a position of the request and can always be made again from the target's
features, so a ring may be taken away at any time.
"""

from dataclasses import dataclass

from slipstream.memory.pool import PAGE_SIZE, pages_for


@dataclass(slots=True)
class Ring:
    """Entries of the positions ``start .. end - 1``; block b of them is in page b mod ``pages``."""

    first_page: int
    pages: int
    start: int = 0  # a multiple of the page size
    end: int = 0

    def page(self, block: int) -> int:
        """The page of the 32 positions from ``32 * block`` on."""
        return self.first_page + block % self.pages

    def forget_before(self, block: int) -> None:
        """Let go of all entries before this block."""
        self.start = max(self.start, block * PAGE_SIZE)
        self.end = max(self.end, self.start)


class Rings:
    """A fixed number of rings; when all are taken, the one unused for longest changes hands.

    ``window`` is how many of a request's last positions a ring remembers, ``spare`` how many slots
    more it has for the nodes of a tree that is being drafted.
    """

    def __init__(self, count: int, window: int, spare: int) -> None:
        self.count = count
        self.window_blocks = pages_for(window)
        self.pages_each = self.window_blocks + pages_for(spare) + 1
        self._free = [number * self.pages_each for number in reversed(range(count))]
        self._taken: dict[int, Ring] = {}  # by request, the one unused for longest first

    @property
    def slots(self) -> int:
        """Slots of all rings together."""
        return self.count * self.pages_each * PAGE_SIZE

    def of(self, request_id: int) -> Ring:
        """The request's ring, an empty one if it has none."""
        ring = self._taken.pop(request_id, None)
        if ring is None:
            if not self._free:
                self.release(next(iter(self._taken)))
            ring = Ring(self._free.pop(), self.pages_each)
        self._taken[request_id] = ring
        return ring

    def lag(self, request_id: int, committed: int) -> int:
        """Positions before the root, out of ``committed``, that the request's ring lacks."""
        ring = self._taken.get(request_id)
        return min(committed - (ring.end if ring else 0), self.window_blocks * PAGE_SIZE)

    def release(self, request_id: int) -> None:
        """Take the request's ring away, if it has one."""
        if ring := self._taken.pop(request_id, None):
            self._free.append(ring.first_page)
