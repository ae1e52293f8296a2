"""What a model is made of, read from any checkpoint format into one dataclass."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slipstream.errors import UserError
from slipstream.models.fields import Fields

Architecture = Literal["llama", "qwen2", "qwen3"]

# How checkpoints call the architectures; Mistral computes what Llama computes.
ARCHITECTURES: dict[str, Architecture] = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
}


@dataclass(frozen=True)
class LinearScaling:
    """Every rotary frequency divided by ``factor``."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Low rotary frequencies divided by ``factor``, high ones kept, a ramp between (Llama 3.1)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclass(frozen=True)
class YarnScaling:
    """YaRN: a ramp over the dimensions, and cosines and sines times ``attention_factor``."""

    factor: float
    original_max_position: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One decoder-only transformer; sizes are counts, never bytes.

    ``max_position_embeddings`` is the longest context that full attention computes faithfully: a
    model with a sliding window is served up to its window, inside which the two agree.
    ``eos_token_ids`` are the end tokens that the checkpoint's configuration names.
    """

    architecture: Architecture
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    max_position_embeddings: int
    tie_word_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raises ``UserError`` for numbers with which no model can be built."""
        if self.num_heads % self.num_kv_heads:
            raise UserError(
                f"{self.num_heads} attention heads cannot share {self.num_kv_heads} key/value "
                "heads; the first must be a multiple of the second"
            )
        if self.head_dim % 2:
            raise UserError(f"head size {self.head_dim} is odd; rotary embedding needs an even one")
        if self.rope_theta <= 1:
            raise UserError(f"rotary base {self.rope_theta} is too small; it should be above 1")
        named = [i for i in (self.bos_token_id, *self.eos_token_ids) if i is not None]
        if outside := [i for i in named if not 0 <= i < self.vocab_size]:
            raise UserError(
                f"special token id {outside[0]} is outside the vocabulary of "
                f"{self.vocab_size} tokens"
            )

    @staticmethod
    def from_hf(
        config: Mapping[str, Any], generation_config: Mapping[str, Any] | None = None
    ) -> "ModelConfig":
        """From the contents of config.json and, if there is one, generation_config.json.

        Reads both the style of transformers 5 (``rope_parameters``) and the older one. Raises
        ``UserError`` naming the field that is missing, wrong or not supported.
        """
        return _from_hf(Fields(config, "config.json"), generation_config or {})


def check_architecture(name: str, origin: str) -> Architecture:
    """The architecture that computes models called ``name``; ``UserError`` for others."""
    if name not in ARCHITECTURES:
        raise UserError(
            f"{origin} describes the architecture {name!r}; "
            f"supported are {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[name]


def _from_hf(fields: Fields, generation: Mapping[str, Any]) -> ModelConfig:
    model_type = fields.text("model_type")
    architecture = check_architecture(model_type, fields.origin)
    _refuse_unsupported(fields)
    hidden_size = fields.count("hidden_size")
    num_heads = fields.count("num_attention_heads")
    # transformers' own default where a Qwen3 config leaves the field out
    default_head_dim = 128 if architecture == "qwen3" else max(hidden_size // num_heads, 1)
    attention_bias = architecture != "qwen2" and fields.flag("attention_bias")
    theta, scaling = _rope_from_hf(fields)
    bos = fields.token_ids("bos_token_id")
    eos = (
        *fields.token_ids("eos_token_id"),
        *Fields(generation, "generation_config.json").token_ids("eos_token_id"),
    )
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.count("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=fields.count("intermediate_size"),
        num_layers=fields.count("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=fields.count("num_key_value_heads", num_heads),
        head_dim=fields.count("head_dim", default_head_dim),
        rms_norm_eps=fields.number("rms_norm_eps"),
        rope_theta=theta,
        rope_scaling=scaling,
        max_position_embeddings=_context_limit(fields, model_type),
        tie_word_embeddings=fields.flag("tie_word_embeddings"),
        qkv_bias=architecture == "qwen2" or attention_bias,
        o_bias=attention_bias,
        mlp_bias=architecture == "llama" and fields.flag("mlp_bias"),
        qk_norm=architecture == "qwen3",
        bos_token_id=bos[0] if bos else None,
        eos_token_ids=tuple(dict.fromkeys(eos)),
    )


def _refuse_unsupported(fields: Fields) -> None:
    if (activation := fields.text("hidden_act", "silu")) not in ("silu", "swish"):
        raise UserError(
            f"{fields.origin} asks for the activation {activation!r}; only silu is supported"
        )
    if fields.values.get("quantization_config") is not None:
        raise UserError(
            f"{fields.origin} describes quantised safetensors (quantization_config); "
            "take the model's unquantised or GGUF version"
        )
    classes = fields.values.get("architectures") or []
    if isinstance(classes, list) and classes and not str(classes[0]).endswith("ForCausalLM"):
        raise UserError(
            f"{fields.origin} describes a {classes[0]}; only ...ForCausalLM models generate text"
        )


def _context_limit(fields: Fields, model_type: str) -> int:
    """The model's context in tokens, cut to the sliding window where a layer has one."""
    limit = fields.count("max_position_embeddings")
    if fields.values.get("sliding_window") is None or model_type == "llama":
        return limit
    layers = fields.count("num_hidden_layers")
    types = fields.values.get("layer_types")
    if model_type != "mistral" and not fields.flag("use_sliding_window"):
        slides = False
    elif isinstance(types, list):
        slides = "sliding_attention" in types
    else:
        slides = model_type == "mistral" or fields.count("max_window_layers", 28) < layers
    return min(limit, fields.count("sliding_window")) if slides else limit


def _rope_from_hf(fields: Fields) -> tuple[float, RopeScaling | None]:
    """Base of the rotary frequencies, and how they are scaled."""
    raw = fields.values.get("rope_parameters") or fields.values.get("rope_scaling") or {}
    if not isinstance(raw, dict):
        raise fields.error(
            "rope_parameters" if fields.values.get("rope_parameters") else "rope_scaling",
            "an object with a rope_type",
        )
    rope = Fields(raw, f"the rotary scaling in {fields.origin}")
    theta = rope.number("rope_theta", fields.number("rope_theta", 10_000.0))
    for holder in (fields, rope):
        if holder.number("partial_rotary_factor", 1.0) != 1.0:
            raise UserError(
                f"{holder.origin} rotates only part of each head; that is not supported"
            )
    kind = rope.text("rope_type", rope.text("type", "default"))
    max_position = fields.count("max_position_embeddings")
    original = fields.count("original_max_position_embeddings", max_position)
    return theta, parse_scaling(kind, rope, original)


def parse_scaling(kind: str, rope: Fields, original: int) -> RopeScaling | None:
    """The scaling called ``kind`` with the parameters in ``rope``, in Hugging Face's names.

    ``original`` is the context the model was trained with, unless ``rope`` says so itself.
    """
    original = rope.count("original_max_position_embeddings", original)
    if kind in ("default", "none"):
        return None
    if kind == "linear":
        return LinearScaling(rope.number("factor"))
    if kind == "llama3":
        low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
        if high <= low:
            raise rope.error("high_freq_factor", f"above low_freq_factor, which is {low}")
        return Llama3Scaling(rope.number("factor"), low, high, original)
    if kind == "yarn":
        return _yarn(rope, original)
    if kind in ("dynamic", "longrope", "su"):
        raise UserError(
            f"{rope.origin} is {kind!r}, which depends on the current length and would make a "
            "token's K/V change as the text grows; supported are linear, llama3 and yarn"
        )
    raise UserError(f"{rope.origin} is {kind!r}; supported are linear, llama3 and yarn")


def _yarn(rope: Fields, original: int) -> YarnScaling:
    factor = rope.number("factor")

    def magnitude(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0

    attention_factor = magnitude(1.0)
    if rope.values.get("mscale") and rope.values.get("mscale_all_dim"):
        attention_factor = magnitude(rope.number("mscale")) / magnitude(
            rope.number("mscale_all_dim")
        )
    return YarnScaling(
        factor=factor,
        original_max_position=original,
        attention_factor=rope.number("attention_factor", attention_factor),
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        truncate=rope.flag("truncate", True),
    )
