"""Models are read without PyTorch: the HTTP process and the native kernels do without it."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import importlib, pkgutil, sys
import slipstream.kernels, slipstream.models
for module in pkgutil.iter_modules(slipstream.models.__path__, "slipstream.models."):
    importlib.import_module(module.name)
from slipstream.models.checkpoint import open_checkpoint
for path in sys.argv[1:]:
    checkpoint = open_checkpoint(path)
    for name in checkpoint.shapes:
        checkpoint.weight(name).float32()
assert not {"torch", "transformers"} & set(sys.modules)
"""


def test_models_are_read_without_torch(tiny_folders: dict[str, Path], tiny_gguf: Path) -> None:
    paths = [str(tiny_folders["llama"]), str(tiny_gguf)]
    subprocess.run([sys.executable, "-c", PROGRAM, *paths], check=True)
