"""Any loadable model as a Hugging Face folder."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.errors import UserError
from slipstream.models.checkpoint import Checkpoint, expected_tensors
from slipstream.models.config import (
    LinearScaling,
    Llama3Scaling,
    ModelConfig,
    RopeScaling,
    YarnScaling,
)

if TYPE_CHECKING:
    import torch

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
    _make_empty(folder)
    _write_json(folder / "config.json", config)
    names = ("bos_token_id", "eos_token_id")
    _write_json(folder / "generation_config.json", {n: config[n] for n in names if n in config})
    parts.backend.save(str(folder / "tokenizer.json"))
    tokenizer_config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": checkpoint.config.max_position_embeddings,
        "clean_up_tokenization_spaces": False,
        **parts.special_tokens,
    }
    if parts.chat_template is not None:
        tokenizer_config["chat_template"] = parts.chat_template
    _write_json(folder / "tokenizer_config.json", tokenizer_config)
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


def _make_empty(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise UserError(f"cannot write into {folder}: {error.strerror}") from None
    if occupied:
        raise UserError(f"{folder} is not empty; name a new folder, nothing is ever overwritten")


def _write_weights(checkpoint: Checkpoint, folder: Path, shard_bytes: int) -> None:
    from safetensors.torch import save_file

    shards = list(_plan_shards(checkpoint.config, shard_bytes))
    metadata = {"format": "pt"}
    if len(shards) == 1:
        save_file(_load(checkpoint, shards[0]), folder / "model.safetensors", metadata)
        return
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file(_load(checkpoint, names), folder / file, metadata)
        weight_map |= dict.fromkeys(names, file)
    total = sum(_bytes(shape) for _, shape in expected_tensors(checkpoint.config))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index)


def _plan_shards(config: ModelConfig, shard_bytes: int) -> Iterator[list[str]]:
    """Names of the tensors of each file, in order; a file may only exceed the size alone."""
    names: list[str] = []
    size = 0
    for name, shape in expected_tensors(config):
        if names and size + _bytes(shape) > shard_bytes:
            yield names
            names, size = [], 0
        names.append(name)
        size += _bytes(shape)
    yield names


def _bytes(shape: tuple[int, ...]) -> int:
    """Size of a bf16 tensor."""
    size = 2
    for dimension in shape:
        size *= dimension
    return size


def _load(checkpoint: Checkpoint, names: list[str]) -> dict[str, "torch.Tensor"]:
    import torch

    return {name: checkpoint.tensor(name).to(torch.bfloat16) for name in names}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
