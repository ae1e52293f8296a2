"""Our logits against transformers' in float32, on every kernel set.

Torch's kernels are float32 throughout: the two add the same numbers in different orders, so logits
differ by rounding only. A sum of n float32 products has a relative error of about sqrt(n) * 2**-24;
through the layers of the tiny models this stays below 1e-5 of logits of size 4 (seen: 5e-6).

Native kernels also round to fewer bits: keys and values where they are stored, rows where they
enter a product. Their bound is what the very same roundings do to transformers' model (see
rounded.py): the errors are as many and as large but not the same, so single logits may differ by
twice as much, and the root of the mean square of all by one and a half times (seen: 1.0). To this
comes float32's part, as above. Where rows keep 16 bits or more, few values fall on another side
of a rounding and the errors are nearly the same ones: logits are as near to those of the rounded
model as a quarter of all that rounding does (seen: a sixteenth). Coarser rows drift apart.

A wrong norm, rotation or head mapping is off by more than 0.1.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray
from transformers import PreTrainedModel

from slipstream.kernels import KVDtype
from slipstream.models.checkpoint import open_checkpoint
from tests import kernel_sets
from tests.models import rounded
from tests.models.forward import all_logits, as_stored
from tests.models.rounded import Round, Roundings
from tests.models.tiny import ARCHITECTURES, make_tiny, tiny_model
from tests.models.tiny_gguf import write_tiny_gguf

FLOAT32 = 1e-5
TOKENS = np.random.default_rng(0).integers(0, 350, size=150).tolist()

# Sizes that fill no whole group of 32, and biases wherever an architecture may have them.
UNEVEN = {
    "vocab_size": 365,
    "hidden_size": 48,
    "intermediate_size": 100,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
}
BIASES = {"attention_bias": True, "mlp_bias": True}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{architecture: (architecture, {}) for architecture in ARCHITECTURES},
    "llama with biases": ("llama", BIASES),
    "uneven llama": ("llama", UNEVEN | BIASES),
    "uneven qwen2": ("qwen2", UNEVEN),
    "uneven qwen3": ("qwen3", UNEVEN),
    "large heads": ("qwen3", {"head_dim": 256, "num_hidden_layers": 1}),
}


def assert_as_rounded(
    found: NDArray[np.float32], model: PreTrainedModel, roundings: Roundings
) -> None:
    """``found`` is no further from the model than the model with these roundings."""
    exact, alike = rounded.logits(model, TOKENS), rounded.logits(model, TOKENS, roundings)
    noise, error = alike - exact, torch.from_numpy(found) - exact
    assert exact.abs().max() > 0.1
    assert error.abs().max() < 2 * noise.abs().max() + FLOAT32
    assert root_mean_square(error) < 1.5 * root_mean_square(noise) + FLOAT32
    if roundings.rows in (rounded.exactly, rounded.to_shorts):
        assert root_mean_square(error - noise) < root_mean_square(noise) / 4 + FLOAT32


def root_mean_square(x: torch.Tensor) -> float:
    return x.square().mean().sqrt().item()


@pytest.mark.parametrize("name", MODELS)
def test_tiny_models_on_torch(name: str, tmp_path: Path) -> None:
    architecture, fields = MODELS[name]
    model = make_tiny(architecture, tmp_path / "model", **fields)
    expected = rounded.logits(model, TOKENS).numpy()
    found = all_logits(open_checkpoint(str(tmp_path / "model")), TOKENS, kernel_sets.make("torch"))
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=FLOAT32, rtol=0)


def native_roundings(kernel_set: str, rows: Round, kv_dtype: KVDtype = "auto") -> Roundings:
    """``rows`` is how rows are rounded that meet such weights, but for AMX: there all is bfloat16.

    Other sets keep weights as they are, once they are packed.
    """
    keys = rounded.to_bytes_per_head if kv_dtype == "int8" else rounded.to_bfloat16
    if kernel_set == "amx":
        return Roundings(rounded.to_bfloat16, rounded.to_bfloat16, keys)
    return Roundings(rounded.exactly, rows, keys)


@pytest.mark.parametrize("kernel_set", kernel_sets.params(kernel_sets.NATIVE))
@pytest.mark.parametrize("kv_dtype", ["auto", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_tiny_models(name: str, kv_dtype: KVDtype, kernel_set: str, tmp_path: Path) -> None:
    architecture, fields = MODELS[name]
    model = make_tiny(architecture, tmp_path / "model", **fields)
    found = all_logits(
        open_checkpoint(str(tmp_path / "model")), TOKENS, kernel_sets.make(kernel_set), kv_dtype
    )
    model = rounded.with_matrices(model, rounded.to_bfloat16)
    assert_as_rounded(found, model, native_roundings(kernel_set, rounded.exactly, kv_dtype))


# Kinds that are packed as they are, and how rows are rounded that meet them.
PACKED = {
    Type.Q4_0: rounded.to_bytes,
    Type.Q4_1: rounded.to_bytes,
    Type.Q8_0: rounded.to_shorts,
}


@pytest.mark.parametrize("kernel_set", kernel_sets.params(kernel_sets.NATIVE))
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", PACKED, ids=lambda kind: kind.name)
def test_packed_kinds(kind: Type, tied: bool, kernel_set: str, tmp_path: Path) -> None:
    model = tiny_model("llama", tie_word_embeddings=tied)
    path = write_tiny_gguf(tmp_path / "m.gguf", model, quantization=kind)
    checkpoint = open_checkpoint(str(path))
    found = all_logits(checkpoint, TOKENS, kernel_sets.make(kernel_set))
    roundings = native_roundings(kernel_set, PACKED[kind])
    assert_as_rounded(found, as_stored(model, checkpoint), roundings)


@pytest.mark.parametrize("kernel_set", kernel_sets.params(kernel_sets.NATIVE))
def test_mixed_kinds(kernel_set: str, tmp_path: Path) -> None:
    """Stacks of several kinds, and kinds that are not packed, become bfloat16.

    No rows are rounded more than to bytes, so that is the bound for all of them.
    """
    model = tiny_model("llama", tie_word_embeddings=False)
    others = {
        "attn_k": Type.Q8_0,
        "attn_v": Type.Q5_0,
        "attn_output": Type.Q4_1,
        "ffn_up": Type.Q4_1,
        "token_embd": Type.Q8_0,
        "output": Type.F16,
    }
    path = write_tiny_gguf(tmp_path / "m.gguf", model, quantization=Type.Q4_0, others=others)
    checkpoint = open_checkpoint(str(path))
    kinds = {checkpoint.weight(f"model.layers.0.self_attn.{n}_proj.weight").kind for n in "qkvo"}
    assert kinds == {"q4_0", "q4_1", "q5_0", "q8_0"}
    found = all_logits(checkpoint, TOKENS, kernel_sets.make(kernel_set))
    bfloat16 = rounded.to_bfloat16
    stored = as_stored(model, checkpoint)
    assert_as_rounded(found, stored, Roundings(bfloat16, rounded.to_bytes, bfloat16))
