"""``slipstream info``: what is installed here, and what will compute."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import typer

from slipstream import __version__


def info() -> None:
    """Print versions, the machine, and which kernels run and why."""
    from slipstream import machine
    from slipstream.kernels.choice import choose, native_build
    from slipstream.kernels.native.isa import ISAS, why_not

    choice = choose(os.environ)
    flags = machine.cpu_flags()
    build = native_build()
    best = next(isa for isa, needed in ISAS.items() if flags.issuperset(needed))
    cores = machine.cores()
    memory = machine.machine_memory() / 2**30
    lines = [
        ("slipstream", __version__),
        ("python", f"{platform.python_version()}, {platform.platform()}"),
        ("torch", _installed("torch")),
        ("machine", f"{machine.cpu_model()}, {cores} cores, {memory:.1f} GiB, {best} instructions"),
        ("kernels", f"{choice.name}: {choice.why}"),
        ("threads", f"{cores}, one per core"),
    ]
    if not isinstance(build, str):
        lines += [("compiler", build.compiler())]
        for isa in ISAS:
            runs = "runs" if isa == choice.isa else "can run"
            lines += [(isa, why_not(build, flags, isa) or runs)]
    for name, text in lines:
        typer.echo(f"{name:11} {text}")


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
