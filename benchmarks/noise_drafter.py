"""A copy of a drafter whose weights are random: it costs as much and guesses nothing.

    python benchmarks/noise_drafter.py FOLDER

Each tensor's numbers are drawn from a normal distribution with the tensor's own mean and standard
deviation, so that activations keep their size. The draft vocabulary stays as it is.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from slipstream.engine.load import SHIPPED_DRAFTER
from slipstream.models.safetensors_file import SafetensorsFile, write_bfloat16

_VOCABULARY = ("d2t", "t2d")
_FILE = "model.safetensors"


def write_noise_drafter(folder: Path, source: Path = SHIPPED_DRAFTER) -> None:
    """Write the copy into ``folder``, which is made. Raises ``FileExistsError`` if it is there."""
    folder.mkdir(parents=True)
    shutil.copy(source / "config.json", folder)
    tensors = SafetensorsFile(source / _FILE, others=_VOCABULARY)
    shapes = {name: shape for name, shape in tensors.shapes.items() if name not in _VOCABULARY}
    random = np.random.default_rng(0)

    def noise(name: str) -> NDArray[np.float32]:
        values = tensors.weight(name).float32()
        drawn = random.standard_normal(values.shape, np.float32)
        return np.asarray(drawn * values.std() + values.mean(), np.float32)

    with safe_open(source / _FILE, "numpy") as file:
        vocabulary = {name: file.get_tensor(name) for name in _VOCABULARY if name in tensors.shapes}
    write_bfloat16(folder / _FILE, shapes, noise, vocabulary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source", type=Path, default=SHIPPED_DRAFTER)
    arguments = parser.parse_args()
    write_noise_drafter(arguments.folder, arguments.source)


if __name__ == "__main__":
    main()
