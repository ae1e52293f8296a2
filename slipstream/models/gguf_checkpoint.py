"""A GGUF file as a checkpoint with Hugging Face names and layouts."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from slipstream.errors import UserError
from slipstream.kernels.weight import Weight
from slipstream.models.config import (
    Llama3Scaling,
    ModelConfig,
    RopeScaling,
    check_architecture,
    parse_scaling,
)
from slipstream.models.fields import Fields
from slipstream.models.gguf_file import GGUFFile
from slipstream.models.gguf_tokenizer import tokenizer_parts_from_gguf
from slipstream.models.rope import inverse_frequencies, llama3_multipliers
from slipstream.models.tokenizer_parts import TokenizerParts

_TOP_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"


class GGUFCheckpoint:
    """One ``.gguf`` file. See ``Checkpoint`` for the members.

    Raises ``UserError`` for a file that is broken or describes another architecture.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._file = GGUFFile(path)
        self.config = _read_config(self._file)
        self._names = {
            hf_name(stored): stored for stored in self._file.tensors if stored != _ROPE_FACTORS
        }
        self.shapes = {name: self._file.tensors[s].shape for name, s in self._names.items()}

    def weight(self, name: str) -> Weight:
        """The tensor as it is stored; rows that the file permutes are put back in order."""
        weight = self._file.weight(self._names[name])
        if self.config.architecture == "llama" and ".self_attn." in name:
            if ".q_proj." in name:
                return unpermute(weight, self.config.num_heads)
            if ".k_proj." in name:
                return unpermute(weight, self.config.num_kv_heads)
        return weight

    def tokenizer_parts(self) -> TokenizerParts:
        """The tokenizer that the file's metadata describes."""
        return tokenizer_parts_from_gguf(self._file.metadata, str(self._file.path))


def hf_name(stored: str) -> str:
    """Hugging Face's name for a GGUF tensor; names without a counterpart stay as they are."""
    stem, _, kind = stored.rpartition(".")
    if stem in _TOP_NAMES:
        return f"{_TOP_NAMES[stem]}.{kind}"
    prefix, _, part = stem.rpartition(".")
    if prefix.startswith("blk.") and part in _LAYER_NAMES:
        return f"model.layers.{prefix.removeprefix('blk.')}.{_LAYER_NAMES[part]}.{kind}"
    return stored


def unpermute(weight: Weight, heads: int) -> Weight:
    """Rows of Q or K back from the interleaved to the half-split rotary layout.

    Llama files pair dimensions 2i and 2i+1 of a head; Hugging Face pairs i and i + head_dim/2.
    """
    order = np.arange(weight.shape[0]).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
    if len(weight.shape) == 1:  # a bias, whose values are all in one row
        return Weight.of(weight.float32()[order])
    return replace(weight, data=weight.data[order])


def _read_config(file: GGUFFile) -> ModelConfig:
    metadata = Fields(file.metadata, str(file.path))
    stored_name = metadata.text("general.architecture")
    architecture = check_architecture(stored_name, metadata.origin)
    prefix = stored_name + "."
    fields = Fields(
        {k.removeprefix(prefix): v for k, v in file.metadata.items() if k.startswith(prefix)},
        f"{file.path} ({stored_name})",
    )
    if fields.values.get("expert_count"):
        raise UserError(f"{file.path} is a mixture of experts; only dense models are supported")
    hidden_size, num_heads = fields.count("embedding_length"), fields.count("attention.head_count")
    head_dim = fields.count("attention.key_length", max(hidden_size // num_heads, 1))
    for key in ("attention.value_length", "rope.dimension_count"):
        if fields.count(key, head_dim) != head_dim:
            raise fields.error(key, f"{head_dim}, the size of a head")
    tokens = metadata.values.get("tokenizer.ggml.tokens")
    context = fields.count("context_length")
    config = ModelConfig(
        architecture=architecture,
        vocab_size=fields.count("vocab_size", len(tokens) if isinstance(tokens, list) else None),
        hidden_size=hidden_size,
        intermediate_size=fields.count("feed_forward_length"),
        num_layers=fields.count("block_count"),
        num_heads=num_heads,
        num_kv_heads=fields.count("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        rms_norm_eps=_shortest(fields.number("attention.layer_norm_rms_epsilon")),
        rope_theta=_shortest(fields.number("rope.freq_base", 10_000.0)),
        rope_scaling=_read_scaling(fields, context),
        max_position_embeddings=min(context, fields.count("attention.sliding_window", context)),
        tie_word_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        o_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_down.bias" in file.tensors,
        qk_norm=architecture == "qwen3",
        bos_token_id=next(iter(metadata.token_ids("tokenizer.ggml.bos_token_id")), None),
        eos_token_ids=_end_tokens(metadata),
    )
    return _with_rope_factors(config, file)


def _shortest(value: float) -> float:
    """The decimal number that was meant by a float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _end_tokens(metadata: Fields) -> tuple[int, ...]:
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    found = [i for key in keys for i in metadata.token_ids(f"tokenizer.ggml.{key}")]
    return tuple(dict.fromkeys(found))


def _read_scaling(fields: Fields, context: int) -> RopeScaling | None:
    kind = fields.text("rope.scaling.type", "none")
    names = {
        "rope.scaling.factor": "factor",
        "rope.scaling.original_context_length": "original_max_position_embeddings",
        "rope.scaling.yarn_beta_fast": "beta_fast",
        "rope.scaling.yarn_beta_slow": "beta_slow",
    }
    values = {hf: fields.values[key] for key, hf in names.items() if key in fields.values}
    if values.get("factor") == 0:  # how the format spells "not scaled"
        return None
    for key in ("rope.scaling.attn_factor", "rope.scaling.yarn_log_multiplier"):
        if fields.values.get(key, 1.0) != 1.0:
            raise fields.error(key, "absent or 1")
    return parse_scaling(kind, Fields(values, f"the rotary scaling in {fields.origin}"), context)


def _with_rope_factors(config: ModelConfig, file: GGUFFile) -> ModelConfig:
    """The configuration with Llama 3's scaling, which files give as one divisor per frequency."""
    if _ROPE_FACTORS not in file.tensors:
        return config
    divisors = file.weight(_ROPE_FACTORS).float32()
    # What every published Llama 3 uses besides its factor, which is the largest divisor.
    scaling = Llama3Scaling(float(divisors.max()), 1.0, 4.0, 8192)
    if divisors.shape == (config.head_dim // 2,) and config.rope_scaling is None:
        wanted = 1.0 / llama3_multipliers(inverse_frequencies(config), scaling)
        if np.allclose(divisors, wanted, rtol=1e-4):
            return replace(config, rope_scaling=scaling)
    raise UserError(
        f"{file.path} scales its rotary frequencies by a table ({_ROPE_FACTORS}) that is not "
        "Llama 3's; take the model's safetensors version"
    )
