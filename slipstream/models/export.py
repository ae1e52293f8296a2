"""Any loadable model as a Hugging Face folder."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slipstream.errors import UserError
from slipstream.models.checkpoint import Checkpoint, Shape, expected_tensors
from slipstream.models.config import (
    LinearScaling,
    Llama3Scaling,
    ModelConfig,
    RopeScaling,
    YarnScaling,
)
from slipstream.models.safetensors_file import bfloat16_bytes, write_bfloat16

_SHARD_BYTES = 5_000_000_000
_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def export_checkpoint(
    checkpoint: Checkpoint, folder: Path, *, shard_bytes: int = _SHARD_BYTES
) -> None:
    """Write config, bf16 weights and tokenizer of ``checkpoint`` into ``folder``.

    Raises ``UserError`` if the folder already holds something, or if the model has a combination of
    biases that no Hugging Face configuration can name.
    """
    config = hf_config(checkpoint.config)
    parts = checkpoint.tokenizer_parts()
    make_empty(folder)
    write_json(folder / "config.json", config)
    names = ("bos_token_id", "eos_token_id")
    write_json(folder / "generation_config.json", {n: config[n] for n in names if n in config})
    parts.backend.save(str(folder / "tokenizer.json"))
    tokenizer_config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": checkpoint.config.max_position_embeddings,
        "clean_up_tokenization_spaces": False,
        **parts.special_tokens,
    }
    if parts.chat_template is not None:
        tokenizer_config["chat_template"] = parts.chat_template
    write_json(folder / "tokenizer_config.json", tokenizer_config)
    _write_weights(checkpoint, folder, shard_bytes)


def hf_config(config: ModelConfig) -> dict[str, Any]:
    """The contents of config.json, in the style that all versions of transformers read."""
    biases_fit = {
        "llama": config.qkv_bias == config.o_bias,
        "qwen2": config.qkv_bias and not config.o_bias and not config.mlp_bias,
        "qwen3": config.qkv_bias == config.o_bias and not config.mlp_bias,
    }
    if not biases_fit[config.architecture]:
        raise UserError(
            f"this {config.architecture} model has biases that Hugging Face's "
            f"{config.architecture} lacks, so it cannot be exported"
        )
    fields: dict[str, Any] = {
        "architectures": [_CLASSES[config.architecture]],
        "model_type": config.architecture,
        "torch_dtype": "bfloat16",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "max_position_embeddings": config.max_position_embeddings,
        "tie_word_embeddings": config.tie_word_embeddings,
    }
    if config.architecture != "qwen2":
        fields["attention_bias"] = config.o_bias
    if config.architecture == "llama":
        fields["mlp_bias"] = config.mlp_bias
    if config.rope_scaling is not None:
        fields["rope_scaling"] = _hf_scaling(config.rope_scaling)
    if config.bos_token_id is not None:
        fields["bos_token_id"] = config.bos_token_id
    if config.eos_token_ids:
        ends = list(config.eos_token_ids)
        fields["eos_token_id"] = ends[0] if len(ends) == 1 else ends
    return fields


def _hf_scaling(scaling: RopeScaling) -> dict[str, Any]:
    match scaling:
        case LinearScaling(factor):
            return {"rope_type": "linear", "factor": factor}
        case Llama3Scaling():
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_max_position,
            }
        case YarnScaling():
            return {
                "rope_type": "yarn",
                "factor": scaling.factor,
                "original_max_position_embeddings": scaling.original_max_position,
                "attention_factor": scaling.attention_factor,
                "beta_fast": scaling.beta_fast,
                "beta_slow": scaling.beta_slow,
                "truncate": scaling.truncate,
            }


def make_empty(folder: Path) -> None:
    """Make the folder. Raises ``UserError`` if it holds something or cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise UserError(f"cannot write into {folder}: {error.strerror}") from None
    if occupied:
        raise UserError(f"{folder} is not empty; name a new folder, nothing is ever overwritten")


def _write_weights(checkpoint: Checkpoint, folder: Path, shard_bytes: int) -> None:
    shapes = dict(expected_tensors(checkpoint.config))
    shards = list(_plan_shards(shapes, shard_bytes))
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        if len(shards) == 1:
            file = "model.safetensors"
        shard = {name: shapes[name] for name in names}
        write_bfloat16(folder / file, shard, lambda name: checkpoint.weight(name).float32())
        weight_map |= dict.fromkeys(names, file)
    if len(shards) > 1:
        total = sum(map(bfloat16_bytes, shapes.values()))
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        write_json(folder / "model.safetensors.index.json", index)


def _plan_shards(shapes: Mapping[str, Shape], shard_bytes: int) -> Iterator[list[str]]:
    """Names of the tensors of each file, in order; a file may only exceed the size alone."""
    names: list[str] = []
    size = 0
    for name, shape in shapes.items():
        if names and size + bfloat16_bytes(shape) > shard_bytes:
            yield names
            names, size = [], 0
        names.append(name)
        size += bfloat16_bytes(shape)
    yield names


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object as people like to read it."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
