"""All processes that came of one launch, wherever they went, and their end.

A server's children may leave its process group, or outlive it. What they cannot leave is their
environment, so a launch sets a mark there. Where there is no ``/proc`` only the group is found.

    python -m slipstream.bench.process_tree MARK PID

is a guard: when its standard input ends, as it does when the process that holds the other end dies
of whatever cause, it ends everything that bears the mark.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

MARK = "SLIPSTREAM_LAUNCH"
"""The environment variable that holds a launch's mark."""


def members(mark: str) -> list[int]:
    """The living processes that bear the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def end_all(mark: str, group: int, grace_s: float = 0.0) -> None:
    """Kill what bears the mark, after giving it ``grace_s`` to end by itself.

    Where marks cannot be read, kill the process group ``group``.
    """
    deadline = time.monotonic() + grace_s
    while members(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    if not Path("/proc/self/environ").exists():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    while left := members(mark):  # again, since one may have forked in between
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


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
