"""Tiny random checkpoints, made by transformers, that can be served in milliseconds."""

import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")

# More rows than the tokenizer has ids, as published models pad their embeddings.
VOCAB_SIZE = 384
TOKENIZER_SIZE = 352

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_CLASSES: dict[str, tuple[type[Any], type[Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}

_SPECIAL: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "mistral": {"sliding_window": None, "head_dim": 32},
    "qwen2": {},
    "qwen3": {"head_dim": 32, "tie_word_embeddings": True},
}


def tiny_config(architecture: str, **overrides: Any) -> Any:
    """The transformers config of a tiny model; ``overrides`` replace its fields."""
    fields = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "initializer_range": 0.1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    return _CLASSES[architecture][0](**(fields | _SPECIAL[architecture] | overrides))


def tiny_model(architecture: str, *, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """A float32 model with random weights, its norms and biases far from their neutral values."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: PreTrainedModel = _CLASSES[architecture][1](tiny_config(architecture, **overrides))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" in name:
                    parameter.uniform_(0.5, 1.5)
                elif name.endswith(".bias"):
                    parameter.normal_(std=0.3)
    return model.eval()


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of ``TOKENIZER_SIZE`` ids that can write any text, with a chat template."""
    words = ["the", "and", "model", "token", "tree", "return", "def", "print", "slot", "page"]
    draw = random.Random(0)
    text = [" ".join(draw.choices(words, k=12)) for _ in range(200)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENIZER_SIZE - 60,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text, trainer)
    tokenizer.add_tokens(
        [f"<extra_{i}>" for i in range(TOKENIZER_SIZE - tokenizer.get_vocab_size())]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )


def make_tiny(
    architecture: str, folder: Path, *, seed: int = 0, max_shard_size: str = "5GB", **overrides: Any
) -> PreTrainedModel:
    """Write a servable checkpoint into ``folder`` and return the model that was saved."""
    model = tiny_model(architecture, seed=seed, **overrides)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    tiny_tokenizer().save_pretrained(folder)
    return model
