"""Whatever is wrong with a drafter, one line says so: no traceback, no crash, no code run."""

import contextlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from slipstream.errors import UserError
from slipstream.speculation.eagle3.checkpoint import open_drafter
from tests.speculation.eagle3.layouts import (
    CONFIG,
    WEIGHTS,
    random_tensors,
    write_safeailab,
    write_specforge,
    write_speculators,
)

PICKLE = "pytorch_model.bin"
Damage = Callable[[Path], object]
Tensors = dict[str, torch.Tensor]


def load_everything(path: Path) -> None:
    drafter = open_drafter(str(path))
    for name in drafter.shapes:
        drafter.weight(name).float32()


def assert_refused(path: Path, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_everything(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def good_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    write_specforge(folder, CONFIG, random_tensors(CONFIG))
    return folder


def edit_config(remove: str | None = None, **fields: Any) -> Damage:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        values = json.loads(path.read_text()) | fields
        path.write_text(json.dumps({k: v for k, v in values.items() if k != remove}))

    return edit


def edit_tensors(edit: Callable[[Tensors], object]) -> Damage:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        edit(tensors)
        (folder / WEIGHTS).unlink()
        save_file(tensors, folder / WEIGHTS)

    return damage


def put(name: str, tensor: torch.Tensor) -> Damage:
    return edit_tensors(lambda tensors: tensors.update({name: tensor}))


def drop(name: str) -> Damage:
    return edit_tensors(lambda tensors: tensors.pop(name))


def offset(place: int, value: int) -> Damage:
    def edit(tensors: Tensors) -> None:
        tensors["d2t"][place] = value

    return edit_tensors(edit)


IDS = "eagle_aux_hidden_state_layer_ids"
Q_PROJ = "midlayer.self_attn.q_proj.weight"
DAMAGES: list[tuple[Damage, str]] = [
    (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
    (lambda folder: (folder / "config.json").write_text("{"), "is not valid JSON"),
    (lambda folder: (folder / "config.json").write_text("[]"), "should hold a JSON object"),
    (edit_config("hidden_size"), "has no field 'hidden_size'"),
    (edit_config("vocab_size"), "has no field 'vocab_size'"),
    (edit_config(hidden_size="24"), "hidden_size = '24'; it should be a positive integer"),
    (edit_config(draft_vocab_size=-1), "draft_vocab_size = -1; it should be a positive integer"),
    (edit_config(draft_vocab_size=51), "is larger than the target's of 50"),
    (edit_config(target_hidden_size=[]), "target_hidden_size = []; it should be a positive"),
    (edit_config(num_hidden_layers=32), "num_hidden_layers = 32; an EAGLE-3 drafter has 1"),
    (edit_config(hidden_act="gelu"), "only silu is supported"),
    (edit_config(rope_scaling={"type": "dynamic"}), "which depends on the current length"),
    (edit_config(quantization_config={}), "describes quantised safetensors"),
    (edit_config(norm_output="yes"), "norm_output = 'yes'; it should be true or false"),
    (edit_config(eagle_config=3), "eagle_config = 3; it should be an object"),
    (edit_config(eagle_config={"use_aux_hidden_state": False}), "use_aux_hidden_state = false"),
    (edit_config(eagle_config={IDS: "all"}), "the eagle_config in config.json has " + IDS),
    (edit_config(**{IDS: []}), "it should be a list of different layers of the target"),
    (edit_config(**{IDS: [1, 1, 3]}), "it should be a list of different layers of the target"),
    (edit_config(**{IDS: [1, -2, 3]}), "it should be a list of different layers of the target"),
    (edit_config(**{IDS: [1, True, 3]}), "it should be a list of different layers of the target"),
    (edit_config(**{IDS: [1, 2]}), "has fc.weight with the shape (24, 72); it should be (24, 48)"),
    (edit_config(fc_norm=True), "lacks the tensor fc_norm.0.weight"),
    (edit_config(norm_before_fc=True), "lacks the tensor input_norm.weight"),
    (edit_config(num_attention_heads=3), "cannot share"),
    (edit_config(intermediate_size=41), "it should be (41, 24)"),
    (edit_config(target_hidden_size=32), "with the shape (24, 72); it should be (24, 96)"),
    (lambda folder: (folder / WEIGHTS).unlink(), "has no model.safetensors"),
    (drop("midlayer.hidden_norm.weight"), "lacks the tensor midlayer.hidden_norm.weight"),
    (drop("lm_head.weight"), "lacks the tensor lm_head.weight"),
    (drop("d2t"), "has a vocabulary of its own, 20 of 50 tokens, but no tensor d2t"),
    (put(Q_PROJ, torch.zeros(24, 24)), "with the shape (24, 24); it should be (24, 48)"),
    (put(Q_PROJ, torch.zeros(24 * 48)), "with the shape (1152,); it should be (24, 48)"),
    (put(Q_PROJ, torch.zeros(24, 48, dtype=torch.int64)), f"stores {Q_PROJ} as I64"),
    (put("fc.bias", torch.zeros(24)), "holds the tensor fc.bias, which an EAGLE-3 drafter"),
    (put("midlayer.self_attn.q_norm.weight", torch.zeros(6)), "holds the tensor midlayer.self_"),
    (put("layers.0.mlp.up_proj.weight", torch.zeros(1)), "midlayer.mlp.up_proj.weight twice"),
    (put("embed_tokens.weight", torch.zeros(20, 24)), "it should be (50, 24)"),
    (put("d2t", torch.zeros(50, dtype=torch.int64)), "d2t with the shape (50,); it should be (20,"),
    (put("d2t", torch.zeros(20)), "stores d2t as F32; it should be I64 or I32"),
    (offset(19, 31), "drafts the token 50 (in d2t), which is outside"),
    (offset(0, -1), "drafts the token -1 (in d2t)"),
    (offset(5, 2**63 - 1), "(in d2t), which is outside"),
    (offset(1, 1), "drafts the same token under two ids"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_folders(damage: Damage, message: str, good_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(good_folder, tmp_path / "drafter")
    damage(tmp_path / "drafter")
    assert_refused(tmp_path / "drafter", message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"speculators_model_type": "peagle"}, "a speculator of type 'peagle', not 'eagle3'"),
        ({"speculators_model_type": 3}, "a speculator of type 3, not 'eagle3'"),
        ({"transformer_layer_config": None}, "has no field 'transformer_layer_config'"),
        ({"norm_before_residual": None}, "has no field 'norm_before_residual'"),
        ({"norm_before_fc": True, "fc_norm": True}, "norms its features once"),
    ],
)
def test_speculators(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_speculators(tmp_path, CONFIG, random_tensors(CONFIG), **fields)
    assert_refused(tmp_path, message)


def test_speculators_with_another_layer(tmp_path: Path) -> None:
    write_speculators(tmp_path, CONFIG, random_tensors(CONFIG))
    values = json.loads((tmp_path / "config.json").read_text())
    values["transformer_layer_config"]["model_type"] = "qwen3"
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert_refused(tmp_path, "a drafter made of a qwen3 layer; only those made of a llama layer")


def test_a_wider_target_needs_an_embedding(tmp_path: Path) -> None:
    tensors = random_tensors(CONFIG) | {"fc.weight": torch.zeros(24, 96)}
    write_specforge(tmp_path, CONFIG, tensors, target_hidden_size=32)
    assert_refused(tmp_path, "lacks the tensor embed_tokens.weight")


def test_other_paths(good_folder: Path, tmp_path: Path) -> None:
    for path in (good_folder / WEIGHTS, tmp_path / "missing", Path("missing")):
        assert_refused(path, "there is no drafter at")
    assert_refused(tmp_path / ("x" * 300), "cannot look for a drafter at")


class Intruder:
    """A pickle of it writes a file when it is opened carelessly."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize(
    "save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value, 2))]
)
def test_a_pickle_runs_nothing(save: Callable[[Any, Path], None], tmp_path: Path) -> None:
    write_safeailab(tmp_path, CONFIG, random_tensors(CONFIG))
    tensors = torch.load(tmp_path / PICKLE, weights_only=True)
    save(tensors | {"norm.weight": Intruder(tmp_path / "mark")}, tmp_path / PICKLE)
    assert_refused(tmp_path, "is damaged, or holds more than tensors")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.zeros(1)], "should hold tensors by name"),
        ({1: torch.zeros(1)}, "should hold tensors by name"),
        ({"norm.weight": 1.0}, "should hold tensors by name"),
        ({"norm.weight": torch.zeros(24).to_sparse()}, "should hold tensors by name"),
        ({"norm.weight": torch.empty(24, device="meta")}, "should hold tensors by name"),
        ({"norm.weight": torch.zeros(24, dtype=torch.int32)}, "stores norm.weight as int32"),
        ({"norm.weight": torch.zeros(24, dtype=torch.float8_e4m3fn)}, "as float8_e4m3fn"),
        ({"norm.weight": torch.tensor(1.0)}, "with the shape (); it should be (24,)"),
        ({"d2t": torch.zeros(20)}, "stores d2t as float32"),
        ({"d2t": torch.zeros(20, dtype=torch.int64)[None]}, "d2t with the shape (1, 20)"),
    ],
)
def test_pickles(content: Any, message: str, tmp_path: Path) -> None:
    write_safeailab(tmp_path, CONFIG, random_tensors(CONFIG))
    if isinstance(content, dict) and all(isinstance(name, str) for name in content):
        content = torch.load(tmp_path / PICKLE, weights_only=True) | content
    torch.save(content, tmp_path / PICKLE)
    assert_refused(tmp_path, message)


def test_a_pickle_of_views(tmp_path: Path) -> None:
    """Tensors that share memory, or lie in it in another order, are read as they look."""
    tensors = random_tensors(CONFIG)
    tensors["fc.weight"] = torch.randn(72, 24).T
    tensors["norm.weight"] = torch.randn(2, 24)[1].requires_grad_()
    write_safeailab(tmp_path, CONFIG, tensors)
    drafter = open_drafter(str(tmp_path))
    for name in ("fc.weight", "norm.weight"):
        found = drafter.weight(name).float32()
        np.testing.assert_array_equal(found, tensors[name].detach().numpy())


@pytest.mark.parametrize("write", [write_specforge, write_safeailab])
def test_cut_off_anywhere(write: Callable[..., None], tmp_path: Path) -> None:
    write(tmp_path, CONFIG, random_tensors(CONFIG))
    path = tmp_path / (WEIGHTS if write is write_specforge else PICKLE)
    content = path.read_bytes()
    for size in [0, 1, 7, 8, 100, 1000, len(content) // 2, len(content) - 1]:
        path.unlink()  # the earlier file may still be mapped
        path.write_bytes(content[:size])
        with pytest.raises(UserError) as caught:
            load_everything(tmp_path)
        assert "\n" not in str(caught.value)


MANY = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("write", [write_specforge, write_safeailab])
@MANY
@given(data=st.data())
def test_random_damage(write: Callable[..., None], data: st.DataObject, tmp_path: Path) -> None:
    for file in tmp_path.iterdir():
        file.unlink()
    write(tmp_path, CONFIG, random_tensors(CONFIG))
    path = tmp_path / data.draw(
        st.sampled_from(["config.json", WEIGHTS if write is write_specforge else PICKLE])
    )
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(content), 3000)))
        patch = data.draw(st.binary(min_size=1, max_size=8))
        content[at : at + len(patch)] = patch
    path.unlink()
    path.write_bytes(content)
    with contextlib.suppress(UserError):
        load_everything(tmp_path)
