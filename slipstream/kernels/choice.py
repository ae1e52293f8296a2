"""Which kernels run, and why. Imports nothing heavy, so that ``slipstream info`` is quick."""

import importlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from slipstream.errors import UserError
from slipstream.kernels.native.isa import NativeBuild, choose_isa
from slipstream.machine import cpu_flags


@dataclass(frozen=True, slots=True)
class Choice:
    """One kernel set."""

    isa: str | None  # of the native kernels; None for torch's
    why: str  # for people: half a sentence

    @property
    def name(self) -> str:
        return "torch" if self.isa is None else f"native ({self.isa})"


def choose(environment: Mapping[str, str]) -> Choice:
    """The native kernels where they were built, else torch's.

    ``SLIPSTREAM_KERNELS`` and ``SLIPSTREAM_ISA`` force a choice; empty is as good as not set.
    Raises ``UserError`` if what they ask for does not exist or does not run here.
    """
    kernels = environment.get("SLIPSTREAM_KERNELS") or None
    isa = environment.get("SLIPSTREAM_ISA") or None
    if kernels not in (None, "native", "torch"):
        raise UserError(f"SLIPSTREAM_KERNELS={kernels} is unknown; it should be native or torch")
    if kernels == "torch":
        if isa is not None:
            raise UserError(f"SLIPSTREAM_ISA={isa} needs the native kernels, not torch's")
        return Choice(None, "SLIPSTREAM_KERNELS asks for them")
    build = native_build()
    if isinstance(build, str):
        if kernels or isa:
            asked = f"SLIPSTREAM_ISA={isa}" if isa else "SLIPSTREAM_KERNELS=native"
            raise UserError(f"{asked} cannot be had: {build}")
        return Choice(None, build)
    chosen = choose_isa(build, cpu_flags(), isa)
    why = "SLIPSTREAM_ISA asks for it" if isa else "the fastest that this machine runs"
    return Choice(chosen, why)


def native_build() -> NativeBuild | str:
    """The compiled module, or why it is not there."""
    try:
        module = importlib.import_module("slipstream.kernels.native._native")
    except ModuleNotFoundError:
        return f"the native kernels are not built; {_remedy()}"
    except ImportError as error:
        return f"the native kernels do not load ({error}); {_remedy()}"
    return cast(NativeBuild, module)


def _remedy() -> str:
    if any(map(shutil.which, ("c++", "g++", "clang++"))):
        return "`make native` (or `pip install -v`) builds them, or shows what fails"
    return "there is no C++ compiler: install g++ or clang, then install Slipstream again"
