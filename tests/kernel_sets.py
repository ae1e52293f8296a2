"""The kernel sets there are, which of them this machine runs, and how to make one.

A set is named by its instruction set, or ``torch``. Tests are parametrised over names; what this
machine cannot run is skipped.
"""

import os
from collections.abc import Sequence
from typing import Any

import pytest

from slipstream.kernels import Kernels
from slipstream.kernels.choice import choose, native_build
from slipstream.kernels.native.isa import ISAS

TORCH = "torch"
NATIVE = tuple(ISAS)
CHOSEN = choose(os.environ).isa or TORCH  # what the engine runs on here


def missing(name: str) -> str | None:
    """Why this machine has no such set; None if it has."""
    if name == TORCH:
        return None
    build = native_build()
    if isinstance(build, str):
        return build
    return None if build.supports(name) else f"this machine or build cannot run {name}"


# The native set that is tested most: what the engine runs on, else the fastest there is.
BEST = CHOSEN if CHOSEN in NATIVE else next((n for n in NATIVE if not missing(n)), NATIVE[-1])
EVERY = (*NATIVE, TORCH)
EVERY_KIND = tuple(dict.fromkeys((BEST, "portable", TORCH)))  # one of each kind, the best first


def param(name: str, value: Any = None) -> Any:
    """A parameter for a fixture or ``pytest.mark.parametrize``: ``value``, or else the name."""
    why = missing(name)
    return pytest.param(
        name if value is None else value, marks=[pytest.mark.skip(why)] if why else []
    )


def params(names: Sequence[str]) -> list[Any]:
    """A parameter for each name."""
    return [param(name) for name in names]


def make(name: str, threads: int = 1) -> Kernels:
    """A fresh kernel set. Torch's threads are the whole process's."""
    if name == TORCH:
        from slipstream.kernels.torch.kernels import TorchKernels

        return TorchKernels(threads)
    from slipstream.kernels.native.kernels import NativeKernels

    return NativeKernels(name, threads)
