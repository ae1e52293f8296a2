"""Whatever is wrong with a model, one line says so: no traceback, no crash, no hang."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.errors import UserError
from slipstream.models.checkpoint import open_checkpoint
from slipstream.models.tokenizer import load_tokenizer
from tests.models.tiny import make_tiny, tiny_model
from tests.models.tiny_gguf import write_tiny_gguf


def load_everything(path: Path) -> None:
    """All that serving reads: configuration, every tensor, the tokenizer."""
    checkpoint = open_checkpoint(str(path))
    for name in checkpoint.shapes:
        checkpoint.weight(name).float32()
    load_tokenizer(checkpoint)


def assert_refused(path: Path, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_everything(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def good_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one layer, to be copied and broken."""
    folder = tmp_path_factory.mktemp("good")
    make_tiny("llama", folder, num_hidden_layers=1)
    return folder


Damage = Callable[[Path], object]


def edit_config(**fields: Any) -> Damage:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return edit


def write(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content)


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def cut(name: str, size: int) -> Damage:
    return lambda folder: os.truncate(folder / name, size)


def both(first: Damage, second: Damage) -> Damage:
    return lambda folder: (first(folder), second(folder))


WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

FOLDERS: list[tuple[Damage, str]] = [
    (remove("config.json"), "has no config.json, so it is not a model folder"),
    (write("config.json", b""), "config.json is not valid JSON"),
    (write("config.json", b"[1]"), "config.json should hold a JSON object, not a list"),
    (write("config.json", b"{}"), "config.json has no field 'model_type'"),
    (write("config.json", b"\xff\xfe\x00"), "config.json is not valid JSON"),
    (write("config.json", b"[" * 100_000), "config.json is not valid JSON"),
    (write("generation_config.json", b"nope"), "generation_config.json is not valid JSON"),
    (edit_config(model_type="gpt2"), "the architecture 'gpt2'; supported are llama"),
    (edit_config(hidden_size=None), "has no field 'hidden_size'"),
    (
        edit_config(num_hidden_layers=2),
        "lacks the tensor model.layers.1.input_layernorm.weight, which should have the shape (64,)",
    ),
    (
        edit_config(num_hidden_layers=2**30),
        "lacks the tensor model.layers.1.input_layernorm.weight",
    ),
    (
        edit_config(intermediate_size=256),
        "model.layers.0.mlp.gate_proj.weight with the shape (128, 64); it should be (256, 64)",
    ),
    (edit_config(tie_word_embeddings=False), "lacks the tensor lm_head.weight"),
    (edit_config(model_type="qwen2"), "lacks the tensor model.layers.0.self_attn.q_proj.bias"),
    (remove(WEIGHTS), f"has no {WEIGHTS}"),
    (both(remove(WEIGHTS), write("pytorch_model.bin", b"x")), "convert them to safetensors"),
    (both(remove("config.json"), write("a.gguf", b"x")), "to serve a.gguf, give the path"),
    (write(WEIGHTS, b""), "is not a whole safetensors file"),
    (write(WEIGHTS, b"PK\x03\x04" + bytes(200)), "is not a whole safetensors file"),
    (cut(WEIGHTS, 5), "is not a whole safetensors file"),
    (cut(WEIGHTS, 500), "is not a whole safetensors file"),
    (cut(WEIGHTS, 100_000), "is not a whole safetensors file"),
    (write(INDEX, b"{}"), "has no weight_map"),
    (write(INDEX, b'{"weight_map": {"a": "../b.safetensors"}}'), "should lie in the same folder"),
    (write(INDEX, b'{"weight_map": {"a": "b.safetensors"}}'), "b.safetensors is missing"),
    (remove("tokenizer.json"), "has no tokenizer.json"),
    (write("tokenizer.json", b"{}"), "tokenizer.json is not a tokenizer"),
    (write("tokenizer.json", b""), "tokenizer.json is not a tokenizer"),
    (cut("tokenizer.json", 3000), "tokenizer.json is not a tokenizer"),
    (write("tokenizer_config.json", b"{"), "tokenizer_config.json is not valid JSON"),
    (write("chat_template.jinja", b"\xff"), "cannot read"),
]


@pytest.mark.parametrize(("damage", "message"), FOLDERS, ids=[message for _, message in FOLDERS])
def test_folders(damage: Damage, message: str, good_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(good_folder, folder)
    damage(folder)
    assert_refused(folder, message)


def test_a_tensor_of_another_architecture(tmp_path: Path, tiny_folders: dict[str, Path]) -> None:
    shutil.copytree(tiny_folders["qwen3"], tmp_path / "model")
    edit_config(model_type="llama")(tmp_path / "model")
    assert_refused(tmp_path / "model", "k_norm.weight, which a llama model of its configuration")


def test_quantised_safetensors(tmp_path: Path, good_folder: Path) -> None:
    from safetensors.numpy import load_file, save_file

    shutil.copytree(good_folder, tmp_path / "model")
    tensors = load_file(good_folder / WEIGHTS)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].astype(np.int8)
    save_file(tensors, tmp_path / "model" / WEIGHTS)
    assert_refused(tmp_path / "model", "stores model.norm.weight as I8")


def test_other_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_refused(tmp_path / "missing", "there is no model at")
    assert_refused(tmp_path / "missing.gguf", "there is no model at")
    assert_refused(tmp_path / ("x" * 300), "cannot look for a model at")
    assert_refused(Path("~nobody-of-that-name/model"), "cannot look for a model at")
    for name, message in [
        ("a.bin", "convert it to safetensors"),
        ("a.safetensors", "give the folder"),
        ("a.txt", "does not start with the letters GGUF"),
    ]:
        (tmp_path / name).write_bytes(b"hello")
        assert_refused(tmp_path / name, message)
    (tmp_path / "empty.gguf").touch()
    assert_refused(tmp_path / "empty.gguf", "is empty; it should be a GGUF file")


def test_hugging_face_names_without_a_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        UserError, match=r"cannot fetch 'owner/model' from Hugging Face: .* no such path"
    ):
        open_checkpoint("owner/model")
    with pytest.raises(UserError, match="not a possible Hugging Face name"):
        open_checkpoint("own er/mo..del")


METADATA: list[tuple[dict[str, Any], str]] = [
    ({"general.architecture": "gemma"}, "the architecture 'gemma'; supported are"),
    ({"llama.embedding_length": None}, "(llama) has no field 'embedding_length'"),
    ({"llama.embedding_length": 128}, "(384, 64); it should be (384, 128)"),
    ({"llama.block_count": 3}, "lacks the tensor model.layers.1.input_layernorm.weight"),
    ({"llama.expert_count": 8}, "is a mixture of experts"),
    ({"llama.rope.dimension_count": 8}, "it should be 16, the size of a head"),
    ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 2.0}, "current length"),
    ({"general.alignment": 33}, "alignment is 33"),
    ({"tokenizer.ggml.model": "bert"}, "the kind 'bert'; supported are gpt2 and llama"),
    ({"tokenizer.ggml.model": None}, "has no field 'model'"),
    ({"tokenizer.ggml.tokens": None}, "has no field 'vocab_size'"),
    ({"tokenizer.ggml.tokens": ["a", "a"], "llama.vocab_size": 384}, "the same token twice"),
    ({"tokenizer.ggml.merges": ["nope"]}, "the merge 'nope'; it should be two tokens"),
    ({"tokenizer.ggml.merges": ["xx yy"]}, "merges that do not fit its tokens"),
    ({"tokenizer.ggml.merges": None}, "has no list of merges"),
    ({"tokenizer.ggml.token_type": [1]}, "one type for each of 384 tokens"),
    ({"tokenizer.ggml.model": "llama"}, "one score for each of 384 tokens"),
    ({"tokenizer.ggml.eos_token_id": 9999}, "token id 9999 is outside the vocabulary"),
    ({"tokenizer.ggml.add_bos_token": 7}, "add_bos_token = 7; it should be true or false"),
]


@pytest.mark.parametrize(("metadata", "message"), METADATA, ids=[m for _, m in METADATA])
def test_gguf_metadata(metadata: dict[str, Any], message: str, tmp_path: Path) -> None:
    model = tiny_model("llama", num_hidden_layers=1)
    assert_refused(write_tiny_gguf(tmp_path / "m.gguf", model, metadata=metadata), message)


def test_gguf_tensors(tmp_path: Path) -> None:
    model = tiny_model("llama", num_hidden_layers=1)
    for tensors, message in [
        ({"blk.0.ffn_up.weight": None}, "lacks the tensor model.layers.0.mlp.up_proj.weight"),
        ({"output_norm.weight": np.ones(32, np.float32)}, "(32,); it should be (64,)"),
        ({"blk.0.attn_q_norm.weight": np.ones(16, np.float32)}, "does not have"),
        ({"blk.0.ssm.weight": np.ones(16, np.float32)}, "holds the tensor blk.0.ssm.weight"),
    ]:
        path = write_tiny_gguf(tmp_path / "m.gguf", model, tensors=tensors)  # type: ignore[arg-type]
        assert_refused(path, message)


def test_gguf_type_that_cannot_be_unpacked(tmp_path: Path, tiny_gguf: Path) -> None:
    data = tiny_gguf.read_bytes()
    at = data.index(b"output_norm.weight") + len(b"output_norm.weight") + 4 + 8
    kind = gguf.GGMLQuantizationType.I32.value
    (tmp_path / "m.gguf").write_bytes(data[:at] + kind.to_bytes(4, "little") + data[at + 4 :])
    assert_refused(tmp_path / "m.gguf", "holds I32 tensors, which cannot be unpacked")


def test_gguf_without_an_architecture(tmp_path: Path, tiny_gguf: Path) -> None:
    data = tiny_gguf.read_bytes().replace(b"general.architecture", b"general.architecturo", 1)
    (tmp_path / "m.gguf").write_bytes(data)
    assert_refused(tmp_path / "m.gguf", "has no field 'general.architecture'")


def test_gguf_cut_off_anywhere(tiny_gguf: Path, tmp_path: Path) -> None:
    data = tiny_gguf.read_bytes()
    path = tmp_path / "m.gguf"
    for size in [1, 3, 4, 7, 12, 24, 25, 100, 1000, *range(2000, len(data), 9973), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(UserError, match=r"damaged or cut off|not a GGUF file") as caught:
            load_everything(path)
        assert "\n" not in str(caught.value)


NO_SHARED_STATE = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))


@NO_SHARED_STATE
@given(data=st.data())
def test_gguf_with_random_damage(data: st.DataObject, tiny_gguf: Path, tmp_path: Path) -> None:
    content = bytearray(tiny_gguf.read_bytes())
    header = content.index(b"output_norm.weight") + 200
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, header))
        patch = data.draw(st.binary(min_size=1, max_size=8))
        content[at : at + len(patch)] = patch
    (tmp_path / "m.gguf").write_bytes(content)
    with contextlib.suppress(UserError):
        load_everything(tmp_path / "m.gguf")


@NO_SHARED_STATE
@given(data=st.data())
def test_safetensors_with_random_damage(
    data: st.DataObject, good_folder: Path, tmp_path: Path
) -> None:
    content = bytearray((good_folder / WEIGHTS).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, 1500))
        patch = data.draw(st.binary(min_size=1, max_size=8))
        content[at : at + len(patch)] = patch
    size = data.draw(st.integers(0, len(content)))
    if not (tmp_path / "config.json").exists():
        shutil.copytree(good_folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / WEIGHTS).unlink()  # the earlier file may still be mapped
    (tmp_path / WEIGHTS).write_bytes(content if data.draw(st.booleans()) else content[:size])
    with contextlib.suppress(UserError):
        load_everything(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pull", "{tmp}/missing"], "there is no model at"),
        (["pull", "{tmp}/cut.gguf"], "is damaged or cut off"),
        (["export", "{tmp}/good.gguf", "--out", "{tmp}"], "is not empty"),
    ],
)
def test_command_line(arguments: list[str], message: str, tiny_gguf: Path, tmp_path: Path) -> None:
    shutil.copy(tiny_gguf, tmp_path / "good.gguf")
    (tmp_path / "cut.gguf").write_bytes(tiny_gguf.read_bytes()[:5000])
    command = [argument.format(tmp=tmp_path) for argument in arguments]
    result = subprocess.run(
        [sys.executable, "-m", "slipstream", *command], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert result.stdout == ""
