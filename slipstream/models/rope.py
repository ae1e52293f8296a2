"""The rotary embedding's frequencies, as transformers computes them."""

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from slipstream.models.config import LinearScaling, Llama3Scaling, RopeScaling, YarnScaling

Float32Array = npt.NDArray[np.float32]


class RotaryConfig(Protocol):
    """What of a model's configuration the rotary embedding depends on."""

    @property
    def head_dim(self) -> int: ...
    @property
    def rope_theta(self) -> float: ...
    @property
    def rope_scaling(self) -> RopeScaling | None: ...


def rotary_tables(config: RotaryConfig, positions: int) -> tuple[Float32Array, Float32Array]:
    """Cosines and sines, ``[positions, head_dim / 2]``.

    Angles are float32, as in transformers; their cosines are rounded once, from float64, so that
    they are the same on every machine.
    """
    angles = np.outer(np.arange(positions, dtype=np.float32), inverse_frequencies(config))
    exact = angles.astype(np.float64)
    factor = attention_factor(config)
    cosines, sines = np.cos(exact) * factor, np.sin(exact) * factor
    return cosines.astype(np.float32), sines.astype(np.float32)


def inverse_frequencies(config: RotaryConfig) -> Float32Array:
    """Radians per position of each pair of dimensions, float32 [head_dim / 2]."""
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    # The power is rounded once, from float64, so that the result is the same on every machine.
    powers = np.power(config.rope_theta, exponents.astype(np.float64)).astype(np.float32)
    plain: Float32Array = np.float32(1.0) / powers
    scaled = plain
    match config.rope_scaling:
        case LinearScaling(factor):
            scaled = plain / np.float32(factor)
        case Llama3Scaling() as scaling:
            scaled = plain * llama3_multipliers(plain, scaling)
        case YarnScaling() as scaling:
            keep = _yarn_kept_share(config, scaling)
            slow = np.float32(1.0) / (np.float32(scaling.factor) * powers)
            scaled = slow * (np.float32(1.0) - keep) + plain * keep
    return scaled


def attention_factor(config: RotaryConfig) -> float:
    """What cosines and sines are multiplied by: 1 except under YaRN."""
    scaling = config.rope_scaling
    return scaling.attention_factor if isinstance(scaling, YarnScaling) else 1.0


def llama3_multipliers(plain: Float32Array, scaling: Llama3Scaling) -> Float32Array:
    """What Llama 3 multiplies the ``plain`` frequencies by: from 1 down to 1/factor."""
    wavelengths = 2 * math.pi / plain
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    ramp = (scaling.original_max_position / wavelengths - low) / (high - low)
    smooth = np.clip(ramp, 0.0, 1.0).astype(np.float32)
    return (np.float32(1.0) - smooth) / np.float32(scaling.factor) + smooth


def _yarn_kept_share(config: RotaryConfig, scaling: YarnScaling) -> Float32Array:
    """How much of each plain frequency YaRN keeps, float32 [head_dim / 2], from 1 down to 0."""

    def dimension(rotations: float) -> float:
        turns = scaling.original_max_position / (rotations * 2 * math.pi)
        return config.head_dim * math.log(turns) / (2 * math.log(config.rope_theta))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.head_dim - 1)
    if low == high:
        high += 0.001
    steps = np.arange(config.head_dim // 2, dtype=np.float32)
    ramp = (steps - np.float32(low)) / np.float32(high - low)
    kept: Float32Array = np.float32(1.0) - np.clip(ramp, 0, 1)
    return kept
