"""ModelConfig from config.json in both of its styles, and what is refused."""

from typing import Any

import pytest

from slipstream.errors import UserError
from slipstream.models.config import LinearScaling, Llama3Scaling, ModelConfig, YarnScaling
from tests.models.tiny import ARCHITECTURES, tiny_config

OLD_STYLE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}


def test_reads_the_older_style() -> None:
    config = ModelConfig.from_hf(OLD_STYLE)
    assert config.architecture == "llama"
    assert config.rope_theta == 500000.0
    assert config.head_dim == 16
    assert (config.num_heads, config.num_kv_heads) == (4, 2)
    assert not config.tie_word_embeddings
    assert config.rope_scaling is None


def test_both_styles_of_rotary_parameters_agree() -> None:
    old = ModelConfig.from_hf(OLD_STYLE | {"rope_scaling": LLAMA3})
    new = {k: v for k, v in OLD_STYLE.items() if k != "rope_theta"}
    new["rope_parameters"] = LLAMA3 | {"rope_theta": 500000.0}
    assert ModelConfig.from_hf(new) == old
    assert old.rope_scaling == Llama3Scaling(8.0, 1.0, 4.0, 512)


def test_reads_linear_and_yarn_scalings() -> None:
    linear = ModelConfig.from_hf(OLD_STYLE | {"rope_scaling": {"type": "linear", "factor": 2.0}})
    assert linear.rope_scaling == LinearScaling(2.0)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    scaling = ModelConfig.from_hf(OLD_STYLE | {"rope_scaling": yarn}).rope_scaling
    assert isinstance(scaling, YarnScaling)
    assert scaling.attention_factor == pytest.approx(1.1386294)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_reads_what_transformers_writes(architecture: str) -> None:
    theirs = tiny_config(architecture)
    config = ModelConfig.from_hf(theirs.to_dict())
    assert config.architecture == ("llama" if architecture == "mistral" else architecture)
    assert config.head_dim == (16 if architecture in ("llama", "qwen2") else 32)
    assert config.qkv_bias == (architecture == "qwen2")
    assert config.qk_norm == (architecture == "qwen3")
    assert not config.o_bias
    assert config.tie_word_embeddings == theirs.tie_word_embeddings
    assert config.max_position_embeddings == 2048


def test_attention_and_mlp_biases_of_llama() -> None:
    config = ModelConfig.from_hf(OLD_STYLE | {"attention_bias": True, "mlp_bias": True})
    assert config.qkv_bias
    assert config.o_bias
    assert config.mlp_bias


def test_end_tokens_of_both_files_are_joined() -> None:
    config = ModelConfig.from_hf(OLD_STYLE, {"eos_token_id": [7, 2, 9]})
    assert config.eos_token_ids == (2, 7, 9)


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"model_type": "mistral", "sliding_window": 1024}, 1024),
        ({"model_type": "mistral", "sliding_window": None}, 4096),
        ({"model_type": "qwen2", "sliding_window": 1024, "use_sliding_window": False}, 4096),
        ({"model_type": "qwen2", "sliding_window": 1024, "max_window_layers": 1}, 4096),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 1024,
                "use_sliding_window": True,
                "max_window_layers": 1,
            },
            1024,
        ),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 1024,
                "use_sliding_window": True,
                "max_window_layers": 2,
            },
            4096,
        ),
    ],
)
def test_context_ends_where_a_sliding_window_would_begin(
    fields: dict[str, Any], limit: int
) -> None:
    assert ModelConfig.from_hf(OLD_STYLE | fields).max_position_embeddings == limit


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "gpt2"}, "architecture 'gpt2'; supported are llama, mistral"),
        ({"model_type": None}, "no field 'model_type'"),
        ({"hidden_size": None}, "no field 'hidden_size'"),
        ({"hidden_size": "64"}, "hidden_size = '64'; it should be a positive integer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers = 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers = True"),
        ({"rms_norm_eps": -1}, "rms_norm_eps = -1; it should be a positive number"),
        ({"rope_theta": 1.0}, "rotary base 1.0"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot share 3"),
        ({"head_dim": 15}, "head size 15 is odd"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"eos_token_id": 5000}, "token id 5000 is outside"),
        ({"eos_token_id": "</s>"}, "a token id or a list of them"),
        (
            {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
            "depends on the current length",
        ),
        ({"rope_scaling": {"type": "longrope"}}, "depends on the current length"),
        ({"rope_scaling": {"type": "mrope"}}, "'mrope'; supported are"),
        ({"rope_scaling": {"type": "linear"}}, "no field 'factor'"),
        ({"rope_scaling": "linear"}, "it should be an object"),
        ({"partial_rotary_factor": 0.5}, "only part of each head"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised safetensors"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "only ...ForCausalLM"),
    ],
)
def test_refuses_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        ModelConfig.from_hf(OLD_STYLE | fields)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
