"""The engine process: its loop in this process, and its start and end in one of its own."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from slipstream.engine.channel import Channel
from slipstream.engine.engine import Engine
from slipstream.engine.messages import (
    Cancel,
    Commands,
    Drain,
    Failed,
    FromEngine,
    Ready,
    Report,
    Submit,
    decode_from_engine,
    frame,
)
from slipstream.engine.options import EngineOptions
from slipstream.engine.process import run
from tests.engine.driving import drive, greedy, start_engine


class Peer:
    """The HTTP process's end of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.connection.settimeout(120)

    def send(self, *commands: Submit | Cancel | Drain) -> None:
        self.connection.sendall(frame(Commands(list(commands))))

    def receive(self) -> FromEngine | None:
        """The next message, None at the end."""
        header = self.connection.recv(4, socket.MSG_WAITALL)
        if not header:
            return None
        length = int.from_bytes(header, "little")
        return decode_from_engine(self.connection.recv(length, socket.MSG_WAITALL))

    def reports(self) -> list[Report]:
        """All that is left; the engine has closed its end or will."""
        reports = []
        while (message := self.receive()) is not None:
            assert isinstance(message, Report)
            reports.append(message)
        return reports


def tokens(reports: list[Report], id: int) -> list[int]:
    return [t for report in reports for d in report.deltas if d.id == id for t in d.token_ids]


def finishes(reports: list[Report]) -> dict[int, str]:
    return {d.id: d.finish for report in reports for d in report.deltas if d.finish}


@pytest.fixture
def engine(tiny_llama: Path) -> Engine:
    return start_engine(tiny_llama)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Peer]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, Peer(theirs)


def test_submit_cancel_drain(
    engine: Engine, ends: tuple[socket.socket, Peer], tiny_llama: Path
) -> None:
    ours, peer = ends
    first, second = Submit(0, [5, 6, 7], greedy(6)), Submit(2, [5, 6], greedy(4))
    peer.send(first, Submit(1, [8, 9], greedy(500)))
    peer.send(second, Cancel(1), Drain())
    run(engine, Channel(ours))
    ours.close()
    reports = peer.reports()
    assert finishes(reports) == {0: "length", 2: "length"}
    expected = drive(start_engine(tiny_llama), [first, second])
    assert tokens(reports, 0) == expected[0].tokens
    assert tokens(reports, 2) == expected[2].tokens
    last = reports[-1].stats
    assert (last.running, last.waiting, last.pages_free) == (0, 0, last.pages)
    assert last.generated_tokens_total == 10


def test_draining_an_idle_engine_ends_it(engine: Engine, ends: tuple[socket.socket, Peer]) -> None:
    ours, peer = ends
    peer.send(Drain())
    run(engine, Channel(ours))
    ours.close()
    assert [report.deltas for report in peer.reports()] == [[]]


def test_a_cancellation_that_leaves_nothing_to_do_is_reported(
    engine: Engine, ends: tuple[socket.socket, Peer]
) -> None:
    ours, peer = ends
    peer.send(Submit(0, [5], greedy(400)), Cancel(0))
    peer.send(Cancel(0), Cancel(7))
    peer.send(Drain())
    run(engine, Channel(ours))
    ours.close()
    reports = peer.reports()
    assert finishes(reports) == {}
    assert reports[-1].stats.running == 0
    assert reports[-1].stats.pages_free == reports[-1].stats.pages


@pytest.mark.parametrize("busy", [False, True])
def test_a_peer_that_goes_ends_the_loop(
    engine: Engine, ends: tuple[socket.socket, Peer], busy: bool
) -> None:
    ours, peer = ends
    if busy:
        peer.send(Submit(0, [5], greedy(1500)))
    peer.connection.close()
    with pytest.raises(OSError):
        run(engine, Channel(ours))


# A process of its own


@contextmanager
def process(options: EngineOptions) -> Iterator[tuple[subprocess.Popen[str], Peer]]:
    ours, theirs = socket.socketpair()
    with theirs:
        child = subprocess.Popen(
            [sys.executable, "-m", "slipstream.engine.process", "--fd", str(ours.fileno()),
             "--options", msgspec.json.encode(options).decode()],
            pass_fds=[ours.fileno()],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        ours.close()
        with child:
            try:
                yield child, Peer(theirs)
            finally:
                child.kill()


def test_it_is_ready_answers_and_drains(tiny_llama: Path) -> None:
    with process(EngineOptions(model=str(tiny_llama), kv_memory=8 << 20, threads=1)) as (
        child,
        peer,
    ):
        ready = peer.receive()
        assert isinstance(ready, Ready)
        assert 32 <= ready.max_model_len <= 2048
        submit = Submit(0, [5, 6, 7, 8], greedy(12))
        peer.send(submit)
        peer.send(Drain())
        reports = peer.reports()
        assert child.wait(60) == 0
        assert child.stderr is not None and child.stderr.read() == ""
    assert tokens(reports, 0) == drive(start_engine(tiny_llama), [submit])[0].tokens
    assert finishes(reports) == {0: "length"}


def test_what_it_learned_is_kept_for_the_next_one(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_COSTS", str(tmp_path / "costs"))
    options = EngineOptions(model=str(tiny_llama), kv_memory=8 << 20, threads=1, log_level="debug")
    with process(options) as (child, peer):
        assert isinstance(peer.receive(), Ready)
        for id in range(8):
            peer.send(Submit(id, [5, 6, 7, 8], greedy(40)))
        peer.send(Drain())
        peer.reports()
        assert child.wait(60) == 0
        assert child.stderr is not None
        lines = child.stderr.read().splitlines()
    assert any("goodput" in line for line in lines)
    [file] = (tmp_path / "costs").iterdir()
    evidence = [place[2] for place in msgspec.json.decode(file.read_bytes())["tables"]["target"]]
    assert max(evidence) > 0


def test_costs_that_cannot_be_kept_are_a_line(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SLIPSTREAM_COSTS", str(tmp_path / "file" / "costs"))
    with process(EngineOptions(model=str(tiny_llama), kv_memory=8 << 20, threads=1)) as (
        child,
        peer,
    ):
        assert isinstance(peer.receive(), Ready)
        peer.send(Submit(0, [5, 6, 7, 8], greedy(40)))
        peer.send(Drain())
        assert finishes(peer.reports()) == {0: "length"}
        assert child.wait(60) == 0
        assert child.stderr is not None
        [line] = child.stderr.read().splitlines()
    assert "costs" in line and line.startswith("engine: ")


def test_it_ends_when_the_http_process_has_gone(tiny_llama: Path) -> None:
    with process(EngineOptions(model=str(tiny_llama), kv_memory=8 << 20, threads=1)) as (
        child,
        peer,
    ):
        assert isinstance(peer.receive(), Ready)
        peer.connection.close()
        assert child.wait(60) == 1
        assert child.stderr is not None
        [line] = child.stderr.read().splitlines()
    assert line.startswith("engine: ") and "HTTP process" in line


def test_a_model_that_cannot_be_served(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with process(EngineOptions(model=str(tmp_path))) as (child, peer):
        failed = peer.receive()
        assert isinstance(failed, Failed)
        assert "\n" not in failed.message and str(tmp_path) in failed.message
        assert peer.receive() is None
        assert child.wait(60) == 2
        assert child.stderr is not None and child.stderr.read() == ""
