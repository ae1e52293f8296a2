"""Tiny drafters as SafeAILab, SpecForge and speculators publish them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from slipstream.speculation.eagle3.checkpoint import expected_tensors
from slipstream.speculation.eagle3.config import Eagle3Config

WEIGHTS = "model.safetensors"

CONFIG = Eagle3Config(
    vocab_size=50,
    draft_vocab_size=20,
    hidden_size=24,
    target_hidden_size=24,
    intermediate_size=40,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    rope_scaling=None,
    max_position_embeddings=128,
)
TARGET_IDS = np.arange(2, 42, 2, dtype=np.int32) + np.arange(20, dtype=np.int32) // 3
SWITCHES = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")

Tensors = dict[str, torch.Tensor]


def with_fields(**fields: Any) -> Eagle3Config:
    return dataclasses.replace(CONFIG, **fields)


def random_tensors(config: Eagle3Config, dtype: torch.dtype = torch.float32) -> Tensors:
    """Under SpecForge's names, without an embedding."""
    torch.manual_seed(0)
    return {name: torch.randn(shape, dtype=dtype) for name, shape in expected_tensors(config)}


def stored_tensors(config: Eagle3Config, tensors: Tensors) -> Tensors:
    """With the two tables of the draft vocabulary."""
    whole = config.draft_vocab_size == config.vocab_size
    ids = torch.arange(config.vocab_size) if whole else torch.from_numpy(TARGET_IDS).long()
    drafted = torch.zeros(config.vocab_size, dtype=torch.bool)
    drafted[ids] = True
    return tensors | {"d2t": ids - torch.arange(config.draft_vocab_size), "t2d": drafted}


def write_specforge(folder: Path, config: Eagle3Config, tensors: Tensors, **fields: Any) -> None:
    layers = config.feature_layers
    if layers is not None and not fields:
        fields["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [i - 1 for i in layers]}
    switches = {name: True for name in SWITCHES if getattr(config, name)}
    write_config(folder, flat_config(config) | switches | fields)
    save_file(stored_tensors(config, tensors), folder / WEIGHTS)


def write_safeailab(folder: Path, config: Eagle3Config, tensors: Tensors, **fields: Any) -> None:
    """A pickle, and a config that leaves out what its code has defaults for."""
    values = flat_config(config) | {"architectures": ["LlamaForCausalLM"]}
    for name in ("head_dim", "rope_theta", "attention_bias"):
        del values[name]
    write_config(folder, values | fields)
    torch.save(stored_tensors(config, tensors), folder / "pytorch_model.bin")


def write_speculators(folder: Path, config: Eagle3Config, tensors: Tensors, **fields: Any) -> None:
    layer = LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=1,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps,
        max_position_embeddings=config.max_position_embeddings,
        rope_theta=config.rope_theta,
    )
    values: dict[str, Any] = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.7.0",
        "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "a/b"}},
        "transformer_layer_config": layer.to_diff_dict(),
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": None,
        "eagle_aux_hidden_state_layer_ids": config.feature_layers,
        "embed_requires_grad": False,
    }
    switches = {name: getattr(config, name) for name in SWITCHES}
    write_config(folder, values | switches | fields)
    stored = stored_tensors(config, tensors).items()
    save_file({n.replace("midlayer.", "layers.0."): t for n, t in stored}, folder / WEIGHTS)


def flat_config(config: Eagle3Config) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "qwen3",  # the target's; what is built is a llama layer all the same
        "attention_bias": False,
        "bos_token_id": 151643,  # in the whole vocabulary of the model that the file is copied from
        "eos_token_id": 151645,
        "draft_vocab_size": config.draft_vocab_size,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "num_attention_heads": config.num_heads,
        "num_hidden_layers": 1,
        "num_key_value_heads": config.num_kv_heads,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_scaling": None,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": False,
        "vocab_size": config.vocab_size,
    }


def write_config(folder: Path, values: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(values))
