"""What a model's own numbers let expect of a step's cost, before anything is measured."""

import math
from collections.abc import Mapping

from slipstream.engine.options import EngineOptions
from slipstream.kernels import Kernels
from slipstream.machine import cores, cpu_model
from slipstream.models.checkpoint import Checkpoint, Shape
from slipstream.speculation.eagle3.checkpoint import Eagle3Checkpoint
from slipstream.speculation.policy.cost_model import Machine
from slipstream.speculation.policy.cost_store import CostKey

# Of a parameter, as kernels keep it packed; every other kind becomes bfloat16.
_BYTES = {"q4_0": 18 / 32, "q4_1": 20 / 32, "q8_0": 34 / 32}
_EMBEDDING = "model.embed_tokens.weight"
_HEAD = "lm_head.weight"
_SMALL_MATRIX = "model.layers.0.self_attn.k_proj.weight"  # quick to read, whatever the format


def machine_of(
    target: Checkpoint, drafter: Eagle3Checkpoint | None, kernels: Kernels, options: EngineOptions
) -> Machine:
    """The first guess: bytes and operations of the matrices that a pass computes with."""
    config = target.config
    layers, head = _matrices(target)
    read = layers * _bytes(target.weight(_SMALL_MATRIX).kind)
    # Rounding leaves the head at 8 bits at least; it is too large to be read just for its kind.
    read += head * _bytes("q8_0" if options.quantization != "none" else _head_kind(target))
    layer, choice = (0, 0) if drafter is None else _drafter_matrices(drafter)
    return Machine(
        target_bytes=read,
        target_operations=2 * (layers + head),
        without_logits=layers / (layers + head),
        drafter_bytes=layer * _bytes("q4_1") + choice * _bytes("q8_0"),
        drafter_operations=2 * (layer + choice),
        context_bytes=kernels.slot_bytes(
            config.num_layers, config.num_kv_heads, config.head_dim, options.kv_dtype
        ),
        context_operations=4 * config.num_layers * config.num_heads * config.head_dim,
    )


def cost_key(
    target: Checkpoint, drafter: Eagle3Checkpoint | None, kernels: Kernels, options: EngineOptions
) -> CostKey:
    """Whose costs these are."""
    return CostKey(
        model=target.name,
        parameters=sum(_matrices(target)),
        quantization=options.quantization,
        kernels=kernels.name,
        threads=options.threads or cores(),
        machine=cpu_model(),
        drafter="ngram" if drafter is None else drafter.name,
        kv_dtype=options.kv_dtype,
    )


def _matrices(target: Checkpoint) -> tuple[int, int]:
    """Parameters of the layers' matrices, and of the output head."""
    layers = _parameters(target.shapes, but=_HEAD) - math.prod(target.shapes[_EMBEDDING])
    return layers, math.prod(target.shapes[_head(target)])


def _drafter_matrices(drafter: Eagle3Checkpoint) -> tuple[int, int]:
    """Parameters of the matrices of its layer, and of its output head."""
    layer = {name: shape for name, shape in drafter.shapes.items() if name != _HEAD}
    return _parameters(layer, but="embed_tokens.weight"), math.prod(drafter.shapes[_HEAD])


def _parameters(shapes: Mapping[str, Shape], but: str) -> int:
    """Of all matrices but one."""
    return sum(math.prod(shape) for name, shape in shapes.items() if len(shape) > 1 and name != but)


def _head(target: Checkpoint) -> str:
    return _EMBEDDING if target.config.tie_word_embeddings else _HEAD


def _head_kind(target: Checkpoint) -> str:
    return target.weight(_head(target)).kind


def _bytes(kind: str) -> float:
    return _BYTES.get(kind, 2.0)
