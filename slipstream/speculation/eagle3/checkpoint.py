"""EAGLE-3 drafters on disk: reading those of several projects, writing SpecForge's layout."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import UserError
from slipstream.kernels.weight import Weight
from slipstream.models.checkpoint import Shape
from slipstream.models.config import ModelConfig
from slipstream.models.export import hf_config, make_empty, write_json
from slipstream.models.folder_checkpoint import weight_files
from slipstream.models.json_file import read_json_object
from slipstream.models.safetensors_file import Integers, write_bfloat16
from slipstream.speculation.eagle3.config import Eagle3Config
from slipstream.speculation.eagle3.layouts import canonical_name, read_config

_PICKLE = "pytorch_model.bin"

# Offsets from draft to target ids, and which target tokens are drafted; the second follows from
# the first and is read by no engine.
_TO_TARGET, _IS_DRAFTED = "d2t", "t2d"

# Buffers of old checkpoints, and the target's own head and norm, which speculators trains with.
_IGNORED = (_IS_DRAFTED, "verifier_lm_head.weight", "verifier_norm.weight")
_IGNORED_SUFFIX = ".rotary_emb.inv_freq"


class _TensorFile(Protocol):
    @property
    def shapes(self) -> Mapping[str, Shape]: ...
    def weight(self, name: str) -> Weight: ...
    def integers(self, name: str) -> NDArray[np.int64]: ...


class Eagle3Checkpoint:
    """A drafter in a folder. Opening it reads headers only, except of a pickle.

    ``shapes`` has every tensor the drafter computes with, under SpecForge's names;
    ``embed_tokens.weight`` is often not stored, then the target's is meant. ``target_ids`` is int32
    ``[draft_vocab_size]``, the target's token id of each of the drafter's own.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        try:
            self.config = read_config(read_json_object(folder / "config.json"))
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        self._origin = str(folder)
        self._places = self._find_tensors(_tensor_files(folder))
        found = {name: file.shapes[stored] for name, (file, stored) in self._places.items()}
        self.shapes = _checked_shapes(found, self.config, self._origin)
        self.target_ids = self._read_target_ids()

    def weight(self, name: str) -> Weight:
        """The tensor as it is stored; most often a view of its file."""
        file, stored = self._places[name]
        return file.weight(stored)

    def _find_tensors(self, files: list[_TensorFile]) -> dict[str, tuple[_TensorFile, str]]:
        places: dict[str, tuple[_TensorFile, str]] = {}
        for file in files:
            for stored in file.shapes:
                name = canonical_name(stored)
                if name in places:
                    raise UserError(f"{self._origin} holds the tensor {name} twice")
                places[name] = file, stored
        return places

    def _read_target_ids(self) -> NDArray[np.int32]:
        """Target id i + d2t[i] for draft id i, as in all of SafeAILab's cnets.py, SGLang's and
        vLLM's llama_eagle3.py. Without d2t the two vocabularies are one."""
        draft, vocab = self.config.draft_vocab_size, self.config.vocab_size
        if _TO_TARGET not in self._places:
            if draft != vocab:
                raise UserError(
                    f"{self._origin} has a vocabulary of its own, {draft} of {vocab} tokens, but "
                    "no tensor d2t that says which"
                )
            return np.arange(vocab, dtype=np.int32)
        file, stored = self._places[_TO_TARGET]
        offsets = file.integers(stored)
        if offsets.shape != (draft,):
            raise UserError(
                f"{self._origin} has d2t with the shape {offsets.shape}; it should be {(draft,)}"
            )
        ids = offsets + np.arange(draft)
        if outside := [int(i) for i in ids[(ids < 0) | (ids >= vocab)][:1]]:
            raise UserError(
                f"{self._origin} drafts the token {outside[0]} (in d2t), which is outside the "
                f"target's vocabulary of {vocab} tokens"
            )
        if len(np.unique(ids)) < draft:
            raise UserError(f"{self._origin} drafts the same token under two ids (in d2t)")
        return ids.astype(np.int32)


def open_drafter(name: str) -> Eagle3Checkpoint:
    """Open the drafter in a local folder, or the one with the Hugging Face name ``owner/name``.

    Only the latter may use the network, and only if no such folder exists. Every tensor the
    drafter needs is known to be there with the right shape afterwards. Raises ``UserError``.
    """
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            return Eagle3Checkpoint(path, path.resolve().name)
        exists = path.exists()
    except (OSError, RuntimeError) as error:  # no permission, a name too long, an unknown ~user
        raise UserError(f"cannot look for a drafter at {name[:200]!r}: {error}") from None
    if exists or name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise UserError(
            f"there is no drafter at {name!r}; it should be a folder, or a Hugging Face name like "
            "owner/name"
        )
    from slipstream.models.hub import fetch_repository

    folder = fetch_repository(name)
    if not any(folder.glob("*.safetensors")):
        folder = fetch_repository(name, ("config.json", _PICKLE))
    return Eagle3Checkpoint(folder, name)


def check_fits(drafter: Eagle3Config, target: ModelConfig, name: str) -> None:
    """Raises ``UserError`` unless the drafter called ``name`` was made for a target like this."""
    differences = []
    if drafter.target_hidden_size != target.hidden_size:
        differences.append(
            f"a hidden size of {drafter.target_hidden_size}, here it is {target.hidden_size}"
        )
    if drafter.vocab_size != target.vocab_size:
        differences.append(
            f"a vocabulary of {drafter.vocab_size} tokens, here it is {target.vocab_size}"
        )
    layers = drafter.layers_for(target.num_layers)
    if not all(0 <= layer <= target.num_layers for layer in layers):
        differences.append(
            f"what enters the layers {', '.join(map(str, layers))}, here there are "
            f"{target.num_layers} layers"
        )
    if differences:
        raise UserError(
            f"the drafter {name} does not fit this model, it needs {'; '.join(differences)}"
        )


def expected_tensors(config: Eagle3Config) -> Iterator[tuple[str, Shape]]:
    """Name and shape of every tensor that a drafter computes with, except its embedding."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    features = config.features * config.target_hidden_size
    yield "fc.weight", (hidden, features)
    if config.norm_before_fc:
        yield "input_norm.weight", (features,)
    if config.fc_norm:
        for i in range(config.features):
            yield f"fc_norm.{i}.weight", (config.target_hidden_size,)
    # Attention takes in the normed embedding and the normed feature, in this order.
    yield "midlayer.input_layernorm.weight", (hidden,)  # of the embedding
    yield "midlayer.hidden_norm.weight", (hidden,)  # of the feature
    yield "midlayer.self_attn.q_proj.weight", (q_size, 2 * hidden)
    yield "midlayer.self_attn.k_proj.weight", (kv_size, 2 * hidden)
    yield "midlayer.self_attn.v_proj.weight", (kv_size, 2 * hidden)
    yield "midlayer.self_attn.o_proj.weight", (hidden, q_size)
    yield "midlayer.post_attention_layernorm.weight", (hidden,)
    yield "midlayer.mlp.gate_proj.weight", (inner, hidden)
    yield "midlayer.mlp.up_proj.weight", (inner, hidden)
    yield "midlayer.mlp.down_proj.weight", (hidden, inner)
    yield "norm.weight", (hidden,)
    yield "lm_head.weight", (config.draft_vocab_size, hidden)


def write_drafter(
    folder: Path,
    config: Eagle3Config,
    tensors: Mapping[str, NDArray[np.float32]],
    target_ids: NDArray[np.int32],
    extra: Mapping[str, object] | None = None,
) -> None:
    """Write a drafter in SpecForge's layout, which vLLM, SGLang and llama.cpp read, in bf16.

    ``tensors`` holds those of ``expected_tensors`` and, if the drafter is to have its own,
    ``embed_tokens.weight``. ``target_ids`` ascends, as the mask ``t2d`` has no other order.
    ``extra`` fields are added to config.json. Raises ``UserError`` if the folder already holds
    something, or if a tensor is missing or has the wrong shape.
    """
    shapes = _checked_shapes({n: t.shape for n, t in tensors.items()}, config, "this drafter")
    if target_ids.shape != (config.draft_vocab_size,) or not (
        (np.diff(target_ids) > 0).all() and 0 <= target_ids[0] <= target_ids[-1] < config.vocab_size
    ):
        raise UserError(
            f"a draft vocabulary should be {config.draft_vocab_size} ascending token ids below "
            f"{config.vocab_size}"
        )
    make_empty(folder)
    drafted = np.zeros(config.vocab_size, dtype=np.bool_)
    drafted[target_ids] = True
    integers: dict[str, Integers] = {
        _TO_TARGET: target_ids.astype(np.int64) - np.arange(config.draft_vocab_size),
        _IS_DRAFTED: drafted,
    }
    write_bfloat16(folder / "model.safetensors", shapes, tensors.__getitem__, integers)
    write_json(folder / "config.json", {**_specforge_config(config), **(extra or {})})


def _specforge_config(config: Eagle3Config) -> dict[str, object]:
    layer = ModelConfig(
        architecture="llama",
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=1,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=config.rope_theta,
        rope_scaling=config.rope_scaling,
        max_position_embeddings=config.max_position_embeddings,
        tie_word_embeddings=False,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        bos_token_id=None,
        eos_token_ids=(),
    )
    fields: dict[str, object] = hf_config(layer)
    fields["architectures"] = ["LlamaForCausalLMEagle3"]
    fields["draft_vocab_size"] = config.draft_vocab_size
    if config.target_hidden_size != config.hidden_size:
        fields["target_hidden_size"] = config.target_hidden_size
    if config.feature_layers is not None:
        fields["eagle_aux_hidden_state_layer_ids"] = list(config.feature_layers)
    for switch in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"):
        if getattr(config, switch):
            fields[switch] = True
    return fields


def _tensor_files(folder: Path) -> list[_TensorFile]:
    if (folder / _PICKLE).exists() and not any(folder.glob("*.safetensors")):
        from slipstream.speculation.eagle3.pickle_file import PickleFile

        return [PickleFile(folder / _PICKLE)]
    return [*weight_files(folder, (_TO_TARGET, _IS_DRAFTED))]


def _checked_shapes(
    found: Mapping[str, Shape], config: Eagle3Config, origin: str
) -> dict[str, Shape]:
    """The shapes of the tensors that a drafter computes with."""
    wanted = dict(expected_tensors(config))
    embedding = "embed_tokens.weight"
    # The target's cannot stand in for it where it is of another width.
    if embedding in found or config.hidden_size != config.target_hidden_size:
        wanted[embedding] = (config.vocab_size, config.hidden_size)
    for name, shape in wanted.items():
        if name not in found:
            raise UserError(
                f"{origin} lacks the tensor {name}, which an EAGLE-3 drafter of its configuration "
                f"has with the shape {shape}"
            )
        if found[name] != shape:
            raise UserError(
                f"{origin} has {name} with the shape {found[name]}; it should be {shape}"
            )
    # A tensor nobody asked for belongs to another kind of drafter, which guesses differently.
    for name in sorted(found.keys() - wanted.keys()):
        if name not in (_TO_TARGET, *_IGNORED) and not name.endswith(_IGNORED_SUFFIX):
            raise UserError(
                f"{origin} holds the tensor {name}, which an EAGLE-3 drafter of its configuration "
                "does not have"
            )
    return wanted
