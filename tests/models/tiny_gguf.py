"""Tiny GGUF files, written with the gguf package as llama.cpp's converter lays them out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers
from transformers import PreTrainedModel

from tests.models.tiny import CHAT_TEMPLATE, VOCAB_SIZE, tiny_tokenizer

_NAMES = {
    "embed_tokens": "token_embd",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """The name that GGUF gives to the tensor that Hugging Face calls ``name``."""
    if name == "model.norm.weight":
        return "output_norm.weight"
    for hf, stored in _NAMES.items():
        name = name.replace(f".{hf}.", f".{stored}.").replace(f"{hf}.", f"{stored}.", 1)
    return name.removeprefix("model.").replace("layers.", "blk.")


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """Row i of the first half of each head beside row i of its second half."""
    head = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return np.stack([head[:, 0], head[:, 1]], axis=2).reshape(rows.shape)


def write_tiny_gguf(
    path: Path,
    model: PreTrainedModel,
    *,
    quantization: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    others: Mapping[str, gguf.GGMLQuantizationType] | None = None,
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
) -> Path:
    """Write ``model`` with the tiny tokenizer, its matrices in ``quantization``.

    ``others`` gives the matrices of a role, such as ``attn_v``, another type. ``metadata`` and
    ``tensors`` add or replace entries; None as a value leaves one out.
    """
    config: Any = model.config
    writer = gguf.GGUFWriter(path, config.model_type)
    values = _metadata(config) | _tokenizer_metadata(tiny_tokenizer().backend_tokenizer)
    for key, value in (values | (metadata or {})).items():
        _add(writer, key, value)
    tied = config.tie_word_embeddings
    stored = {
        gguf_name(name): _layout(name, tensor.detach().numpy(), config)
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    for name, values_ in (stored | (tensors or {})).items():
        if values_ is None:
            continue
        kind = (others or {}).get(name.split(".")[-2], quantization)
        if values_.ndim == 1:
            kind = gguf.GGMLQuantizationType.F32
        packed = gguf.quantize(values_, kind)
        writer.add_tensor(name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _layout(name: str, values: np.ndarray, config: Any) -> np.ndarray:
    if config.model_type == "llama" and ".q_proj." in name:
        return interleave(values, config.num_attention_heads)
    if config.model_type == "llama" and ".k_proj." in name:
        return interleave(values, config.num_key_value_heads)
    return values


def _metadata(config: Any) -> dict[str, Any]:
    prefix = config.model_type
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        f"{prefix}.{key}": value
        for key, value in {
            "context_length": config.max_position_embeddings,
            "embedding_length": config.hidden_size,
            "feed_forward_length": config.intermediate_size,
            "block_count": config.num_hidden_layers,
            "attention.head_count": config.num_attention_heads,
            "attention.head_count_kv": config.num_key_value_heads,
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
            "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
            "rope.freq_base": config.rope_parameters["rope_theta"],
            "rope.dimension_count": head_dim,
        }.items()
    }


def _tokenizer_metadata(backend: tokenizers.Tokenizer) -> dict[str, Any]:
    import json

    model = json.loads(backend.to_str())["model"]
    size = backend.get_vocab_size()
    tokens = [backend.id_to_token(i) for i in range(size)]
    added = backend.get_added_tokens_decoder()
    types = [3 if i in added and added[i].special else 4 if i in added else 1 for i in range(size)]
    padding = range(size, VOCAB_SIZE)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens + [f"[PAD{i}]" for i in padding],
        "tokenizer.ggml.token_type": types + [5 for _ in padding],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
