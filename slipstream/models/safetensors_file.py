"""Safetensors files: the library checks every bound, and never runs code."""

import json
import mmap
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from slipstream.errors import UserError
from slipstream.kernels.weight import Weight

_KINDS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class SafetensorsFile:
    """One file, mapped into memory: ``shapes`` by tensor name.

    Raises ``UserError`` for a file that is foreign, cut off, corrupt, or not made of floats.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _map(path)
        size = int.from_bytes(self._data[:8], "little")
        self._start = 8 + size
        self._header = json.loads(self._data[8 : self._start])
        self._header.pop("__metadata__", None)
        self.shapes = {name: tuple(entry["shape"]) for name, entry in self._header.items()}
        for name, entry in self._header.items():
            if (kind := entry["dtype"]) not in _KINDS:
                raise UserError(
                    f"{path} stores {name} as {kind}; supported are {', '.join(_KINDS)}, "
                    "so take the model's unquantised or GGUF version"
                )

    def weight(self, name: str) -> Weight:
        """The tensor as it is stored, a view of the file."""
        entry, shape = self._header[name], self.shapes[name]
        begin, end = entry["data_offsets"]
        raw = np.frombuffer(self._data, np.uint8, end - begin, self._start + begin)
        return Weight(shape, _KINDS[entry["dtype"]], raw.reshape(prod(shape[:-1]), -1))


def write_bfloat16(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    read: Callable[[str], NDArray[np.float32]],
) -> None:
    """Write tensors, rounded to the nearest bfloat16, ties to even; ``read`` gives each by name.

    The file is the library's byte for byte, but only one tensor at a time is in memory.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in sorted(shapes):
        begin, end = end, end + bfloat16_bytes(shapes[name])
        header[name] = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(shapes):
            file.write(_bfloat16(read(name)).tobytes())


def bfloat16_bytes(shape: tuple[int, ...]) -> int:
    """Size of a bfloat16 tensor."""
    return 2 * prod(shape)


def _bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves of float32 values, rounded to nearest, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def _map(path: Path) -> mmap.mmap:
    """The file, after the library found its header and all offsets in it sound."""
    try:
        with safe_open(path, "numpy"), path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise UserError(f"{path} is missing") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(
            f"{path} is not a whole safetensors file ({error}); fetch it again"
        ) from None
