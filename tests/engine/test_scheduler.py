"""The scheduler: who runs, in which order, and on which pages."""

from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.engine.params import SamplingParams
from slipstream.engine.request import Request
from slipstream.engine.scheduler import LEAST_PROMPT_ROWS, Scheduler, Work
from slipstream.memory.memory import Memory
from slipstream.memory.pool import PAGE_SIZE, pages_for


def request(id: int, prompt: int = 10, max_tokens: int = 100, first_token: int = 0) -> Request:
    """Prompts are equal where their first tokens are."""
    tokens = [first_token * 1000 + place for place in range(prompt)]
    return Request.start(id, tokens, SamplingParams(max_tokens=max_tokens))


def scheduler(
    requests: list[Request],
    *,
    pages: int = 100,
    rows: int = 256,
    running: int = 100,
    prefix_cache: bool = False,
) -> tuple[Scheduler, Memory]:
    memory = Memory(pages, prefix_cache)
    made = Scheduler(memory, running, rows)
    for each in requests:
        made.add(each)
    return made, memory


def finish_step(made: Scheduler, works: list[Work]) -> None:
    """What the engine does after the model: one token for each request that reached its end."""
    for work in works:
        finish = work.request.append(1) if work.reaches_end else None
        made.commit(work.request, work.count)
        if finish:
            made.remove(work.request)


def step(made: Scheduler) -> list[tuple[int, int]]:
    """One step; (request, rows) of its works."""
    works = made.plan()
    finish_step(made, works)
    return [(work.request.id, work.count) for work in works]


# Rows


def test_first_come_first_served() -> None:
    made, _ = scheduler([request(id, prompt=80) for id in range(3)], rows=100)
    assert step(made) == [(0, 80), (1, 20)]
    assert step(made) == [(0, 1), (1, 60), (2, 39)]
    assert step(made) == [(0, 1), (1, 1), (2, 41)]
    assert step(made) == [(0, 1), (1, 1), (2, 1)]


def test_a_prompt_is_cut_into_chunks() -> None:
    made, _ = scheduler([request(0, prompt=70)], rows=30)
    seen = []
    for _ in range(4):
        [work] = made.plan()
        seen.append((work.count, work.prompt_rows, work.reaches_end))
        finish_step(made, [work])
    assert seen == [(30, 30, False), (30, 30, False), (10, 10, True), (1, 0, True)]


def test_prompts_do_not_hold_up_decodes() -> None:
    decoding = [request(id, prompt=1) for id in range(50)]
    made, _ = scheduler(decoding, rows=50)
    step(made)
    made.add(request(50, prompt=500))
    # As many decodes as rows: all of them run, and the prompt still gets its least share.
    assert step(made) == [*((id, 1) for id in range(50)), (50, LEAST_PROMPT_ROWS)]
    assert step(made) == [*((id, 1) for id in range(50)), (50, LEAST_PROMPT_ROWS)]


def test_the_least_share_never_exceeds_a_small_step() -> None:
    made, _ = scheduler([request(0, prompt=1), request(1, prompt=90)], rows=3)
    assert step(made) == [(0, 1), (1, 2)]
    assert step(made) == [(0, 1), (1, 3)]


def test_no_more_run_than_allowed() -> None:
    made, _ = scheduler([request(id, max_tokens=2) for id in range(5)], running=2)
    assert step(made) == [(0, 10), (1, 10)]
    assert step(made) == [(0, 1), (1, 1)]
    assert step(made) == [(2, 10), (3, 10)]
    assert [each.id for each in made.waiting] == [4]


# Pages


def test_admission_waits_for_pages_in_order() -> None:
    # The first holds two of three pages; the second needs two; the third would fit but waits.
    lengths = [PAGE_SIZE + 1, PAGE_SIZE + 1, 5]
    requests = [request(id, prompt=length) for id, length in enumerate(lengths)]
    made, memory = scheduler(requests, pages=3)
    assert step(made) == [(0, PAGE_SIZE + 1)]
    assert step(made) == [(0, 1)]
    assert memory.pool.free == 1
    made.remove(requests[0])
    assert step(made) == [(1, PAGE_SIZE + 1), (2, 5)]
    assert made.preemptions == 0


def test_a_removed_request_gives_its_pages_back() -> None:
    requests = [request(id, prompt=50) for id in range(3)]
    made, memory = scheduler(requests, running=2)
    step(made)
    assert memory.pool.free == 96
    made.remove(requests[2])  # still waiting
    made.remove(requests[0])
    assert memory.pool.free == 98
    assert not made.waiting
    assert step(made) == [(1, 1)]


def test_the_youngest_is_preempted() -> None:
    full = PAGE_SIZE - 1  # after two tokens each needs a second page
    requests = [request(id, prompt=full) for id in range(3)]
    made, memory = scheduler(requests, pages=4)
    step(made)
    step(made)
    assert step(made) == [(0, 1), (1, 1)]
    assert made.preemptions == 1
    assert [each.id for each in made.waiting] == [2]
    assert (requests[2].pages, requests[2].committed) == ([], 0)
    assert memory.pool.free == 0


def test_the_youngest_is_the_last_to_come_whatever_its_id() -> None:
    requests = [request(id, prompt=PAGE_SIZE - 1) for id in (9, 4, 6)]
    made, _ = scheduler(requests, pages=4)
    step(made)
    step(made)
    assert step(made) == [(9, 1), (4, 1)]
    assert [each.id for each in made.waiting] == [6]


def test_preempted_requests_come_back_in_order_and_before_newcomers() -> None:
    full = PAGE_SIZE - 1
    requests = [request(id, prompt=full) for id in range(3)]
    made, _ = scheduler(requests, pages=3, running=3)
    made.add(request(3, prompt=1))
    step(made)
    step(made)
    # The first takes the third's page; the second finds none and has to go itself.
    assert step(made) == [(0, 1)]
    assert made.preemptions == 2
    assert [each.id for each in made.waiting] == [1, 2, 3]
    assert step(made) == [(0, 1)]
    made.remove(requests[0])
    # Its prompt and two tokens are computed again; the newcomer must not overtake the third.
    assert step(made) == [(1, full + 2)]
    made.remove(requests[1])
    assert step(made) == [(2, full + 2), (3, 1)]


def test_a_preempted_request_computes_prompt_and_output_again() -> None:
    full = PAGE_SIZE - 1
    requests = [request(id, prompt=full) for id in range(2)]
    made, _ = scheduler(requests, pages=2)
    for _ in range(3):
        step(made)
    assert made.preemptions == 1
    made.remove(requests[0])
    [work] = made.plan()
    assert (work.count, work.prompt_rows, work.reaches_end) == (full + 2, full, True)


# Draft slots


def test_draft_slots_come_from_the_own_last_page_first() -> None:
    made, memory = scheduler([request(0, prompt=10)], pages=2)
    step(made)
    [work] = made.plan()
    assert made.lend_slots(work, 5) == 5
    assert memory.pool.free == 1
    assert made.lend_slots(work, PAGE_SIZE) == PAGE_SIZE
    assert memory.pool.free == 0
    # Eleven tokens are known, the rest of two pages can be lent.
    assert made.lend_slots(work, 500) == 2 * PAGE_SIZE - 11


def test_commit_gives_lent_pages_back() -> None:
    made, memory = scheduler([request(0, prompt=PAGE_SIZE - 3)], pages=9)
    step(made)
    [work] = made.plan()
    assert made.lend_slots(work, 100) == 100
    assert memory.pool.free == 9 - pages_for(PAGE_SIZE - 2 + 100)
    for _ in range(4):  # the root's token and three accepted nodes
        work.request.append(1)
    made.commit(work.request, 4)
    assert work.request.committed == PAGE_SIZE + 1
    assert work.request.pending == 1
    assert len(work.request.pages) == 2
    assert memory.pool.free == 7


def test_lending_neither_evicts_nor_preempts() -> None:
    first, second = request(0, prompt=PAGE_SIZE, first_token=1), request(1, prompt=5)
    made, memory = scheduler([first], pages=2, prefix_cache=True)
    step(made)
    made.remove(first)
    assert memory.pool.evictable == 1
    made.add(second)
    step(made)
    assert memory.pool.free == 0
    [work] = made.plan()
    assert made.lend_slots(work, 40) == PAGE_SIZE - 6
    assert memory.evicted_pages == 0
    assert made.preemptions == 0


# Prefix cache


def test_the_last_known_token_is_always_computed() -> None:
    first, second = request(0, prompt=2 * PAGE_SIZE), request(1, prompt=2 * PAGE_SIZE)
    made, _ = scheduler([first], prefix_cache=True)
    step(made)
    made.add(second)
    assert step(made) == [(0, 1), (1, PAGE_SIZE)]
    assert (first.cached_tokens, second.cached_tokens) == (0, PAGE_SIZE)
    assert made.cached_tokens == PAGE_SIZE
    assert second.pages[0] == first.pages[0]


def test_cached_tokens_are_counted_at_the_first_admission_only() -> None:
    full = 2 * PAGE_SIZE - 1
    requests = [request(0, prompt=full), request(1, prompt=full, first_token=1)]
    made, memory = scheduler(requests, pages=4, prefix_cache=True)
    for _ in range(3):
        step(made)
    assert made.preemptions == 1
    made.remove(requests[0])
    assert step(made)[0][0] == 1
    assert requests[1].committed > PAGE_SIZE
    assert requests[1].cached_tokens == 0
    assert made.cached_tokens == 0
    assert memory.evicted_pages > 0


def test_a_request_that_waits_does_not_empty_the_cache() -> None:
    done = request(0, prompt=PAGE_SIZE, first_token=1)
    made, memory = scheduler([done], pages=4, prefix_cache=True)
    step(made)
    made.remove(done)
    made.add(request(1, prompt=2 * PAGE_SIZE - 5))
    made.add(request(2, prompt=3 * PAGE_SIZE, first_token=2))
    for _ in range(3):
        assert step(made)[-1][0] == 1
    assert memory.evicted_pages == 0
    assert memory.pool.evictable == 1


# Anything


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_request_ends_whatever_the_limits(data: st.DataObject) -> None:
    """And in every step: decodes all run, works hold their pages, and no two share a slot."""
    pages = data.draw(st.integers(3, 12), label="pages")
    made, memory = scheduler(
        [],
        pages=pages,
        rows=data.draw(st.integers(1, 70), label="rows"),
        running=data.draw(st.integers(1, 5), label="running"),
        prefix_cache=data.draw(st.booleans(), label="prefix cache"),
    )
    shapes = st.tuples(st.integers(1, 60), st.integers(1, 36), st.integers(0, 1))
    coming = [
        request(id, prompt, tokens, source)
        for id, (prompt, tokens, source) in enumerate(
            data.draw(st.lists(shapes, min_size=1, max_size=6), label="requests")
        )
    ]
    total = sum(len(each.buffer) for each in coming)
    accepted = data.draw(st.randoms(use_true_random=False))
    for _ in range(4 * total):
        if coming and accepted.random() < 0.5:
            made.add(coming.pop(0))
        if not (made.running or made.waiting):
            continue
        arrived = [each.id for each in (*made.running, *made.waiting)]
        assert arrived == sorted(arrived)
        decoding = {each.id for each in made.running if each.pending == 1}
        preempted = made.preemptions
        works = made.plan()
        ids = [work.request.id for work in works]
        assert works and ids == sorted(ids) and len(set(ids)) == len(ids)
        assert preempted < made.preemptions or decoding <= set(ids)
        own: list[int] = []
        for work in works:
            held = work.request
            wanted = min(accepted.randrange(40), held.remaining - 1) if work.reaches_end else 0
            room = made.lend_slots(work, wanted)
            assert 0 <= room <= wanted
            rows = held.committed + work.count + room
            assert len(held.pages) >= pages_for(rows)
            own += held.pages[held.committed // PAGE_SIZE :]
            for _ in range(accepted.randint(0, room) if work.reaches_end else 0):
                held.append(1)
        assert len(set(own)) == len(own)
        for work in works:
            held = work.request
            nodes = held.length - held.committed - work.count if work.reaches_end else 0
            finish = held.append(1) if work.reaches_end else None
            made.commit(held, work.count + nodes)
            assert pages_for(held.committed) <= len(held.pages) <= pages_for(held.length)
            if finish:
                made.remove(held)
    assert not coming and not made.running and not made.waiting
    assert memory.pool.free + memory.pool.evictable == pages
