"""From options to a running engine: kernels, weights, and how much K/V memory they leave."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.engine.costs import cost_key, machine_of
from slipstream.engine.engine import Engine
from slipstream.engine.messages import Ready
from slipstream.engine.options import EngineOptions
from slipstream.errors import UserError
from slipstream.kernels import Kernels, choose_kernels
from slipstream.machine import available_memory, machine_memory
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.models.checkpoint import Checkpoint, open_checkpoint
from slipstream.models.config import ModelConfig
from slipstream.models.quantize import QuantizedCheckpoint
from slipstream.models.transformer import Transformer, Weights, page_bytes
from slipstream.speculation.drafter import Drafter
from slipstream.speculation.eagle3.checkpoint import Eagle3Checkpoint, check_fits, open_drafter
from slipstream.speculation.eagle3.config import Eagle3Config
from slipstream.speculation.eagle3.drafter import Eagle3Drafter, new_rings
from slipstream.speculation.eagle3.network import (
    DrafterNetwork,
    DrafterWeights,
    ring_slot_bytes,
)
from slipstream.speculation.eagle3.rings import Rings
from slipstream.speculation.ngram import NgramDrafter
from slipstream.speculation.policy.adaptive import AdaptivePolicy
from slipstream.speculation.policy.cost_model import CostModel
from slipstream.speculation.policy.cost_store import CostStore

# Trained for the default model; see its model card.
SHIPPED_DRAFTER = Path(__file__).parent.parent / "drafters" / "smollm2-135m-instruct-eagle3"

MOST_DEFAULT_KV_MEMORY = 4 << 30
MOST_RINGS_SHARE = 8  # the drafter's keys and values take at most one part of so many
MOST_LOGITS_MEMORY = 1 << 30  # of one step's draft rows, in bytes


@dataclass(frozen=True)
class Loaded:
    """What an engine is made of."""

    model: Transformer
    pages: int
    drafter: Drafter
    costs: CostStore
    kernels: Kernels
    vocab_size: int

    @property
    def max_draft_rows(self) -> int:
        """How many draft nodes one step may have."""
        return MOST_LOGITS_MEMORY // (4 * self.vocab_size)

    def engine(self, options: EngineOptions) -> Engine:
        """The engine, with no request yet."""
        return Engine(
            self.model,
            self.drafter,
            pages=self.pages,
            max_running_requests=options.max_running_requests,
            max_step_rows=options.max_step_rows,
            max_draft_rows=self.max_draft_rows,
            prefix_cache=options.prefix_cache,
            speculation=options.speculation,
            policy=AdaptivePolicy(self.costs.costs, self.max_draft_rows),
            lookup=None if isinstance(self.drafter, NgramDrafter) else NgramDrafter(2, 4),
        )


def load_engine(options: EngineOptions) -> tuple[Engine, Ready]:
    """Load the model and set up the engine; raises ``UserError`` for what cannot be served."""
    loaded = load(options)
    return loaded.engine(options), ready(loaded, options)


def ready(loaded: Loaded, options: EngineOptions) -> Ready:
    """What there is to say once an engine can serve."""
    return Ready(loaded.kernels.name, loaded.model.max_model_len, options.max_running_requests)


def load(options: EngineOptions) -> Loaded:
    """Load the model, the drafter, and what is known of their costs. Raises ``UserError``."""
    checkpoint = open_target(options)
    eagle3 = open_drafter_for(options, checkpoint)
    kernels = choose_kernels(options.threads)
    memory = kv_memory_of(options)
    drafter: Drafter = NgramDrafter()
    if eagle3 is None:
        model, pages = load_target(options, checkpoint, kernels, memory)
    else:
        rings = fit_rings(eagle3.config, kernels, options.max_running_requests, memory)
        memory -= rings.slots * ring_slot_bytes(eagle3.config, kernels)
        layers = eagle3.config.layers_for(checkpoint.config.num_layers)
        model, pages = load_target(options, checkpoint, kernels, memory, layers)
        drafter = load_drafter(eagle3, model, kernels, rings)
    costs = CostModel(machine_of(checkpoint, eagle3, kernels, options))
    store = CostStore(cost_key(checkpoint, eagle3, kernels, options), costs)
    store.load()
    return Loaded(model, pages, drafter, store, kernels, checkpoint.config.vocab_size)


def open_drafter_for(options: EngineOptions, target: Checkpoint) -> Eagle3Checkpoint | None:
    """The EAGLE-3 drafter to use, if any, after checking that it fits the target."""
    name = options.drafter
    if name == "ngram":
        return None
    if name == "auto":
        if options.model != "default":
            return None
        name = str(SHIPPED_DRAFTER)
    drafter = open_drafter(name)
    check_fits(drafter.config, target.config, drafter.name)
    return drafter


def load_drafter(
    checkpoint: Eagle3Checkpoint, model: Transformer, kernels: Kernels, rings: Rings
) -> Eagle3Drafter:
    """Pack the drafter's weights and set the memory of its rings apart."""
    network = DrafterNetwork(
        checkpoint,
        DrafterWeights.load(checkpoint, kernels, model.embedding),
        kernels,
        model.features,
        slots=rings.slots,
        max_model_len=model.max_model_len,
    )
    return Eagle3Drafter(network, rings)


def fit_rings(config: Eagle3Config, kernels: Kernels, requests: int, kv_memory: int) -> Rings:
    """A ring for each request, as far as a small part of the K/V memory holds them, but one."""
    one = new_rings(1).slots * ring_slot_bytes(config, kernels)
    return new_rings(max(1, min(requests, kv_memory // MOST_RINGS_SHARE // one)))


def open_target(options: EngineOptions) -> Checkpoint:
    """The target's checkpoint, quantised if asked."""
    checkpoint = open_checkpoint(options.model)
    if options.quantization != "none":
        return QuantizedCheckpoint(checkpoint, options.quantization)
    return checkpoint


def load_target(
    options: EngineOptions,
    checkpoint: Checkpoint,
    kernels: Kernels,
    kv_memory: int,
    feature_layers: Sequence[int] = (),
) -> tuple[Transformer, int]:
    """The model with memory for keys, values and the features of these layers, in so many pages."""
    config = checkpoint.config
    page = page_bytes(config, kernels, options.kv_dtype, len(feature_layers))
    max_model_len = _max_model_len(config, options.max_model_len, kv_memory, page)
    pages = min(
        kv_memory // page,
        # More than every request at its longest, with a page of draft slots, is of no use.
        options.max_running_requests * (pages_for(max_model_len) + 1),
    )
    if pages * page > machine_memory():
        raise UserError(
            f"K/V memory of {pages * page} bytes is more than the {machine_memory()} bytes of "
            "memory that this machine has"
        )
    model = Transformer(
        config,
        Weights.load(checkpoint, kernels),
        kernels,
        pages=pages,
        max_model_len=max_model_len,
        kv_dtype=options.kv_dtype,
        feature_layers=feature_layers,
    )
    return model, pages


def _max_model_len(config: ModelConfig, asked: int | None, kv_memory: int, page: int) -> int:
    """Tokens of one request, as asked or as many as the model and the K/V memory allow."""
    held = kv_memory // page * PAGE_SIZE
    if held == 0:
        raise UserError(
            f"K/V memory of {kv_memory} bytes holds no page of {PAGE_SIZE} tokens; "
            f"this model needs at least {page} bytes"
        )
    if asked is None:
        return min(config.max_position_embeddings, held)
    if asked > config.max_position_embeddings:
        raise UserError(
            f"max-model-len {asked} is beyond the model's own limit of "
            f"{config.max_position_embeddings} tokens"
        )
    if asked > held:
        raise UserError(
            f"max-model-len {asked} does not fit the K/V memory of {kv_memory} bytes, which holds "
            f"{held} tokens; it needs {pages_for(asked) * page} bytes"
        )
    return asked


def kv_memory_of(options: EngineOptions) -> int:
    """As asked, or a quarter of the memory that is available now, at most 4 GiB."""
    return options.kv_memory or min(available_memory() // 4, MOST_DEFAULT_KV_MEMORY)
