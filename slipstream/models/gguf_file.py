"""GGUF files: metadata and the tensor table, every length checked before it is believed.

The ``gguf`` package knows the formats and unpacks the quantised blocks. Its reader is not used: it
trusts the lengths in the file, and takes seconds for a vocabulary.
"""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from slipstream.errors import UserError
from slipstream.kernels.weight import Weight

_VALUE_FORMATS = {
    gguf.GGUFValueType.UINT8: "B",
    gguf.GGUFValueType.INT8: "b",
    gguf.GGUFValueType.UINT16: "H",
    gguf.GGUFValueType.INT16: "h",
    gguf.GGUFValueType.UINT32: "I",
    gguf.GGUFValueType.INT32: "i",
    gguf.GGUFValueType.FLOAT32: "f",
    gguf.GGUFValueType.BOOL: "?",
    gguf.GGUFValueType.UINT64: "Q",
    gguf.GGUFValueType.INT64: "q",
    gguf.GGUFValueType.FLOAT64: "d",
}
_FLOAT_KINDS = {
    gguf.GGMLQuantizationType.F32: "float32",
    gguf.GGMLQuantizationType.F16: "float16",
    gguf.GGMLQuantizationType.BF16: "bfloat16",
}
_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 4


@dataclass(frozen=True)
class GGUFTensor:
    """Where one tensor lies. ``shape`` is row-major, as numpy and PyTorch count."""

    name: str
    shape: tuple[int, ...]
    type: gguf.GGMLQuantizationType
    offset: int  # bytes from the start of the file
    size: int  # bytes


class GGUFFile:
    """An open GGUF file, mapped into memory: ``metadata`` by key and ``tensors`` by name.

    Raises ``UserError`` for a file that is foreign, cut off or corrupt.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _map(path)
        try:
            cursor = _Cursor(self._data)
            tensor_count, metadata_count = self._read_counts(cursor)
            self.metadata: dict[str, Any] = {}
            for _ in range(metadata_count):
                key = cursor.text()
                self.metadata[key] = cursor.value()
            entries = [_read_entry(cursor) for _ in range(tensor_count)]
            self.tensors = self._place(entries, cursor.position)
        except _CorruptError as error:
            raise UserError(f"{path} is damaged or cut off: {error}; fetch it again") from None
        for kind in {tensor.type for tensor in self.tensors.values()}:
            self._check_type(kind)

    def weight(self, name: str) -> Weight:
        """The tensor as it is stored, a view of the file."""
        tensor = self.tensors[name]
        raw = np.frombuffer(self._data, np.uint8, tensor.size, tensor.offset)
        block, block_bytes = gguf.GGML_QUANT_SIZES[tensor.type]
        row_bytes = tensor.shape[-1] // block * block_bytes
        kind = _FLOAT_KINDS.get(tensor.type, tensor.type.name.lower())
        return Weight(tensor.shape, kind, raw.reshape(-1, row_bytes))

    def _check_type(self, kind: gguf.GGMLQuantizationType) -> None:
        block = np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
        try:
            gguf.dequantize(block, kind)
        except NotImplementedError:
            raise UserError(
                f"{self.path} holds {kind.name} tensors, which cannot be unpacked; "
                "take a version in Q8_0, Q4_K_M or another common type"
            ) from None

    def _read_counts(self, cursor: "_Cursor") -> tuple[int, int]:
        if self._data[:4] != b"GGUF":
            raise UserError(
                f"{self.path} is not a GGUF file: it does not start with the letters GGUF"
            )
        cursor.position = 4
        version = cursor.number("I")
        if version not in _VERSIONS:
            raise UserError(
                f"{self.path} is GGUF version {version}; "
                "supported are little-endian versions 2 and 3"
            )
        return cursor.number("Q"), cursor.number("Q")

    def _place(
        self, entries: list[tuple[str, tuple[int, ...], int, int]], header_size: int
    ) -> dict[str, GGUFTensor]:
        alignment = self.metadata.get("general.alignment", gguf.GGUF_DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise _CorruptError(f"its alignment is {alignment!r}, not a power of two")
        start = (header_size + alignment - 1) // alignment * alignment
        tensors: dict[str, GGUFTensor] = {}
        for name, shape, type_id, offset in entries:
            tensor = _check_tensor(name, shape, type_id, start + offset)
            if tensor.offset + tensor.size > len(self._data):
                raise _CorruptError(
                    f"tensor {name} ends at byte {tensor.offset + tensor.size} "
                    f"of a file of {len(self._data)} bytes"
                )
            if name in tensors:
                raise _CorruptError(f"tensor {name} is listed twice")
            tensors[name] = tensor
        return tensors


class _CorruptError(Exception):
    """What is wrong inside the file, to be completed with its path."""


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise UserError(f"{path} is empty; it should be a GGUF file") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


class _Cursor:
    """Reads values one after the other and never beyond the end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> int:
        """Start of the next ``size`` bytes, which are then behind the cursor."""
        start = self.position
        if size > len(self.data) - start:
            raise _CorruptError(f"its header needs {size} bytes at {start} of {len(self.data)}")
        self.position = start + size
        return start

    def number(self, letter: str) -> int:
        layout = struct.Struct("<" + letter)
        value: int = layout.unpack_from(self.data, self.take(layout.size))[0]
        return value

    def text(self) -> str:
        size = self.number("Q")
        start = self.take(size)
        try:
            return self.data[start : start + size].decode()
        except UnicodeDecodeError:
            raise _CorruptError(f"the text at byte {start} of its header is not UTF-8") from None

    def value(self) -> Any:
        kind = self._kind()
        if kind == gguf.GGUFValueType.STRING:
            return self.text()
        if kind == gguf.GGUFValueType.ARRAY:
            return self._array()
        return self.number(_VALUE_FORMATS[kind])

    def _kind(self) -> gguf.GGUFValueType:
        number = self.number("I")
        try:
            return gguf.GGUFValueType(number)
        except ValueError:
            raise _CorruptError(f"its header holds a value of unknown type {number}") from None

    def _array(self) -> list[Any]:
        kind, count = self._kind(), self.number("Q")
        if kind == gguf.GGUFValueType.STRING:
            return [self.text() for _ in range(count)]
        if kind == gguf.GGUFValueType.ARRAY:
            raise _CorruptError("its header holds an array of arrays")
        letter = _VALUE_FORMATS[kind]
        start = self.take(count * struct.calcsize("<" + letter))
        return list(struct.unpack_from(f"<{count}{letter}", self.data, start))


def _read_entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, row-major shape, type id and offset in the data of one tensor."""
    name = cursor.text()
    dimensions = cursor.number("I")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise _CorruptError(f"tensor {name[:60]!r} has {dimensions} dimensions")
    sizes = [cursor.number("Q") for _ in range(dimensions)]
    return name, tuple(reversed(sizes)), cursor.number("I"), cursor.number("Q")


def _check_tensor(name: str, shape: tuple[int, ...], type_id: int, offset: int) -> GGUFTensor:
    try:
        kind = gguf.GGMLQuantizationType(type_id)
    except ValueError:
        raise _CorruptError(f"tensor {name} has the unknown type {type_id}") from None
    if prod(shape) == 0:
        raise _CorruptError(f"tensor {name} is empty")
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    if shape[-1] % block:
        raise _CorruptError(
            f"rows of {shape[-1]} in tensor {name} are not whole {kind.name} blocks"
        )
    return GGUFTensor(name, shape, kind, offset, prod(shape) // block * block_bytes)
