"""Stored weights give their values bit for bit, and their bytes without a copy."""

import gguf
import numpy as np
import pytest
import torch

from slipstream.kernels.weight import Weight


def test_every_bfloat16() -> None:
    bits = np.arange(1 << 16, dtype="<u2").reshape(256, 256)
    found = Weight((256, 256), "bfloat16", bits.view(np.uint8)).float32()
    expected = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats(dtype: str) -> None:
    values = np.random.default_rng(0).standard_normal((5, 7)).astype(dtype)
    found = Weight((5, 7), dtype, values.view(np.uint8)).float32()
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, values.astype(np.float32))
    found[:] = 0  # the caller's to change
    assert values.all()


def test_bytes_at_an_odd_place() -> None:
    """Nothing in the file formats aligns a tensor to its element size."""
    values = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)
    moved = np.zeros(1 + values.nbytes, np.uint8)
    moved[1:] = values.reshape(-1).view(np.uint8)
    found = Weight((3, 4), "float32", moved[1:].reshape(3, -1)).float32()
    np.testing.assert_array_equal(found, values)
    upper = np.zeros(1 + values.nbytes // 2, np.uint8)
    upper[1:] = (values.view(np.uint32) >> 16).astype(np.uint16).reshape(-1).view(np.uint8)
    found = Weight((3, 4), "bfloat16", upper[1:].reshape(3, -1)).float32()
    np.testing.assert_array_equal(found, (values.view(np.uint32) >> 16 << 16).view(np.float32))


@pytest.mark.parametrize("kind", ["q4_0", "q4_1", "q5_1", "q8_0", "q4_k", "q6_k"])
def test_blocks(kind: str) -> None:
    type_ = gguf.GGMLQuantizationType[kind.upper()]
    block, block_bytes = gguf.GGML_QUANT_SIZES[type_]
    data = np.random.default_rng(0).integers(0, 60, (3, 2 * block_bytes)).astype(np.uint8)
    found = Weight((3, 2 * block), kind, data).float32()
    np.testing.assert_array_equal(found, gguf.dequantize(data, type_))
    assert found.flags.c_contiguous and found.flags.writeable


def test_of_values() -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    weight = Weight.of(values)
    assert (weight.shape, weight.kind, weight.data.shape) == ((4, 3), "float32", (4, 12))
    np.testing.assert_array_equal(weight.float32(), values)
    vector = Weight.of(values[:, 1])
    assert (vector.shape, vector.data.shape) == ((4,), (1, 16))
    np.testing.assert_array_equal(vector.float32(), values[:, 1])
