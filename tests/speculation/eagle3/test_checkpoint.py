"""Drafters of three projects are read alike, and what is written is read by the same rules."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, LlamaConfig

from slipstream.errors import UserError
from slipstream.models.config import Llama3Scaling, ModelConfig
from slipstream.speculation.eagle3.checkpoint import (
    Eagle3Checkpoint,
    check_fits,
    expected_tensors,
    open_drafter,
    write_drafter,
)
from slipstream.speculation.eagle3.config import Eagle3Config
from tests.speculation.eagle3.layouts import (
    CONFIG,
    TARGET_IDS,
    WEIGHTS,
    random_tensors,
    stored_tensors,
    with_fields,
    write_safeailab,
    write_specforge,
    write_speculators,
)


def values(drafter: Eagle3Checkpoint) -> dict[str, np.ndarray]:
    return {name: drafter.weight(name).float32() for name in drafter.shapes}


def assert_holds(drafter: Eagle3Checkpoint, tensors: dict[str, torch.Tensor]) -> None:
    assert drafter.shapes == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name, found in values(drafter).items():
        np.testing.assert_array_equal(found, tensors[name].float().numpy(), err_msg=name)


@pytest.mark.parametrize("write", [write_safeailab, write_specforge, write_speculators])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_layouts_of_three_projects(
    write: Callable[..., None], dtype: torch.dtype, tmp_path: Path
) -> None:
    tensors = random_tensors(CONFIG, dtype)
    write(tmp_path, CONFIG, tensors)
    drafter = open_drafter(str(tmp_path))
    assert drafter.config == CONFIG
    assert drafter.name == tmp_path.name
    assert drafter.target_ids.dtype == np.int32
    np.testing.assert_array_equal(drafter.target_ids, TARGET_IDS)
    assert_holds(drafter, tensors)


@pytest.mark.parametrize("write", [write_safeailab, write_specforge, write_speculators])
def test_its_own_embedding(write: Callable[..., None], tmp_path: Path) -> None:
    tensors = random_tensors(CONFIG) | {
        "embed_tokens.weight": torch.randn(CONFIG.vocab_size, CONFIG.hidden_size)
    }
    write(tmp_path, CONFIG, tensors)
    assert_holds(open_drafter(str(tmp_path)), tensors)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    config = with_fields(
        rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 8192),
        rope_theta=500000.0,
        target_hidden_size=32,
        feature_layers=(1, 4),
        norm_before_residual=True,
        fc_norm=True,
        norm_output=True,
    )
    tensors = {name: t.numpy() for name, t in random_tensors(config).items()}
    embedding = np.random.default_rng(0).standard_normal((50, 24)).astype(np.float32)
    tensors["embed_tokens.weight"] = embedding
    write_drafter(tmp_path / "new", config, tensors, TARGET_IDS, {"trained_on": "nothing"})
    drafter = open_drafter(str(tmp_path / "new"))
    assert drafter.config == config
    np.testing.assert_array_equal(drafter.target_ids, TARGET_IDS)
    assert drafter.shapes == {name: tensor.shape for name, tensor in tensors.items()}
    for name, found in values(drafter).items():
        rounded = torch.from_numpy(tensors[name]).bfloat16().float().numpy()
        np.testing.assert_array_equal(found, rounded, err_msg=name)
    assert json.loads((tmp_path / "new" / "config.json").read_text())["trained_on"] == "nothing"


def test_what_is_written_is_specforges(tmp_path: Path) -> None:
    """The same file as torch's writer makes of SpecForge's state, and a config it understands."""
    tensors = random_tensors(CONFIG, torch.bfloat16)
    floats = {name: tensor.float().numpy() for name, tensor in tensors.items()}
    write_drafter(tmp_path / "ours", CONFIG, floats, TARGET_IDS)
    save_file(stored_tensors(CONFIG, tensors), tmp_path / "theirs", {"format": "pt"})
    assert (tmp_path / "ours" / WEIGHTS).read_bytes() == (tmp_path / "theirs").read_bytes()
    fields = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert fields["architectures"] == ["LlamaForCausalLMEagle3"]
    assert fields["draft_vocab_size"] == CONFIG.draft_vocab_size
    assert "eagle_config" not in fields and "eagle_aux_hidden_state_layer_ids" not in fields
    theirs = AutoConfig.from_pretrained(tmp_path / "ours")
    assert isinstance(theirs, LlamaConfig)
    assert (theirs.num_hidden_layers, theirs.head_dim) == (1, CONFIG.head_dim)
    assert theirs.rope_parameters["rope_theta"] == CONFIG.rope_theta


def test_the_norms_of_eagle_3_1(tmp_path: Path) -> None:
    for switch, extra in [
        ("norm_before_fc", {"input_norm.weight": (72,)}),
        ("fc_norm", {f"fc_norm.{i}.weight": (24,) for i in range(3)}),
    ]:
        config = with_fields(**{switch: True, "norm_output": True})
        tensors = random_tensors(config)
        assert {n: tuple(t.shape) for n, t in tensors.items() if n not in SHAPES} == extra
        for write in (write_specforge, write_speculators):
            folder = tmp_path / f"{switch}-{write.__name__}"
            folder.mkdir()
            write(folder, config, tensors)
            drafter = open_drafter(str(folder))
            assert drafter.config == config
            assert_holds(drafter, tensors)


SHAPES = dict(expected_tensors(CONFIG))


def test_several_files(tmp_path: Path) -> None:
    tensors = random_tensors(CONFIG)
    write_specforge(tmp_path, CONFIG, tensors)
    stored = load_file(tmp_path / WEIGHTS)
    (tmp_path / WEIGHTS).unlink()
    names, weight_map = sorted(stored), {}
    for number, part in enumerate([names[:4], names[4:]], 1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: stored[name] for name in part}, tmp_path / file)
        weight_map |= dict.fromkeys(part, file)
    index = {"weight_map": weight_map}
    (tmp_path / f"{WEIGHTS}.index.json").write_text(json.dumps(index))
    drafter = open_drafter(str(tmp_path))
    assert_holds(drafter, tensors)
    np.testing.assert_array_equal(drafter.target_ids, TARGET_IDS)


def test_one_vocabulary_needs_no_table(tmp_path: Path) -> None:
    config = with_fields(draft_vocab_size=CONFIG.vocab_size)
    write_specforge(tmp_path, config, random_tensors(config))
    stored = load_file(tmp_path / WEIGHTS)
    del stored["d2t"], stored["t2d"]
    (tmp_path / WEIGHTS).unlink()
    save_file(stored, tmp_path / WEIGHTS)
    fields = json.loads((tmp_path / "config.json").read_text())
    del fields["draft_vocab_size"]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    drafter = open_drafter(str(tmp_path))
    assert drafter.config == config
    np.testing.assert_array_equal(drafter.target_ids, np.arange(config.vocab_size))


def test_what_is_stored_but_not_computed_with(tmp_path: Path) -> None:
    tensors = random_tensors(CONFIG)
    unused = {
        "verifier_norm.weight": torch.ones(24),
        "verifier_lm_head.weight": torch.ones(20, 24),
        "layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3),
    }
    write_speculators(tmp_path, CONFIG, tensors | unused)
    assert_holds(open_drafter(str(tmp_path)), tensors)


@pytest.mark.parametrize(
    ("fields", "layers"),
    [
        ({}, (2, 15, 27)),
        ({"eagle_aux_hidden_state_layer_ids": [3, 9]}, (3, 9)),
        # The defaults of SpecForge for a target of 30 layers, which are the defaults above.
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 14, 26]}}, (2, 15, 27)),
        ({"eagle_config": {"use_aux_hidden_state": True}}, (2, 15, 27)),
        ({"eagle_config": None, "eagle_aux_hidden_state_layer_ids": None}, (2, 15, 27)),
        (
            {
                "eagle_aux_hidden_state_layer_ids": [5],
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]},
            },
            (5,),
        ),
    ],
)
def test_two_ways_to_count_layers(
    fields: dict[str, Any], layers: tuple[int, ...], tmp_path: Path
) -> None:
    config = with_fields(feature_layers=None if layers == (2, 15, 27) else layers)
    write_specforge(tmp_path, config, random_tensors(config), **fields)
    assert open_drafter(str(tmp_path)).config.layers_for(30) == layers


def test_a_target_it_fits() -> None:
    check_fits(CONFIG, target(), "d")
    check_fits(with_fields(feature_layers=(0, 6)), target(), "d")


@pytest.mark.parametrize(
    ("drafter", "changes", "message"),
    [
        ({}, {"hidden_size": 32}, "it needs a hidden size of 24, here it is 32"),
        ({}, {"vocab_size": 51}, "it needs a vocabulary of 50 tokens, here it is 51"),
        ({"feature_layers": (1, 7)}, {}, "what enters the layers 1, 7, here there are 6 layers"),
        ({}, {"num_layers": 2}, "what enters the layers 2, 1, -1, here there are 2 layers"),
        (
            {},
            {"hidden_size": 32, "vocab_size": 60},
            "a hidden size of 24, here it is 32; a vocabulary of 50 tokens, here it is 60",
        ),
    ],
)
def test_a_target_it_does_not_fit(
    drafter: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        check_fits(with_fields(**drafter), target(**changes), "somebody/head")
    assert str(caught.value).startswith("the drafter somebody/head does not fit this model")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def target(**changes: Any) -> ModelConfig:
    fields = {
        "model_type": "llama",
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128,
    }
    names = {"num_layers": "num_hidden_layers"}
    return ModelConfig.from_hf(fields | {names.get(k, k): v for k, v in changes.items()})


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (TARGET_IDS[:-1], "should be 20 ascending token ids below 50"),
        (TARGET_IDS[::-1], "should be 20 ascending"),
        (TARGET_IDS + 4, "should be 20 ascending"),
        (TARGET_IDS - 3, "should be 20 ascending"),
    ],
)
def test_a_vocabulary_that_is_not_written(ids: Any, message: str, tmp_path: Path) -> None:
    tensors = {name: t.numpy() for name, t in random_tensors(CONFIG).items()}
    with pytest.raises(UserError, match=message):
        write_drafter(tmp_path / "new", CONFIG, tensors, ids)
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    tensors = {name: t.numpy() for name, t in random_tensors(CONFIG).items()}
    write_drafter(tmp_path, CONFIG, tensors, TARGET_IDS)
    with pytest.raises(UserError, match="is not empty"):
        write_drafter(tmp_path, CONFIG, tensors, TARGET_IDS)
    del tensors["norm.weight"]
    with pytest.raises(UserError, match=r"lacks the tensor norm\.weight"):
        write_drafter(tmp_path / "new", CONFIG, tensors, TARGET_IDS)


@pytest.mark.parametrize("write", [write_safeailab, write_specforge])
def test_a_name_on_hugging_face(
    write: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pickled weights are only fetched if there are no others."""
    write(tmp_path, CONFIG, random_tensors(CONFIG))
    fetched = []

    def download(name: str, allow_patterns: list[str]) -> str:
        folder = tmp_path / "cache"
        folder.mkdir(exist_ok=True)
        for file in tmp_path.glob("*.*"):
            if file.name in allow_patterns:
                shutil.copy(file, folder)
        fetched.append(name)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    drafter = open_drafter("somebody/head")
    assert drafter.name == "somebody/head"
    assert drafter.config == CONFIG
    assert len(fetched) == (2 if write is write_safeailab else 1)


def test_numbers_that_make_no_drafter() -> None:
    for fields, message in [
        ({"num_heads": 3}, "cannot share"),
        ({"head_dim": 7}, "is odd"),
        ({"rope_theta": 1.0}, "too small"),
        ({"draft_vocab_size": 51}, "is larger than the target's of 50"),
        ({"norm_before_fc": True, "fc_norm": True}, "norms its features once"),
    ]:
        with pytest.raises(UserError, match=message):
            Eagle3Config(**{**CONFIG.__dict__, **fields})
