"""A weight as its file stores it, so that kernels can pack it without expanding it first."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

_FLOATS = {"float64": "<f8", "float32": "<f4", "float16": "<f2"}


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A matrix ``[N, K]`` in N rows, or a vector ``[N]`` in one.

    ``kind`` says how a row's values are packed: ``float64``, ``float32``, ``float16``,
    ``bfloat16``, all little-endian, or the small-letter name of a GGUF type, such as ``q4_1``,
    whose blocks never cross rows. ``data`` is uint8 ``[rows, row_bytes]``, contiguous, and most
    often a read-only view of a mapped file.
    """

    shape: tuple[int, ...]
    kind: str
    data: NDArray[np.uint8]

    @classmethod
    def of(cls, values: NDArray[np.float32]) -> Self:
        """The float32 weight with these values."""
        rows = np.ascontiguousarray(values, "<f4").reshape(-1, values.shape[-1])
        return cls(values.shape, "float32", rows.view(np.uint8))

    def float32(self) -> NDArray[np.float32]:
        """The values, as a fresh and contiguous float32 array of the weight's shape."""
        if self.kind in _FLOATS:
            return self.data.view(_FLOATS[self.kind]).astype(np.float32).reshape(self.shape)
        if self.kind == "bfloat16":
            bits = self.data.view("<u2").astype(np.uint32)
            bits <<= 16
            return bits.view(np.float32).reshape(self.shape)
        import gguf

        values: NDArray[np.float32] = gguf.dequantize(
            self.data, gguf.GGMLQuantizationType[self.kind.upper()]
        )
        return values.reshape(self.shape)
