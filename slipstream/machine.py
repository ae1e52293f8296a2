"""What this machine is: its processor and memory."""

import os
from pathlib import Path


def cpu_model() -> str:
    """The processor's name as Linux tells it, or its architecture."""
    return _cpuinfo().get("model name", os.uname().machine)


def cpu_flags() -> frozenset[str]:
    """What the processor can do, in Linux's words, where the operating system lets it."""
    return frozenset(_cpuinfo().get("flags", "").split())


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def available_memory() -> int:
    """Bytes that a program can have now.

    Linux says so itself; its count of free pages leaves out what only caches files, which after
    a large download is nearly everything.
    """
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    return machine_memory() // 2


def machine_memory() -> int:
    """Bytes of memory in this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cpuinfo() -> dict[str, str]:
    """What Linux says of the first core; empty elsewhere."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return {}
    lines = cpuinfo.read_text().split("\n\n", 1)[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
