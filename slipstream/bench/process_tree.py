"""All processes that came of one launch, wherever they went, and their end.

A server's children may leave its process group, or outlive it. A launch therefore sets a mark in
their environment. Those that lose it (``env -i``, or ``setproctitle``, which writes over it, in
vLLM's and SGLang's processes) are found by the session that the launch began, or by their parents.
Where there is no ``/proc`` only the group is found.

    python -m slipstream.bench.process_tree MARK PID

is a guard: when its standard input ends, as it does when the process that holds the other end dies
of whatever cause, it ends everything that came of the launch.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

MARK = "SLIPSTREAM_LAUNCH"
"""The environment variable that holds a launch's mark."""

_KILLING_S = 10.0  # what a driver holds on to may not end at all


class Process(NamedTuple):
    """One that lives. A number may be given again, but not with the same ``started``."""

    pid: int
    parent: int
    session: int
    started: int  # clock ticks since the machine's start


def living() -> list[Process]:
    """All processes of this machine but zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            state, *fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            if state not in (b"Z", b"X"):
                parent, session, started = (int(fields[place]) for place in (0, 2, 18))
                found.append(Process(int(folder.name), parent, session, started))
    return found


def _bears(pid: int, mark: str) -> bool:
    with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def family(mark: str, session: int | None = None) -> set[Process]:
    """The living processes that bear the mark or are of the session, and their descendants."""
    everyone = living()
    found = {one for one in everyone if one.session == session or _bears(one.pid, mark)}
    while True:
        parents = {one.pid for one in found}
        more = {one for one in everyone if one.parent in parents} - found
        if not more:
            return found
        found |= more


def members(mark: str) -> list[int]:
    """The numbers of the living processes that bear the mark, and of their descendants."""
    return sorted(one.pid for one in family(mark))


def end_all(
    mark: str, leader: int, grace_s: float = 0.0, known: Iterable[Process] = ()
) -> list[int]:
    """Kill what came of a launch, after giving it ``grace_s`` to end by itself.

    ``leader`` is the process that was launched, whose session it leads; ``known`` are others,
    which may be found no more. Returns what could not be killed. Where there is no ``/proc``, kill
    the leader's process group.
    """
    if not Path("/proc/self/stat").exists():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
        return []

    def left() -> list[int]:
        same = {(one.pid, one.started) for one in known}
        others = {one for one in living() if (one.pid, one.started) in same} if same else set()
        return sorted(one.pid for one in family(mark, leader) | others)

    deadline = time.monotonic() + grace_s
    while left() and time.monotonic() < deadline:
        time.sleep(0.05)
    deadline = time.monotonic() + _KILLING_S
    while (pids := left()) and time.monotonic() < deadline:  # again: one may have forked meanwhile
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return pids


def cpu_seconds(pids: list[int]) -> float:
    """Processor time of these processes so far; those that have ended do not count."""
    total = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def _guard() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_all(sys.argv[1], int(sys.argv[2]))


if __name__ == "__main__":
    _guard()
