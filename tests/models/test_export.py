"""An exported folder loads here and in transformers, as the same model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from slipstream.cli import app
from slipstream.errors import UserError
from slipstream.models.checkpoint import Checkpoint, open_checkpoint
from slipstream.models.export import export_checkpoint
from slipstream.models.tokenizer import load_tokenizer
from tests.models.tiny import make_tiny, tiny_model
from tests.models.tiny_gguf import write_tiny_gguf

MESSAGES = [{"role": "user", "content": "the model, 12 tokens 🙂"}]
TEXT = "def slot(): return 42  # the <|im_end|> 🙂 é"


def check_export(checkpoint: Checkpoint, folder: Path) -> None:
    """Same configuration, ids and rounded weights, read back both ways."""
    again = open_checkpoint(str(folder))
    assert again.config == checkpoint.config
    theirs: Any = AutoModelForCausalLM.from_pretrained(folder)
    assert theirs.dtype == torch.bfloat16
    state = theirs.state_dict()
    for name in again.shapes:
        expected = torch.from_numpy(checkpoint.weight(name).float32()).bfloat16()
        found = torch.from_numpy(again.weight(name).float32())
        assert torch.equal(found, expected.float()), name
        assert torch.equal(state[name], expected), name
    ours, reread = load_tokenizer(checkpoint), load_tokenizer(again)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    assert reread.encode(TEXT) == tokenizer.encode(TEXT) == ours.encode(TEXT)
    chat = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
    assert reread.apply_chat_template(MESSAGES) == chat == ours.apply_chat_template(MESSAGES)
    assert reread.eos_token_ids == ours.eos_token_ids
    assert tokenizer.eos_token_id in ours.eos_token_ids


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen3"])
def test_folder(architecture: str, tmp_path: Path, tiny_folders: dict[str, Path]) -> None:
    checkpoint = open_checkpoint(str(tiny_folders[architecture]))
    export_checkpoint(checkpoint, tmp_path / "out")
    check_export(checkpoint, tmp_path / "out")


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512,
        },
    ],
    ids=lambda scaling: scaling["rope_type"],
)
def test_rotary_scaling(scaling: dict[str, Any], tmp_path: Path) -> None:
    make_tiny(
        "llama",
        tmp_path / "in",
        num_hidden_layers=1,
        attention_bias=True,
        rope_parameters=scaling | {"rope_theta": 5000.0},
    )
    checkpoint = open_checkpoint(str(tmp_path / "in"))
    export_checkpoint(checkpoint, tmp_path / "out")
    check_export(checkpoint, tmp_path / "out")


def test_gguf_in_shards(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", tiny_model("llama", tie_word_embeddings=False))
    checkpoint = open_checkpoint(str(path))
    export_checkpoint(checkpoint, tmp_path / "out", shard_bytes=100_000)
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 2
    check_export(checkpoint, tmp_path / "out")


def test_never_overwrites(tmp_path: Path, tiny_folders: dict[str, Path]) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(UserError, match="is not empty"):
        export_checkpoint(open_checkpoint(str(tiny_folders["llama"])), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_biases_without_a_name_in_hugging_face(tmp_path: Path) -> None:
    model = tiny_model("llama", attention_bias=True, num_hidden_layers=1)
    without = {"blk.0.attn_output.bias": None}
    path = write_tiny_gguf(tmp_path / "m.gguf", model, tensors=without)  # type: ignore[arg-type]
    checkpoint = open_checkpoint(str(path))
    with pytest.raises(UserError, match="cannot be exported"):
        export_checkpoint(checkpoint, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_command(tmp_path: Path, tiny_folders: dict[str, Path]) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["export", str(tiny_folders["llama"]), "--out", str(out)])
    assert result.exit_code == 0
    assert result.stdout == f"Wrote llama to {out}.\n"
    result = CliRunner().invoke(app, ["pull", str(out)])
    assert result.stdout == "out is ready.\n"
