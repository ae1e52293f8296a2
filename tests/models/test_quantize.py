"""Rounding to 8 and 4 bits: how far values move, what stays, and what is refused."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from slipstream.errors import UserError
from slipstream.kernels.weight import Weight
from slipstream.models.checkpoint import open_checkpoint
from slipstream.models.quantize import GROUP, QuantizedCheckpoint, quantize
from tests.models.tiny import make_tiny, tiny_model
from tests.models.tiny_gguf import write_tiny_gguf

KINDS = {"q8_0": 34, "q4_1": 20}  # bytes of a block


def drawn(rows: int, inputs: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, inputs), dtype=np.float32)


def scales(weight: Weight, kind: str) -> NDArray[np.float32]:
    """The scale of every value."""
    blocks = weight.data.reshape(-1, KINDS[kind])
    of_blocks = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return np.repeat(of_blocks, GROUP, axis=1).reshape(weight.shape)


def assert_close(values: NDArray[np.float32], kind: str) -> None:
    """Half a scale, and four roundings in float32 of numbers no larger than the group's."""
    found = quantize(Weight.of(values), kind)
    assert found.data.shape == (len(values), values.shape[1] // GROUP * KINDS[kind])
    error = np.abs(found.float32().astype(np.float64) - values)
    largest = np.abs(values.reshape(-1, GROUP)).max(1).repeat(GROUP).reshape(values.shape)
    assert (error <= 0.5 * scales(found, kind) + 2.0**-22 * largest).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e-7, 1e-5, 1e-3, 1, 1000])
@pytest.mark.parametrize("offset", [0, 1, -1000])
def test_no_value_moves_by_more_than_half_a_scale(kind: str, size: float, offset: float) -> None:
    assert_close(np.float32(size) * drawn(50, 96) + np.float32(offset), kind)


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.floats(-60000, 60000, width=32), min_size=GROUP, max_size=GROUP))
def test_any_group(kind: str, values: list[float]) -> None:
    assert_close(np.array([values], dtype=np.float32), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_scales_are_no_larger_than_needed(kind: str) -> None:
    values = drawn(50, 64)
    groups = values.reshape(-1, GROUP)
    ideal = {"q8_0": np.abs(groups).max(1) / 127, "q4_1": np.ptp(groups, 1) / 15}[kind]
    found = scales(quantize(Weight.of(values), kind), kind).reshape(-1, GROUP)[:, 0]
    # Half a unit of float16, of the scale and, in 15 steps, of the minimum.
    np.testing.assert_allclose(found, ideal, rtol=2.0**-10, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_twice_changes_nothing(kind: str) -> None:
    once = quantize(Weight.of(drawn(200, 64)), kind)
    np.testing.assert_array_equal(quantize(Weight.of(once.float32()), kind).data, once.data)


@pytest.mark.parametrize("kind", KINDS)
def test_at_most_as_far_from_the_values_as_by_the_gguf_package(kind: str) -> None:
    """It rounds with a scale that it does not store. The layout is the same."""
    values = drawn(200, 128)
    type_ = gguf.GGMLQuantizationType[kind.upper()]
    theirs = gguf.quantize(values, type_)
    found = quantize(Weight.of(values), kind)
    assert (found.data == theirs).mean() > 0.95
    error = np.square(gguf.dequantize(found.data, type_) - values).sum()
    assert error <= np.square(gguf.dequantize(theirs, type_) - values).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_have_codes_are_kept(kind: str) -> None:
    codes = np.random.default_rng(0).integers(0, 16, (20, GROUP)).astype(np.float32)
    codes[:, :2] = (0, 15) if kind == "q4_1" else (-127, 127)
    values = codes * np.float32(0.125)
    np.testing.assert_array_equal(quantize(Weight.of(values), kind).float32(), values)
    zeros = np.zeros((3, 64), dtype=np.float32)
    np.testing.assert_array_equal(quantize(Weight.of(zeros), kind).float32(), zeros)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_rounded_alike_however_many_there_are(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = quantize(Weight.of(drawn(37, 64)), kind).data
    monkeypatch.setattr("slipstream.models.quantize._VALUES_AT_A_TIME", 5 * 64)
    np.testing.assert_array_equal(quantize(Weight.of(drawn(37, 64)), kind).data, whole)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_values_that_no_scale_holds(kind: str, value: float) -> None:
    values = drawn(3, 64)
    values[1, 40] = value
    with pytest.raises(ValueError, match="not finite, or too large"):
        quantize(Weight.of(values), kind)


def kinds(checkpoint: QuantizedCheckpoint) -> dict[str, str]:
    """How the matrices of the first layer, the embedding and the head are stored, by last name."""
    names = [name for name in checkpoint.shapes if ".0." in name or ".layers." not in name]
    return {
        name.removesuffix(".weight").split(".")[-1]: checkpoint.weight(name).kind
        for name in names
        if len(checkpoint.shapes[name]) == 2
    }


LINEARS = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]


def test_a_folder(tmp_path: Path) -> None:
    make_tiny("qwen2", tmp_path, num_hidden_layers=1)
    checkpoint = open_checkpoint(str(tmp_path))
    tables = dict.fromkeys(["embed_tokens", "lm_head"], "q8_0")
    in_8_bits = QuantizedCheckpoint(checkpoint, "int8")
    assert kinds(in_8_bits) == tables | dict.fromkeys(LINEARS, "q8_0")
    in_4_bits = QuantizedCheckpoint(checkpoint, "int4")
    assert kinds(in_4_bits) == tables | dict.fromkeys(LINEARS, "q4_1")
    for name in ("model.norm.weight", "model.layers.0.self_attn.q_proj.bias"):
        np.testing.assert_array_equal(
            in_4_bits.weight(name).float32(), checkpoint.weight(name).float32()
        )


@pytest.mark.parametrize(
    ("stored", "in_8_bits", "in_4_bits"),
    [
        ("Q8_0", "q8_0", "q4_1"),
        ("Q4_0", "q4_0", "q4_0"),
        ("Q4_1", "q4_1", "q4_1"),
        ("Q5_1", "q8_0", "q4_1"),
        ("F16", "q8_0", "q4_1"),
    ],
)
def test_bits_that_are_few_enough_stay(
    stored: str, in_8_bits: str, in_4_bits: str, tmp_path: Path
) -> None:
    model = tiny_model("llama", num_hidden_layers=1)
    type_ = gguf.GGMLQuantizationType[stored]
    checkpoint = open_checkpoint(str(write_tiny_gguf(tmp_path / "m", model, quantization=type_)))
    found = kinds(QuantizedCheckpoint(checkpoint, "int8"))
    assert found == dict.fromkeys([*LINEARS, "embed_tokens"], in_8_bits)
    found = kinds(QuantizedCheckpoint(checkpoint, "int4"))
    assert found == dict.fromkeys(LINEARS, in_4_bits) | {"embed_tokens": in_8_bits}


def test_inputs_that_are_no_whole_groups(tmp_path: Path) -> None:
    make_tiny("llama", tmp_path, num_hidden_layers=1, intermediate_size=100)
    checkpoint = QuantizedCheckpoint(open_checkpoint(str(tmp_path)), "int8")
    checkpoint.weight("model.layers.0.mlp.up_proj.weight")
    with pytest.raises(UserError, match=r"down_proj\.weight has 100 inputs; .* multiple of 32"):
        checkpoint.weight("model.layers.0.mlp.down_proj.weight")


def test_weights_are_rounded_from_any_type() -> None:
    values = drawn(4, 64)
    bits = (values.view(np.uint32) >> 16).astype("<u2")
    stored = Weight((4, 64), "bfloat16", bits.view(np.uint8))
    expected = quantize(Weight.of(stored.float32()), "q4_1")
    np.testing.assert_array_equal(quantize(stored, "q4_1").data, expected.data)
