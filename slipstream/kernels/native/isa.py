"""The instruction sets of the native kernels: which this machine runs, and why not the others."""

from typing import Protocol

from slipstream.errors import UserError

_AVX2 = ("avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni")

# The fastest first, with the processor's flags that each needs, as Linux names them.
ISAS: dict[str, tuple[str, ...]] = {
    "amx": (*_AVX512, "avx512_bf16", "amx_tile", "amx_bf16"),
    "avx512": _AVX512,
    "avx2": _AVX2,
    "portable": (),
}


class NativeBuild(Protocol):
    """What is asked of the compiled module."""

    def supports(self, isa: str) -> bool:
        """This machine can run the build's kernels for ``isa``."""
        ...

    def compiled(self, isa: str) -> bool:
        """The build has kernels for ``isa``."""
        ...

    def compiler(self) -> str:
        """What compiled it, with its version."""
        ...


def choose_isa(build: NativeBuild, flags: frozenset[str], wanted: str | None) -> str:
    """The instruction set that is wanted, or else the fastest.

    Raises ``UserError`` if the one that is wanted does not exist or does not run here.
    """
    offered = [isa for isa in ISAS if build.supports(isa)]
    if wanted is None:
        return offered[0]
    if wanted in offered:
        return wanted
    why = why_not(build, flags, wanted) if wanted in ISAS else "there is no such instruction set"
    raise UserError(f"SLIPSTREAM_ISA={wanted}: {why}; this machine runs {', '.join(offered)}")


def why_not(build: NativeBuild, flags: frozenset[str], isa: str) -> str | None:
    """Why the native kernels for ``isa`` cannot run on this machine; None if they can."""
    if build.supports(isa):
        return None
    if not build.compiled(isa):
        return "the compiler that built the kernels did not know it"
    if missing := [flag for flag in ISAS[isa] if flag not in flags]:
        return f"the processor lacks {', '.join(missing)}"
    return "the operating system does not permit it"
