"""Any sequence of uses, against a model that is plain dictionaries and searches them all."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from slipstream.memory.memory import Memory
from slipstream.memory.prefix_cache import CachedPage
from tests.memory.pages import text

Path = tuple[int, ...]


class Holder:
    """A request, as far as memory knows one: the contents of its pages, and the pages."""

    def __init__(self, path: Path, pages: list[int], cached: list[CachedPage]) -> None:
        self.path = path
        self.pages = pages
        self.cached = cached


class MemoryUse(RuleBasedStateMachine):
    """Requests come, grow, publish and go; the model says what each call must give."""

    holders = Bundle("holders")

    @initialize(pages=st.integers(1, 9))
    def start(self, pages: int) -> None:
        self.memory = Memory(pages, prefix_cache=True)
        self.pages = pages
        self.alive: list[Holder] = []
        self.cached: dict[Path, int] = {}  # what the cache holds
        self.used: dict[Path, int] = {}  # when
        self.clock = 0
        self.evicted = 0

    # What the model knows

    def touch(self, path: Path) -> None:
        self.clock += 1
        self.used[path] = self.clock

    def holders_of(self, page: int) -> int:
        return sum(holder.pages.count(page) for holder in self.alive)

    def evictable(self) -> list[Path]:
        return [path for path, page in self.cached.items() if not self.holders_of(page)]

    def free(self) -> int:
        held = {page for holder in self.alive for page in holder.pages}
        return self.pages - len(held | set(self.cached.values()))

    def evict(self, count: int) -> None:
        for _ in range(count):
            leaves = [
                path
                for path in self.evictable()
                if not any(len(p) > len(path) and p[: len(path)] == path for p in self.cached)
            ]
            del self.cached[min(leaves, key=lambda path: self.used[path])]
            self.evicted += 1

    def take(self, count: int) -> list[int] | None:
        """Take pages from the real memory, checked against the model."""
        missing = count - self.free()
        possible = missing <= len(self.evictable())
        if possible:
            self.evict(max(0, missing))
        taken = self.memory.take(count)
        assert (taken is not None) == possible
        for page in taken or []:
            assert 0 <= page < self.pages
            assert not self.holders_of(page)
            assert page not in self.cached.values()
        return taken

    # What may happen

    @rule(target=holders, path=st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple))
    def arrive(self, path: Path) -> object:
        """A request is admitted as the scheduler does it: what is cached, then the rest."""
        expected = []
        for depth in range(1, len(path) + 1):
            if path[:depth] not in self.cached:
                break
            expected.append(self.cached[path[:depth]])
            self.touch(path[:depth])
        cached = self.memory.match(text(*path))
        assert [node.page for node in cached] == expected
        holder = Holder(path, expected, cached)
        self.alive.append(holder)
        more = self.take(len(path) - len(expected))
        if more is None:
            self.memory.release(holder.pages)
            self.alive.remove(holder)
            return multiple()
        holder.pages += more
        return holder

    @rule(holder=holders, content=st.integers(0, 2))
    def grow(self, holder: Holder, content: int) -> None:
        more = self.take(1)
        if more is not None:
            holder.pages += more
            holder.path += (content,)

    @rule(holder=holders, data=st.data())
    def publish(self, holder: Holder, data: st.DataObject) -> None:
        depth = data.draw(st.integers(0, len(holder.path)), label="pages")
        before = len(holder.cached)
        self.memory.publish(text(*holder.path[:depth]), holder.pages, holder.cached)
        assert len(holder.cached) == max(before, depth)
        for number in range(before, depth):
            path = holder.path[: number + 1]
            page = holder.cached[number].page
            assert page == holder.pages[number]
            assert page == self.cached.setdefault(path, page)
            self.touch(path)

    @rule(holder=consumes(holders))
    def leave(self, holder: Holder) -> None:
        self.memory.release(holder.pages)
        self.alive.remove(holder)

    @rule(count=st.integers(0, 4))
    def take_and_give_back(self, count: int) -> None:
        taken = self.take(count)
        assert taken is None or len(set(taken)) == count
        self.memory.release(taken or [])

    # What always holds

    @invariant()
    def counts_are_right(self) -> None:
        if hasattr(self, "memory"):
            assert self.memory.pool.free == self.free()
            assert self.memory.pool.evictable == len(self.evictable())
            assert self.memory.evicted_pages == self.evicted

    def teardown(self) -> None:
        """No page is lost: when all have gone, every page can be had."""
        if hasattr(self, "memory"):
            for holder in self.alive:
                self.memory.release(holder.pages)
            taken = self.memory.take(self.pages)
            assert taken is not None
            assert sorted(taken) == np.arange(self.pages).tolist()


TestMemoryUse = MemoryUse.TestCase
TestMemoryUse.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
