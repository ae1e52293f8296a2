"""Tensors come out of every format under the same names, in the same layout."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from slipstream.errors import UserError
from slipstream.models.checkpoint import Checkpoint, expected_tensors, open_checkpoint
from slipstream.models.config import Llama3Scaling, ModelConfig
from slipstream.models.gguf_file import GGUFFile
from slipstream.models.rope import inverse_frequencies, llama3_multipliers
from tests.models.tiny import ARCHITECTURES, make_tiny, tiny_model
from tests.models.tiny_gguf import write_tiny_gguf


def assert_same_weights(checkpoint: Checkpoint, model: torch.nn.Module) -> None:
    """Bit for bit, every tensor that the model computes with."""
    state = model.state_dict()
    names = [name for name, _ in expected_tensors(checkpoint.config)]
    assert set(names) == set(state) - ({"lm_head.weight"} - set(names))
    for name in names:
        values = checkpoint.weight(name).float32()
        assert values.dtype == np.float32
        assert values.flags.c_contiguous and values.flags.writeable
        assert torch.equal(torch.from_numpy(values), state[name].float()), name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_folder(architecture: str, tiny_folders: dict[str, Path]) -> None:
    checkpoint = open_checkpoint(str(tiny_folders[architecture]))
    assert checkpoint.name == architecture
    assert_same_weights(checkpoint, tiny_model(architecture))


def test_sharded_folder(tmp_path: Path) -> None:
    model = make_tiny("qwen2", tmp_path, max_shard_size="200KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert_same_weights(open_checkpoint(str(tmp_path)), model)


def test_folder_in_bfloat16(tmp_path: Path) -> None:
    model = tiny_model("qwen3").bfloat16()
    model.save_pretrained(tmp_path)
    assert_same_weights(open_checkpoint(str(tmp_path)), model)


def test_llama_with_every_bias(tmp_path: Path) -> None:
    model = make_tiny("llama", tmp_path, attention_bias=True, mlp_bias=True)
    checkpoint = open_checkpoint(str(tmp_path))
    assert "model.layers.0.mlp.down_proj.bias" in checkpoint.shapes
    assert_same_weights(checkpoint, model)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_gguf_equals_folder(
    architecture: str, tmp_path: Path, tiny_folders: dict[str, Path]
) -> None:
    model = tiny_model(architecture)
    checkpoint = open_checkpoint(str(write_tiny_gguf(tmp_path / "m.gguf", model)))
    assert checkpoint.config == open_checkpoint(str(tiny_folders[architecture])).config
    assert_same_weights(checkpoint, model)


def test_gguf_with_permuted_biases(tmp_path: Path) -> None:
    model = tiny_model("llama", attention_bias=True, tie_word_embeddings=False)
    checkpoint = open_checkpoint(str(write_tiny_gguf(tmp_path / "m.gguf", model)))
    assert checkpoint.config.qkv_bias
    assert not checkpoint.config.tie_word_embeddings
    assert_same_weights(checkpoint, model)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_gguf_blocks_are_unpacked(kind: str, tmp_path: Path) -> None:
    model = tiny_model("qwen2", num_hidden_layers=1)
    type_ = gguf.GGMLQuantizationType[kind]
    checkpoint = open_checkpoint(
        str(write_tiny_gguf(tmp_path / "m.gguf", model, quantization=type_))
    )
    weight = model.state_dict()["model.layers.0.mlp.up_proj.weight"].numpy()
    expected = gguf.dequantize(gguf.quantize(weight, type_), type_)
    found = checkpoint.weight("model.layers.0.mlp.up_proj.weight").float32()
    np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(found, weight)


def test_gguf_rotary_table_is_recognised_as_llama3(tmp_path: Path) -> None:
    model = tiny_model("llama", num_hidden_layers=1, max_position_embeddings=131072)
    plain = inverse_frequencies(ModelConfig.from_hf(model.config.to_dict()))
    scaling = Llama3Scaling(32.0, 1.0, 4.0, 8192)
    table = (1.0 / llama3_multipliers(plain, scaling)).astype(np.float32)
    path = write_tiny_gguf(tmp_path / "a.gguf", model, tensors={"rope_freqs.weight": table})
    assert open_checkpoint(str(path)).config.rope_scaling == scaling
    path = write_tiny_gguf(tmp_path / "b.gguf", model, tensors={"rope_freqs.weight": table[::-1]})
    with pytest.raises(UserError, match="not Llama 3's"):
        open_checkpoint(str(path))


def test_default_model(default_gguf: Path) -> None:
    checkpoint = open_checkpoint("default")
    assert checkpoint.name == "SmolLM2-135M-Instruct"
    config = checkpoint.config
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (30, 9, 3)
    assert config.tie_word_embeddings
    assert (config.rms_norm_eps, config.rope_theta) == (1e-5, 100_000.0)
    assert config.eos_token_ids == (2,)
    stored = GGUFFile(default_gguf).weight("blk.3.attn_q.weight")
    found = checkpoint.weight("model.layers.3.self_attn.q_proj.weight")
    assert (found.kind, found.data.shape) == ("q4_1", (576, 576 // 32 * 20))
    # Head 1, pair 5: rows 10 and 11 of the interleaved layout are rows 5 and 37 of the split one.
    np.testing.assert_array_equal(found.data[64 + 5], stored.data[64 + 10])
    np.testing.assert_array_equal(found.data[64 + 37], stored.data[64 + 11])
    np.testing.assert_array_equal(found.float32()[64 + 37], stored.float32()[64 + 11])
    embedding = checkpoint.weight("model.embed_tokens.weight")
    assert embedding.kind == "q8_0"
    assert not embedding.data.flags.owndata and not embedding.data.flags.writeable


def test_hugging_face_name_is_fetched_only_when_no_path_has_it(
    tmp_path: Path, tiny_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(tiny_folders["qwen3"])

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    checkpoint = open_checkpoint("owner/tiny")
    assert checkpoint.name == "owner/tiny"
    assert checkpoint.config.architecture == "qwen3"
    [(name, patterns)] = asked
    assert name == "owner/tiny"
    assert "tokenizer.json" in patterns
    assert not any(pattern.endswith(".bin") for pattern in patterns)
    monkeypatch.chdir(tiny_folders["llama"].parent.parent)
    open_checkpoint(f"{tiny_folders['llama'].parent.name}/llama")
    assert len(asked) == 1


def test_opening_reads_no_index_entry_twice(tmp_path: Path) -> None:
    make_tiny("llama", tmp_path, max_shard_size="200KB", num_hidden_layers=1)
    index = tmp_path / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    checkpoint = open_checkpoint(str(tmp_path))
    assert set(checkpoint.shapes) == set(weight_map)
