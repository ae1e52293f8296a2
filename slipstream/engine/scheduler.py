"""Which requests run in the next step, and on which pages.

First come, first served. Requests that decode get their row first, so that prompts, cut into
chunks, never hold them up. When pages are short the youngest request is preempted: it gives its
pages back and is computed again later, which changes no bits.
"""

from collections import deque
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from slipstream.engine.request import Request
from slipstream.memory.memory import Memory
from slipstream.memory.pool import PAGE_SIZE, pages_for

LEAST_PROMPT_ROWS = 32  # a step's share for prompts, however many requests decode


class Work(msgspec.Struct, frozen=True, eq=False):
    """What one request does in one step: compute its next ``count`` known tokens."""

    request: Request
    count: int
    reaches_end: bool  # the last known token is among them, so the next one can be emitted
    prompt_rows: int  # how many of them are prompt, which counts what preemption repeats, too

    @property
    def tokens(self) -> NDArray[np.int32]:
        """What is computed, a view."""
        start = self.request.committed
        return self.request.buffer[start : start + self.count]

    @classmethod
    def of(cls, request: Request, rows: int) -> Self:
        """As many of the request's pending tokens as fit into ``rows`` rows."""
        pending = request.length - request.committed
        count = pending if pending < rows else rows
        prompt = request.prompt_length - request.committed
        prompt_rows = 0 if prompt <= 0 else min(count, prompt)
        return cls(request, count, count == pending, prompt_rows)


class Scheduler:
    """Holds every request from its arrival to its end.

    ``running`` followed by ``waiting`` is always the order of arrival: the first that waits is
    admitted, the last that runs is preempted.
    """

    def __init__(self, memory: Memory, max_running: int, max_step_rows: int) -> None:
        self._memory = memory
        self._max_running = max_running
        self._max_step_rows = max_step_rows
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.preemptions = 0
        self.cached_tokens = 0

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def remove(self, request: Request) -> None:
        """The request has ended or was cancelled: its pages are free at once."""
        if request in self.running:
            self.running.remove(request)
            self._give_back(request)
        else:
            self.waiting.remove(request)

    def plan(self) -> list[Work]:
        """The next step's work; every request in it holds pages for its tokens."""
        index = 0
        while index < len(self.running):  # preemption shortens the list from its end
            request = self.running[index]
            if len(request.pages) * PAGE_SIZE < request.length:  # a prompt has all it needs
                self._ensure_pages(request)
            index += 1
        pending = [request.length - request.committed for request in self.running]
        decoding = pending.count(1)
        least = min(LEAST_PROMPT_ROWS, self._max_step_rows)
        rows = max(self._max_step_rows - decoding, least)
        works: list[Work] = []
        for request, count in zip(self.running, pending, strict=True):
            if count == 1:
                works.append(Work.of(request, 1))
            elif rows:
                works.append(Work.of(request, rows))
                rows -= works[-1].count
        while rows and (admitted := self._admit()):
            works.append(Work.of(admitted, rows))
            rows -= works[-1].count
        return works

    def lend_slots(self, work: Work, nodes: int) -> int:
        """Room for draft nodes, from pages that are free anyway; how many of ``nodes`` fit."""
        request = work.request
        known = request.committed + work.count
        wanted = pages_for(known + nodes) - len(request.pages)
        if wanted > 0:
            request.pages += self._memory.pool.take(min(wanted, self._memory.pool.free)) or []
        return min(nodes, len(request.pages) * PAGE_SIZE - known)

    def commit(self, request: Request, tokens: int) -> None:
        """``tokens`` more have their K and V in logical order; what was lent is given back."""
        request.committed += tokens
        kept = pages_for(request.length)
        if len(request.pages) > kept:
            self._memory.release(request.pages[kept:])
            del request.pages[kept:]
        if len(request.cached) < request.committed // PAGE_SIZE:
            self._memory.publish(request.tokens[: request.committed], request.pages, request.cached)

    def _admit(self) -> Request | None:
        """Start the first waiting request if there is room for all its known tokens."""
        if not self.waiting or len(self.running) >= self._max_running:
            return None
        request = self.waiting[0]
        # The last known token is always computed: its logits are needed.
        request.cached = self._memory.match(request.tokens[: request.length - 1])
        request.pages = [node.page for node in request.cached]
        more = self._memory.take(pages_for(request.length) - len(request.pages))
        if more is None:
            self._give_back(request)
            return None
        request.pages += more
        request.committed = len(request.cached) * PAGE_SIZE
        if request.cached_tokens is None:
            request.cached_tokens = request.committed
            self.cached_tokens += request.committed
        self.running.append(self.waiting.popleft())
        return request

    def _ensure_pages(self, request: Request) -> None:
        """Pages for all known tokens, by preempting the youngest if need be, at last itself."""
        while (missing := pages_for(request.length) - len(request.pages)) > 0:
            more = self._memory.take(missing)
            if more is not None:
                request.pages += more
            else:
                youngest = self.running[-1]
                self._preempt(youngest)
                if youngest is request:
                    return

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self._give_back(request)
        self.waiting.appendleft(request)
        self.preemptions += 1

    def _give_back(self, request: Request) -> None:
        self._memory.release(request.pages)
        request.pages, request.cached, request.committed = [], [], 0
