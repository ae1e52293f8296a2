"""Safetensors files: the library checks every bound, and never runs code."""

import json
import mmap
from collections.abc import Callable, Collection, Mapping
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from slipstream.errors import UserError
from slipstream.kernels.weight import Weight

_KINDS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_INTEGERS = {"I64": "<i8", "I32": "<i4"}
_SIZES = {"I64": 8, "BF16": 2, "BOOL": 1}

Integers = NDArray[np.int64] | NDArray[np.bool_]


class SafetensorsFile:
    """One file, mapped into memory: ``shapes`` by tensor name.

    Raises ``UserError`` for a file that is foreign, cut off, corrupt, or not made of floats; only
    the tensors named in ``others`` may be something else.
    """

    def __init__(self, path: Path, others: Collection[str] = ()) -> None:
        self.path = path
        self._data = _map(path)
        size = int.from_bytes(self._data[:8], "little")
        self._start = 8 + size
        self._header = json.loads(self._data[8 : self._start])
        self._header.pop("__metadata__", None)
        self.shapes = {name: tuple(entry["shape"]) for name, entry in self._header.items()}
        for name, entry in self._header.items():
            if (kind := entry["dtype"]) not in _KINDS and name not in others:
                raise UserError(
                    f"{path} stores {name} as {kind}; supported are {', '.join(_KINDS)}, "
                    "so take the model's unquantised or GGUF version"
                )

    def weight(self, name: str) -> Weight:
        """The tensor as it is stored, a view of the file."""
        shape = self.shapes[name]
        kind = _KINDS[self._header[name]["dtype"]]
        return Weight(shape, kind, self._bytes(name).reshape(prod(shape[:-1]), -1))

    def integers(self, name: str) -> NDArray[np.int64]:
        """A tensor of 64-bit or 32-bit integers, as a copy. Raises ``UserError`` for others."""
        if (kind := self._header[name]["dtype"]) not in _INTEGERS:
            raise UserError(f"{self.path} stores {name} as {kind}; it should be I64 or I32")
        values = self._bytes(name).view(_INTEGERS[kind])
        return values.astype(np.int64).reshape(self.shapes[name])

    def _bytes(self, name: str) -> NDArray[np.uint8]:
        begin, end = self._header[name]["data_offsets"]
        return np.frombuffer(self._data, np.uint8, end - begin, self._start + begin)


def write_bfloat16(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    read: Callable[[str], NDArray[np.float32]],
    integers: Mapping[str, Integers] | None = None,
) -> None:
    """Write tensors, rounded to the nearest bfloat16, ties to even; ``read`` gives each by name.

    ``integers`` are written as they are. The file is the library's byte for byte, but only one
    tensor at a time is in memory.
    """
    others = {} if integers is None else integers
    kinds = dict.fromkeys(shapes, "BF16")
    kinds |= {name: "BOOL" if a.dtype == np.bool_ else "I64" for name, a in others.items()}
    order = sorted(kinds, key=lambda name: (-_SIZES[kinds[name]], name))  # as the library does
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        shape = shapes[name] if name in shapes else others[name].shape
        begin, end = end, end + _SIZES[kinds[name]] * prod(shape)
        header[name] = {"dtype": kinds[name], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            array = _bfloat16(read(name)) if name in shapes else others[name]
            file.write(array.tobytes())


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
