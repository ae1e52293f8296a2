"""Opening a model by name, whatever its format."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from slipstream.errors import UserError
from slipstream.kernels.weight import Weight
from slipstream.models.config import ModelConfig
from slipstream.models.tokenizer_parts import TokenizerParts

Shape = tuple[int, ...]

# In old checkpoints, and derived from the configuration.
_IGNORED_SUFFIXES = (".rotary_emb.inv_freq",)


class Checkpoint(Protocol):
    """A model on disk: its configuration, weights under Hugging Face names, and tokenizer.

    Opening one reads headers only. ``shapes`` holds what is stored, by name; a tied output head is
    not stored, see ``config.tie_word_embeddings``.
    """

    @property
    def name(self) -> str:
        """What the model is called, for people."""

    @property
    def config(self) -> ModelConfig:
        """The model's configuration."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Shape of every stored tensor."""

    def weight(self, name: str) -> Weight:
        """The tensor as it is stored; most often a view of the file."""

    def tokenizer_parts(self) -> TokenizerParts:
        """What a tokenizer is built from. Raises ``UserError`` if it is missing or broken."""


def open_checkpoint(name: str) -> Checkpoint:
    """Open ``default``, a local folder, a ``.gguf`` file, or a Hugging Face name ``owner/name``.

    Only the last may use the network, and only if no such path exists. Every tensor the model needs
    is known to be there with the right shape afterwards. Raises ``UserError``.
    """
    from slipstream.models.folder_checkpoint import FolderCheckpoint
    from slipstream.models.gguf_checkpoint import GGUFCheckpoint

    path, title = _locate(name)
    checkpoint: Checkpoint
    if path.is_dir():
        checkpoint = FolderCheckpoint(path, title)
    else:
        _refuse_pickles(path)
        checkpoint = GGUFCheckpoint(path, title)
    _check_tensors(checkpoint, str(path))
    return checkpoint


def expected_tensors(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    """Name and shape of every tensor that a model of this configuration computes with."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield "model.embed_tokens.weight", (config.vocab_size, hidden)
    yield "model.norm.weight", (hidden,)
    if not config.tie_word_embeddings:
        yield "lm_head.weight", (config.vocab_size, hidden)
    linears = {
        "self_attn.q_proj": (q_size, hidden, config.qkv_bias),
        "self_attn.k_proj": (kv_size, hidden, config.qkv_bias),
        "self_attn.v_proj": (kv_size, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, q_size, config.o_bias),
        "mlp.gate_proj": (inner, hidden, config.mlp_bias),
        "mlp.up_proj": (inner, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, inner, config.mlp_bias),
    }
    for layer in (f"model.layers.{i}." for i in range(config.num_layers)):
        yield layer + "input_layernorm.weight", (hidden,)
        yield layer + "post_attention_layernorm.weight", (hidden,)
        for linear, (rows, columns, bias) in linears.items():
            yield layer + linear + ".weight", (rows, columns)
            if bias:
                yield layer + linear + ".bias", (rows,)
        if config.qk_norm:
            yield layer + "self_attn.q_norm.weight", (config.head_dim,)
            yield layer + "self_attn.k_norm.weight", (config.head_dim,)


def _locate(name: str) -> tuple[Path, str]:
    """The path behind ``name``, and what to call the model."""
    if name == "default":
        from slipstream.models.default_model import TITLE, fetch_default_model

        return fetch_default_model(), TITLE
    try:
        path = Path(name).expanduser()
        if path.exists():
            return path, path.resolve().name.removesuffix(".gguf")
    except (OSError, RuntimeError) as error:  # no permission, a name too long, an unknown ~user
        raise UserError(f"cannot look for a model at {name[:200]!r}: {error}") from None
    if name.count("/") == 1 and not name.startswith((".", "/", "~")) and not name.endswith(".gguf"):
        from slipstream.models.hub import fetch_repository

        return fetch_repository(name), name
    raise UserError(
        f"there is no model at {name!r}; it should be 'default', a folder, a .gguf file, "
        "or a Hugging Face name like owner/name"
    )


def _refuse_pickles(path: Path) -> None:
    if path.suffix in (".bin", ".pt", ".pth", ".ckpt"):
        raise UserError(
            f"{path} is a pickle, which can run code and is never opened; convert it to safetensors"
        )
    if path.suffix == ".safetensors":
        raise UserError(
            f"{path} is one file of a model; give the folder that holds its config.json"
        )


def _check_tensors(checkpoint: Checkpoint, origin: str) -> None:
    found = checkpoint.shapes
    wanted = set()
    for name, shape in expected_tensors(checkpoint.config):
        wanted.add(name)
        if name not in found:
            raise UserError(
                f"{origin} lacks the tensor {name}, which should have the shape {shape}"
            )
        if found[name] != shape:
            raise UserError(
                f"{origin} has {name} with the shape {found[name]}; it should be {shape}"
            )
    # A tensor nobody asked for is part of another architecture: leaving it out gives wrong answers.
    for name in sorted(found.keys() - wanted):
        if name != "lm_head.weight" and not name.endswith(_IGNORED_SUFFIXES):
            raise UserError(
                f"{origin} holds the tensor {name}, which a {checkpoint.config.architecture} model "
                "of its configuration does not have"
            )
