"""Which kernels run: what was built, what the machine can, and what the environment asks for."""

import importlib
import shutil
from collections.abc import Mapping
from typing import Any

import pytest

from slipstream.errors import UserError
from slipstream.kernels import choice
from slipstream.kernels.choice import choose, native_build
from slipstream.kernels.native.isa import ISAS, choose_isa, why_not
from slipstream.machine import cpu_flags

ALL = frozenset(ISAS["amx"])


class Build:
    """A compiled module that has kernels for ``compiled`` on a machine that runs ``supported``."""

    def __init__(self, supported: set[str], compiled: set[str] = set(ISAS)) -> None:  # noqa: B006
        self._supported, self._compiled = supported, compiled

    def supports(self, isa: str) -> bool:
        return isa in self._supported & self._compiled

    def compiled(self, isa: str) -> bool:
        return isa in self._compiled

    def compiler(self) -> str:
        return "gcc 12.2.0"


def test_the_fastest_that_runs_is_chosen() -> None:
    assert choose_isa(Build(set(ISAS)), ALL, None) == "amx"
    assert choose_isa(Build({"avx2", "portable"}), ALL, None) == "avx2"
    assert choose_isa(Build(set(ISAS), {"portable"}), ALL, None) == "portable"


def test_a_slower_one_can_be_forced() -> None:
    assert choose_isa(Build(set(ISAS)), ALL, "portable") == "portable"


@pytest.mark.parametrize(
    ("isa", "words"),
    [
        ("avx512", "the processor lacks avx512_vnni; this machine runs avx2, portable"),
        ("sse9", "there is no such instruction set; this machine runs avx2, portable"),
        ("AVX2", "there is no such instruction set"),
    ],
)
def test_what_cannot_be_forced(isa: str, words: str) -> None:
    build = Build({"avx2", "portable"})
    with pytest.raises(UserError, match=f"^SLIPSTREAM_ISA={isa}: {words}"):
        choose_isa(build, ALL - {"avx512_vnni"}, isa)


def test_why_an_instruction_set_does_not_run() -> None:
    build = Build({"portable"}, {"portable", "amx", "avx512"})
    assert why_not(build, frozenset(), "portable") is None
    assert why_not(build, ALL, "avx2") == "the compiler that built the kernels did not know it"
    assert why_not(build, ALL - {"fma"}, "avx512") == "the processor lacks fma"
    assert why_not(build, ALL, "amx") == "the operating system does not permit it"


def choose_with(
    monkeypatch: pytest.MonkeyPatch, build: Build | str, environment: Mapping[str, str]
) -> choice.Choice:
    monkeypatch.setattr(choice, "native_build", lambda: build)
    return choose(environment)


def test_native_kernels_run_where_they_were_built(monkeypatch: pytest.MonkeyPatch) -> None:
    build = Build({"avx2", "portable"})
    chosen = choose_with(monkeypatch, build, {"SLIPSTREAM_ISA": "", "SLIPSTREAM_KERNELS": ""})
    assert (chosen.name, chosen.why) == ("native (avx2)", "the fastest that this machine runs")
    chosen = choose_with(monkeypatch, build, {"SLIPSTREAM_ISA": "portable"})
    assert (chosen.isa, chosen.why) == ("portable", "SLIPSTREAM_ISA asks for it")


def test_torch_runs_where_they_were_not(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = choose_with(monkeypatch, "the native kernels are not built", {})
    assert (chosen.name, chosen.isa) == ("torch", None)
    assert chosen.why == "the native kernels are not built"


def test_torch_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = choose_with(monkeypatch, Build(set(ISAS)), {"SLIPSTREAM_KERNELS": "torch"})
    assert (chosen.name, chosen.why) == ("torch", "SLIPSTREAM_KERNELS asks for them")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"SLIPSTREAM_KERNELS": "cuda"}, "SLIPSTREAM_KERNELS=cuda .* native or torch"),
        ({"SLIPSTREAM_KERNELS": "native"}, "SLIPSTREAM_KERNELS=native .*: not built"),
        ({"SLIPSTREAM_ISA": "avx2"}, "SLIPSTREAM_ISA=avx2 .*: not built"),
        ({"SLIPSTREAM_KERNELS": "torch", "SLIPSTREAM_ISA": "avx2"}, "SLIPSTREAM_ISA=avx2"),
    ],
)
def test_what_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        choose_with(monkeypatch, "not built", environment)


@pytest.mark.parametrize(
    ("error", "compiler", "words"),
    [
        (ModuleNotFoundError("_native"), None, "not built; there is no C.. compiler"),
        (ModuleNotFoundError("_native"), "/usr/bin/g++", "not built; `make native`"),
        (ImportError("undefined symbol: x"), None, r"do not load \(undefined symbol: x\)"),
    ],
)
def test_why_there_is_no_build(
    monkeypatch: pytest.MonkeyPatch, error: ImportError, compiler: str | None, words: str
) -> None:
    def fail(name: str) -> Any:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    monkeypatch.setattr(shutil, "which", lambda program: compiler)
    why = native_build()
    assert isinstance(why, str)
    with pytest.raises(UserError, match=words):
        raise UserError(why)


def test_linux_and_the_build_agree_on_this_processor() -> None:
    build = native_build()
    if isinstance(build, str):
        pytest.skip(build)
    assert build.compiler()
    assert build.supports("portable")
    for isa, flags in ISAS.items():
        if build.supports(isa):
            assert cpu_flags().issuperset(flags)
        else:
            assert why_not(build, cpu_flags(), isa)
    assert not build.supports("sse9") and not build.compiled("sse9")
