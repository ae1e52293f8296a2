"""How the projects that publish EAGLE-3 drafters write config.json and name tensors.

- **SafeAILab** (SafeAILab/EAGLE, eagle/model/cnets.py) and **SpecForge** (sgl-project/SpecForge,
  specforge/modeling/draft/llama3_eagle.py): a flat config, the layer is called ``midlayer``.
- **speculators** (vllm-project/speculators, src/speculators/models/eagle3): the layer's config is
  nested in ``transformer_layer_config``, the layer is called ``layers.0``.
"""

from collections.abc import Mapping
from typing import Any

from slipstream.errors import UserError
from slipstream.models.config import ModelConfig
from slipstream.models.fields import Fields
from slipstream.speculation.eagle3.config import Eagle3Config

_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"

# Not wanted from a drafter's config: its class says nothing that the tensors do not, and its
# special tokens are the target's.
_IGNORED = ("architectures", "bos_token_id", "eos_token_id")


def read_config(values: Mapping[str, Any]) -> Eagle3Config:
    """The drafter described by the contents of a config.json, in any of the layouts.

    Raises ``UserError`` naming the field that is missing, wrong or not supported.
    """
    fields = Fields(values, "config.json")
    if (kind := values.get("speculators_model_type")) is None:
        # SafeAILab and SpecForge build a Llama layer without biases, whatever model_type says.
        layer = _layer({**values, "model_type": "llama", "attention_bias": False})
        return _config(fields, layer, fields.flag("norm_before_residual"))
    if kind != "eagle3":
        raise UserError(f"config.json describes a speculator of type {kind!r}, not 'eagle3'")
    nested = values.get("transformer_layer_config")
    if not isinstance(nested, dict):
        raise fields.error("transformer_layer_config", "an object")
    layer = _layer(nested)
    if layer.architecture != "llama":
        raise UserError(
            f"config.json describes a drafter made of a {layer.architecture} layer; "
            "only those made of a llama layer are supported"
        )
    # speculators itself means false where it is left out, vLLM (transformers_utils/configs/
    # speculators/algos.py) true; no published drafter should depend on that.
    if values.get("norm_before_residual") is None:
        raise fields.error("norm_before_residual", "true or false")
    return _config(fields, layer, fields.flag("norm_before_residual"))


def canonical_name(name: str) -> str:
    """A tensor's name in SpecForge's layout; vLLM renames the layer the other way round."""
    return "midlayer." + name.removeprefix("layers.0.") if name.startswith("layers.0.") else name


def _layer(values: Mapping[str, Any]) -> ModelConfig:
    """The drafter's own layer as a model of one layer."""
    layer = ModelConfig.from_hf({k: v for k, v in values.items() if k not in _IGNORED})
    if layer.num_layers != 1:
        raise UserError(
            f"config.json has num_hidden_layers = {layer.num_layers}; an EAGLE-3 drafter has 1"
        )
    return layer


def _config(fields: Fields, layer: ModelConfig, norm_before_residual: bool) -> Eagle3Config:
    return Eagle3Config(
        vocab_size=layer.vocab_size,
        # The whole vocabulary where it is left out: vLLM's llama_eagle3.py, SpecForge's auto.py.
        draft_vocab_size=fields.count("draft_vocab_size", layer.vocab_size),
        hidden_size=layer.hidden_size,
        target_hidden_size=fields.count("target_hidden_size", layer.hidden_size),
        intermediate_size=layer.intermediate_size,
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        head_dim=layer.head_dim,
        rms_norm_eps=layer.rms_norm_eps,
        rope_theta=layer.rope_theta,
        rope_scaling=layer.rope_scaling,
        max_position_embeddings=layer.max_position_embeddings,
        feature_layers=_feature_layers(fields),
        norm_before_residual=norm_before_residual,
        norm_before_fc=fields.flag("norm_before_fc"),
        fc_norm=fields.flag("fc_norm"),
        # False where it is left out: vLLM's and SGLang's llama_eagle3.py. SpecForge wrote true
        # into the config of drafters that it trained without, until its pull request 879.
        norm_output=fields.flag("norm_output"),
    )


def _feature_layers(fields: Fields) -> tuple[int, ...] | None:
    """The layers whose input makes up the feature; two conventions are in use.

    A list at the top level names those layers: speculators trains with it, vLLM captures what
    enters layer i (gpu_model_runner.py, llama.py). A list in ``eagle_config`` names the layers
    whose *output* is meant: SpecForge's defaults for it are 1, n//2 - 1, n - 4, and SGLang adds 1
    (set_eagle3_layers_to_capture in llama.py and qwen3.py). vLLM reads that list without adding 1.
    """
    ids = fields.values.get(_LAYER_IDS)
    if ids is not None:
        return _checked(fields, ids)
    eagle_config = fields.values.get("eagle_config") or {}
    if not isinstance(eagle_config, dict):
        raise fields.error("eagle_config", "an object")
    nested = Fields(eagle_config, "the eagle_config in config.json")
    if not nested.flag("use_aux_hidden_state", True):
        raise UserError(
            f"{nested.origin} has use_aux_hidden_state = false; only drafters that read several "
            "of the target's layers are supported"
        )
    ids = eagle_config.get(_LAYER_IDS)
    return None if ids is None else tuple(i + 1 for i in _checked(nested, ids))


def _checked(fields: Fields, ids: object) -> tuple[int, ...]:
    whole = isinstance(ids, list) and all(type(i) is int and 0 <= i < 2**20 for i in ids)
    if not isinstance(ids, list) or not whole or not ids or len(set(ids)) < len(ids):
        raise fields.error(_LAYER_IDS, "a list of different layers of the target")
    return tuple(ids)
