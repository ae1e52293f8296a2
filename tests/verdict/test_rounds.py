"""What is measured in which order, and what happens when servers fail."""

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slipstream.bench.client import RequestForm
from slipstream.bench.process_tree import members
from slipstream.bench.prompt_sets import Prompt
from slipstream.bench.servers import Server, free_port
from slipstream.verdict.configuration import Candidate
from slipstream.verdict.results import Failure, Load, Measurement, Results, Settings
from slipstream.verdict.rounds import Plan, Rounds
from slipstream.verdict.sentences import warnings
from slipstream.verdict.serving import Serving, start

from ..bench.fake_server import FakeServer, serving

PROGRAM = str(Path(__file__).with_name("launched.py"))
ONE = Load(concurrency=1)
TWO = Load(concurrency=2)
PROMPTS: list[Prompt] = [[{"role": "user", "content": f"Prompt {n}"}] for n in range(40)]


@pytest.fixture(autouse=True)
def quick_and_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that fail do so at once, and one core for server and client is no wonder."""
    monkeypatch.setattr("slipstream.verdict.rounds._FAILURES", 4)
    monkeypatch.setattr("slipstream.verdict.measurement.BUSY_SHARE", 9.0)
    monkeypatch.setattr("slipstream.verdict.measurement.LATE_S", 9.0)


class Log:
    """An observer that remembers, and may act."""

    def __init__(self) -> None:
        self.lefts: list[float | None] = []
        self.results: list[Measurement | Failure] = []

    def doing(self, what: str, left_s: float | None) -> None:
        self.lefts.append(left_s)

    def waiting(self, reason: str) -> None:
        pass

    def requests(self, ended: int, of: int) -> None:
        pass

    def found(self, result: Measurement | Failure) -> None:
        self.results.append(result)


def launched(name: str, *behaviours: str, ready_s: float = 60) -> Candidate:
    command = (sys.executable, PROGRAM, "{port}", *behaviours)
    return Candidate(name, "http://127.0.0.1:{port}", command, ready_s=ready_s)


async def run(
    candidates: list[Candidate],
    loads: list[Load],
    *,
    rounds: int = 1,
    settings: dict[str, Any] | None = None,
    log: Log | None = None,
    limit_s: float | None = 100,
    **plan: Any,
) -> Results:
    """A whole verdict of small requests."""
    how = {"max_tokens": 4, "temperature": 0.0, "ignore_eos": True, "stop_early": False}
    results = Results(
        created="",
        slipstream="",
        hardware={},
        settings=Settings(prompts="test", rounds=rounds, **how | (settings or {})),
        configurations=[candidate.described() for candidate in candidates],
        loads=loads,
    )
    form = RequestForm("", ignore_eos=True)
    made = Plan(candidates, PROMPTS, form, **{"answers": 2} | plan)
    saved: list[int] = []
    rounds_ = Rounds(made, results, log or Log(), lambda: saved.append(len(results.measurements)))
    async with asyncio.timeout(limit_s):
        await rounds_.run()
    assert saved == sorted(saved)
    assert set(saved) >= set(range(1, len(results.measurements) + 1))  # after every single one
    return results


@asynccontextmanager
async def fakes(
    *behaviours: dict[str, Any],
) -> AsyncIterator[tuple[list[Candidate], list[FakeServer]]]:
    """Running servers, called a, b, and so on."""
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(serving(**how)) for how in behaviours]
        yield (
            [Candidate(name, fake.url) for name, fake in zip("abc", found, strict=False)],
            found,
        )


def order(results: Results) -> list[tuple[str, str, int]]:
    return [(m.configuration, m.load.label, m.round) for m in results.measurements]


def contents(fake: FakeServer) -> list[str]:
    return [body["messages"][-1]["content"] for body in fake.bodies if body["stream"]]


async def test_the_order_reverses_from_round_to_round() -> None:
    async with fakes({}, {}) as (candidates, _):
        log = Log()
        results = await run(candidates, [ONE, TWO], rounds=2, log=log)
    assert order(results) == [
        ("a", "C=1", 0), ("a", "C=2", 0), ("b", "C=1", 0), ("b", "C=2", 0),
        ("b", "C=1", 1), ("b", "C=2", 1), ("a", "C=1", 1), ("a", "C=2", 1),
    ]  # fmt: skip
    assert results.complete
    assert log.results == results.measurements
    assert log.lefts[0] is None
    assert all(left is not None for left in log.lefts[1:])


async def test_side_by_side_they_take_turns_at_each_load() -> None:
    async with fakes({}, {}) as (candidates, _):
        results = await run(candidates, [ONE, TWO], rounds=2, settings={"side_by_side": True})
    assert order(results) == [
        ("a", "C=1", 0), ("b", "C=1", 0), ("a", "C=2", 0), ("b", "C=2", 0),
        ("b", "C=1", 1), ("a", "C=1", 1), ("b", "C=2", 1), ("a", "C=2", 1),
    ]  # fmt: skip


async def test_a_measurement_holds_what_was_seen() -> None:
    async with fakes({"accepted_length": 1.5, "owner": "vllm"}, {}) as (candidates, _):
        results = await run(candidates, [TWO])
    found = results.measurements[0]
    assert (found.configuration, found.load, found.accepted_length) == ("a", TWO, 1.5)
    assert found.tok_s > 0
    assert found.itl_s is not None
    assert 1 < found.in_flight <= 2.0001
    measured = [sample for sample in found.samples if sample.measured]
    assert len(measured) == 30
    assert all(sample.tokens == 4 and sample.error is None for sample in measured)
    assert all(0 <= sample.start < sample.end <= found.window_s + 1e-5 for sample in measured)
    assert [c.engine for c in results.configurations] == ["vllm", "unknown"]
    assert [c.model for c in results.configurations] == ["fake", "fake"]


async def test_prompts_are_the_same_for_all_and_never_come_twice() -> None:
    async with fakes({}, {}) as (candidates, servers):
        results = await run(candidates, [ONE], rounds=2)
        first, second = (contents(fake) for fake in servers)
    numbered = [text for text in first if text.startswith("Task ")]
    assert len(numbered) >= 60
    assert len(set(numbered)) == len(numbered)
    assert set(numbered) == {text for text in second if text.startswith("Task ")}
    assert not results.notes
    async with fakes({}, {}) as (candidates, servers):
        other_run = await run(candidates, [ONE])
        assert not set(contents(servers[0])[1:]) & set(numbered)
        assert other_run.complete


async def test_two_names_of_one_server_share_no_prompt() -> None:
    """Comparing a server with itself shows what noise alone does, if no cache helps the second."""
    async with fakes({}) as (candidates, servers):
        twin = Candidate("twin", candidates[0].url)
        await run([*candidates, twin], [ONE])
        texts = [text for text in contents(servers[0]) if text.startswith("Task ")]
    assert len(texts) > 60
    assert len(set(texts)) == len(texts)


async def test_prompts_repeat_if_asked() -> None:
    async with fakes({}, {}) as (candidates, servers):
        many = {"requests": 45}
        settings = {"repeated_prompts": True}
        results = await run(candidates, [ONE], rounds=2, settings=settings, **many)
        texts = contents(servers[0])
    assert not any(text.startswith("Task ") for text in texts)
    assert len(texts) > 2 * len(set(texts)) - 5
    assert results.notes == [
        "test has 40 prompts, fewer than a load sends: they repeat, so prefix caches help"
    ]


async def test_open_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bench.arrivals._MIN_S", 0.1)
    async with fakes({}, {}) as (candidates, _):
        results = await run(candidates, [Load(rate=300)])
    assert order(results) == [("a", "300/s", 0), ("b", "300/s", 0)]
    assert sum(sample.measured for sample in results.measurements[0].samples) == 30


async def test_a_load_that_is_settled_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def tight(results: Results, load: Load) -> str | None:
        return "tight" if load == ONE else None

    monkeypatch.setattr("slipstream.verdict.rounds.tight_enough", tight)
    async with fakes({}, {}) as (candidates, _):
        results = await run(candidates, [ONE, TWO], rounds=2, settings={"stop_early": True})
    assert [load for _, load, number in order(results) if number == 1] == ["C=2", "C=2"]
    assert results.stopped_early == {"C=1": "tight"}


async def test_no_round_begins_that_the_time_limit_would_cut() -> None:
    async with fakes({}, {}) as (candidates, _):
        results = await run(candidates, [ONE], rounds=5, time_limit_s=0.0)
    assert len(results.measurements) == 2
    assert results.notes == ["ended after one round, by the time limit"]


async def test_starts_side_by_side_do_not_count_for_later_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hours = 0.0

    async def slow(*args: Any) -> Serving:
        nonlocal hours
        hours += 1
        return await start(*args)

    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + 3600 * hours, perf_counter=time.perf_counter
    )
    monkeypatch.setattr("slipstream.verdict.rounds.start", slow)
    monkeypatch.setattr("slipstream.verdict.rounds.time", clock)
    log = Log()
    async with fakes({}, {}) as (candidates, _):
        how: dict[str, Any] = {"settings": {"side_by_side": True}, "time_limit_s": 2.5 * 3600}
        results = await run(candidates, [ONE], rounds=3, log=log, **how)
    assert len(results.measurements) == 6
    assert max(left or 0.0 for left in log.lefts) < 3600


async def test_answers_are_compared() -> None:
    async with fakes({"says": "ab "}, {"says": "ab "}, {"says": "aX "}) as (candidates, _):
        results = await run(candidates, [ONE])
    same, other = results.differences
    assert (same.configuration, same.compared, same.different) == ("b", 2, 0)
    assert (other.configuration, other.baseline, other.different) == ("c", "a", 2)
    assert other.first == ("ab ab ab ab ", "aX aX aX aX ")
    assert other.first_prompt == "Prompt 0"


async def test_unequal_lengths_are_told() -> None:
    async with fakes({}, {"end_after": 2}) as (candidates, _):
        results = await run(candidates, [ONE])
    assert results.notes == [
        "answers at C=1 differ in length (a 4.0, b 2.0 tokens on average): "
        "not all servers did the same work"
    ]


async def test_fields_that_a_server_refuses_are_told() -> None:
    async with fakes({"refuses": ("ignore_eos",)}, {}) as (candidates, _):
        results = await run(candidates, [ONE])
    assert results.notes == [
        "a: the server does not take ignore_eos: answers may end before --max-tokens"
    ]


async def test_errors_under_load_fail_the_load_only() -> None:
    def status(number: int) -> int:
        return 500 if number > 60 and number % 3 == 0 else 200

    async with fakes({"status": status}, {}) as (candidates, _):
        results = await run(candidates, [ONE, TWO], rounds=3)
    mine = [failure for failure in results.failures if failure.configuration == "a"]
    assert mine
    assert "requests failed, the first: HTTP 500: told to fail" in mine[0].reason
    assert all(failure.load for failure in mine)
    assert len([1 for name, _, _ in order(results) if name == "b"]) == 6
    last = [failure for failure in mine if failure.load == TWO][-1]
    assert last.reason.endswith("; not tried again")
    assert last.round == 1


async def test_a_few_errors_are_told() -> None:
    async with fakes({"status": lambda number: 500 if number == 9 else 200}, {}) as (candidates, _):
        results = await run(candidates, [ONE])
    assert len(results.measurements) == 2
    told = [line for line in warnings(results) if "requests failed" in line]
    assert told == ["a at C=1: 1 of 30 requests failed; the first: HTTP 500: told to fail"]


@pytest.mark.parametrize("fault", ["empty", "cut", "die"])
async def test_a_server_that_breaks_its_streams(fault: str) -> None:
    def broken(number: int) -> str | None:
        return fault if number > 3 else None

    async with fakes({"fault": broken}, {}) as (candidates, _):
        results = await run(candidates, [ONE])
    assert order(results) == [("b", "C=1", 0)]
    (failure,) = results.failures
    assert (failure.configuration, failure.load) == ("a", ONE)
    assert "4 requests in a row failed, last: " in failure.reason


async def test_an_address_where_nobody_listens_is_given_up() -> None:
    async with fakes({}) as (candidates, _):
        nobody = Candidate("nobody", f"http://127.0.0.1:{free_port()}")
        results = await run([*candidates, nobody], [ONE], rounds=3)
    assert len(results.measurements) == 3
    first, second = results.failures
    assert "no server answers at" in first.reason
    assert (first.load, second.round) == (None, 1)
    assert second.reason.startswith("given up: ")


async def test_one_launch_measures_all_loads_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marks = spy(monkeypatch)
    results = await run([launched("a", "child"), launched("b")], [ONE, TWO], rounds=2)
    assert len(results.measurements) == 8
    assert len(marks) == 4
    assert not any(members(mark) for mark in marks)
    assert [c.model for c in results.configurations] == ["small", "small"]
    assert results.configurations[0].command == [sys.executable, PROGRAM, "{port}", "child"]


async def test_a_server_that_dies_in_a_load_is_launched_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marks = spy(monkeypatch)
    # One request of the probe and two for comparing come before the 31 and more of a level.
    results = await run([launched("a", "dies:50"), launched("b")], [ONE, TWO], rounds=3)
    assert [place for place in order(results) if place[0] == "a"] == [
        ("a", "C=1", 0),
        ("a", "C=1", 1),
    ]
    assert len([place for place in order(results) if place[0] == "b"]) == 6
    first, second = results.failures
    assert (first.load, first.round, second.load, second.round) == (TWO, 0, TWO, 1)
    assert "a ended (exit status 3); its last lines:" in first.reason
    assert first.reason.endswith("out of memory")
    assert second.reason.startswith("given up: a ended")
    assert len(marks) == 5
    assert results.complete


@pytest.mark.parametrize("behaviour", ["hangs:8", "pings:8"])
async def test_a_server_that_hangs_is_ended(behaviour: str) -> None:
    results = await run([launched("a", behaviour), launched("b")], [ONE], silence_s=0.6)
    assert order(results) == [("b", "C=1", 0)]
    reason = results.failures[0].reason
    assert reason.startswith("it hangs: nothing came from it for 0.6 s; its last lines:\n")
    assert "  listening" in reason


async def test_a_server_that_is_never_ready_is_not_tried_again() -> None:
    results = await run([launched("a", "loading", ready_s=1.5), launched("b")], [ONE], rounds=2)
    assert order(results) == [("b", "C=1", 0), ("b", "C=1", 1)]
    (failure,) = results.failures
    assert failure.reason.startswith("given up: a was not ready within 1.5 s")
    assert failure.reason.endswith("listening")


async def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = (sys.executable, PROGRAM, str(port))
        a = Candidate("a", f"http://127.0.0.1:{port}", command)
        results = await run([a, launched("b")], [ONE])
    (failure,) = results.failures
    assert f"something listens at 127.0.0.1:{port} already" in failure.reason
    assert order(results) == [("b", "C=1", 0)]


async def test_a_command_that_does_not_exist() -> None:
    wrong = Candidate("a", "http://127.0.0.1:{port}", ("/no/such/program", "{port}"))
    results = await run([wrong, launched("b")], [ONE])
    assert "cannot run /no/such/program" in results.failures[0].reason


@pytest.mark.parametrize("side_by_side", [False, True])
async def test_an_interrupt_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, side_by_side: bool
) -> None:
    marks = spy(monkeypatch)

    class Impatient(Log):
        def found(self, result: Measurement | Failure) -> None:
            super().found(result)
            task.cancel()

    log = Impatient()
    candidates = [launched("a", "child"), launched("b", "child")]
    settings = {"side_by_side": side_by_side}
    task = asyncio.create_task(run(candidates, [ONE, TWO], settings=settings, log=log))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(marks) == 1 + side_by_side
    assert len(log.results) == 1
    assert not any(members(mark) for mark in marks)


def spy(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The marks of all servers that are launched from now on."""
    marks: list[str] = []
    start = Server.__init__

    def init(self: Server, *arguments: Any) -> None:
        start(self, *arguments)
        marks.append(self.mark)

    monkeypatch.setattr(Server, "__init__", init)
    monkeypatch.setattr("slipstream.bench.servers._CHILDREN_S", 0.2)
    return marks
