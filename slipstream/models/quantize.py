"""Rounding a model's matrices to 8 or 4 bits while it is loaded.

The plainest way there is: round to nearest, each group of 32 inputs by itself, without looking at
any data. The result has GGUF's block layouts, so that kernels pack it as they pack such files.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import UserError
from slipstream.kernels.weight import Weight
from slipstream.models.checkpoint import Checkpoint, Shape
from slipstream.models.config import ModelConfig
from slipstream.models.tokenizer_parts import TokenizerParts

Quantization: TypeAlias = Literal["none", "int8", "int4"]

GROUP = 32  # inputs that share a scale
_VALUES_AT_A_TIME = 1 << 18  # few enough to stay in a cache

# Every token's logit hangs on the head, which is often the embedding too: 8 bits at least.
_TABLES = ("model.embed_tokens.weight", "lm_head.weight")
# Kinds that kernels pack as they are, and that have no more bits than the one asked for.
_KEPT = {"q8_0": ("q8_0", "q4_0", "q4_1"), "q4_1": ("q4_0", "q4_1")}


class QuantizedCheckpoint:
    """A checkpoint whose matrices are rounded when they are read. See ``Checkpoint``.

    ``int8`` makes Q8_0 of them; ``int4`` makes Q4_1, and Q8_0 of the embedding and the output head.
    Matrices stored as Q8_0, Q4_0 or Q4_1 are left alone unless fewer bits are asked for. Other
    types are rounded even if they are as small, because kernels could not keep them packed.
    Vectors stay as they are.
    """

    def __init__(self, checkpoint: Checkpoint, quantization: Literal["int8", "int4"]) -> None:
        self._checkpoint = checkpoint
        self._quantization = quantization

    @property
    def name(self) -> str:
        return self._checkpoint.name

    @property
    def config(self) -> ModelConfig:
        return self._checkpoint.config

    @property
    def shapes(self) -> Mapping[str, Shape]:
        return self._checkpoint.shapes

    def weight(self, name: str) -> Weight:
        """The tensor, rounded if it is a matrix. Raises ``UserError`` if it cannot be."""
        weight = self._checkpoint.weight(name)
        kind = "q8_0" if self._quantization == "int8" or name in _TABLES else "q4_1"
        if len(weight.shape) == 1 or weight.kind in _KEPT[kind]:
            return weight
        try:
            return quantize(weight, kind)
        except ValueError as error:
            raise UserError(
                f"{self.name} cannot be quantised to {self._quantization}: {name} {error}"
            ) from None

    def tokenizer_parts(self) -> TokenizerParts:
        return self._checkpoint.tokenizer_parts()


def quantize(weight: Weight, kind: str) -> Weight:
    """The matrix ``[N, K]`` as ``q8_0`` or ``q4_1``, rounded with the scales that are stored.

    No value moves by more than half its group's scale, but for float32's own rounding. Raises
    ``ValueError`` if K is not a multiple of 32, or for values that are not finite or too large for
    scales in float16.
    """
    rows, inputs = weight.shape
    if inputs % GROUP:
        raise ValueError(f"has {inputs} inputs; it should be a multiple of {GROUP}")
    round_groups = {"q8_0": _q8_0, "q4_1": _q4_1}[kind]
    height = max(_VALUES_AT_A_TIME // inputs, 1)
    parts = []
    for first in range(0, rows, height):
        data = weight.data[first : first + height]
        values = replace(weight, shape=(len(data), inputs), data=data).float32()
        # Not finite, or beyond float16: found in the scales, which are few.
        with np.errstate(over="ignore", invalid="ignore"):
            parts.append(round_groups(values.reshape(-1, GROUP)).reshape(len(data), -1))
    return Weight(weight.shape, kind, np.concatenate(parts))


def _q8_0(groups: NDArray[np.float32]) -> NDArray[np.uint8]:
    """``[n, 32]`` to blocks ``[n, 34]``: scale, then signed bytes q; value = scale * q."""
    scale = _scale(np.abs(groups).max(1)[:, None], 127)
    blocks = np.empty((len(groups), 2 + GROUP), np.uint8)
    blocks[:, :2] = scale.view(np.uint8)
    blocks[:, 2:].view(np.int8)[:] = np.rint(groups / _divisor(scale))
    return blocks


def _q4_1(groups: NDArray[np.float32]) -> NDArray[np.uint8]:
    """``[n, 32]`` to blocks ``[n, 20]``: scale, minimum, then bytes of value i in the low and value
    i + 16 in the high nibble; value = scale * q + minimum."""
    least, most = groups.min(1)[:, None], groups.max(1)[:, None]
    minimum = least.astype("<f2")
    # Where values are close together, float16 is coarse: no value may lie half a step below.
    high = 32 * (minimum - least) > most - least
    minimum[high] = np.nextafter(minimum[high], np.float16(-np.inf))
    start = minimum.astype(np.float32)
    scale = _scale(most - start, 15)
    codes = np.rint((groups - start) / _divisor(scale)).astype(np.uint8)
    blocks = np.empty((len(groups), 4 + GROUP // 2), np.uint8)
    blocks[:, :2] = scale.view(np.uint8)
    blocks[:, 2:4] = minimum.view(np.uint8)
    blocks[:, 4:] = codes[:, : GROUP // 2] | codes[:, GROUP // 2 :] << 4
    return blocks


def _scale(largest: NDArray[np.float32], steps: int) -> NDArray[np.float16]:
    """The float16 nearest to ``largest / steps`` by which ``largest`` still rounds to ``steps``."""
    scale = (largest / np.float32(steps)).astype("<f2")
    if not np.isfinite(scale).all():
        raise ValueError("has values that are not finite, or too large for scales in float16")
    # Only scales below the normal range of float16 are so coarse.
    below = scale.astype(np.float32) * np.float32(steps + 0.5) <= largest
    below &= largest > 0
    scale[below] = np.nextafter(scale[below], np.float16(np.inf))
    return scale


def _divisor(scale: NDArray[np.float16]) -> NDArray[np.float32]:
    """The scale in float32; 1 for a group of zeros."""
    return np.where(scale == 0, np.float32(1), scale.astype(np.float32))
