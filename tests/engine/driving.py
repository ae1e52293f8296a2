"""Driving an engine in the test's own process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from pathlib import Path

import msgspec

from slipstream.engine.engine import MOST_DRAFT_ROWS, Engine
from slipstream.engine.load import load_drafter
from slipstream.engine.messages import Submit, TokenLogprobs
from slipstream.engine.params import SamplingParams, Speculation, TreeShape
from slipstream.kernels import Kernels, KVDtype
from slipstream.memory.pool import PAGE_SIZE
from slipstream.models.checkpoint import open_checkpoint
from slipstream.models.config import ModelConfig
from slipstream.models.transformer import Transformer, Weights
from slipstream.speculation.eagle3.checkpoint import open_drafter
from slipstream.speculation.eagle3.drafter import new_rings
from slipstream.speculation.ngram import NgramDrafter
from slipstream.speculation.policy.adaptive import AdaptivePolicy
from slipstream.speculation.policy.cost_model import CostModel, Machine
from tests import kernel_sets


@dataclass
class Output:
    """What one request emitted, with the log probabilities that show the very bits."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish: str | None = None
    cached_tokens: int = 0


@cache
def load_weights(
    folder: str, kernel_set: str = kernel_sets.CHOSEN
) -> tuple[ModelConfig, Weights, Kernels]:
    """The model in ``folder``, packed once for all engines of the test run."""
    # Tiny products gain nothing from a second thread, and tests run beside other programs.
    checkpoint, kernels = open_checkpoint(folder), kernel_sets.make(kernel_set, threads=1)
    return checkpoint.config, Weights.load(checkpoint, kernels), kernels


class FreeRows(CostModel):
    """Rows that cost next to nothing, whatever is measured: everything is worth a try."""

    def __init__(self) -> None:
        super().__init__(Machine(target_operations=1.0, drafter_bytes=1.0))

    def settle(self) -> None:
        """Learn nothing."""


def start_engine(
    folder: Path | str,
    *,
    pages: int = 256,
    max_running_requests: int = 64,
    max_step_rows: int = 256,
    prefix_cache: bool = False,
    speculation: TreeShape | None = None,
    kernel_set: str = kernel_sets.CHOSEN,
    kv_dtype: KVDtype = "auto",
    drafter: Path | None = None,
    rings: int | None = None,
    costs: CostModel | None = None,
    max_draft_rows: int = MOST_DRAFT_ROWS,
) -> Engine:
    """An engine on the model in ``folder`` with exactly so many pages.

    ``drafter`` is the folder of an EAGLE-3 drafter; without one, prompt lookup drafts. It has a
    ring for each running request, unless ``rings`` says how many, and prompt lookup beside it.
    Speculation adapts, where requests ask for it, to ``costs``.
    """
    config, weights, kernels = load_weights(str(folder), kernel_set)
    eagle3 = None if drafter is None else open_drafter(str(drafter))
    model = Transformer(
        config,
        weights,
        kernels,
        pages=pages,
        max_model_len=min(config.max_position_embeddings, pages * PAGE_SIZE),
        kv_dtype=kv_dtype,
        feature_layers=eagle3.config.layers_for(config.num_layers) if eagle3 else (),
    )
    return Engine(
        model,
        load_drafter(eagle3, model, kernels, new_rings(rings or max_running_requests))
        if eagle3
        else NgramDrafter(),
        pages=pages,
        max_running_requests=max_running_requests,
        max_step_rows=max_step_rows,
        max_draft_rows=max_draft_rows,
        prefix_cache=prefix_cache,
        speculation=Speculation("fixed", speculation) if speculation else Speculation("off"),
        policy=OftenResting(costs or CostModel(Machine()), max_draft_rows),
        lookup=NgramDrafter(2, 4) if eagle3 else None,
    )


class OftenResting(AdaptivePolicy):
    """Rests in two steps of eight. By the clock it would rest in most of them, as the tests' models
    decode in less time than deciding takes."""

    asked = 0

    def rests(self, requests: int) -> bool:
        self.asked += 1
        self._rests_until = inf if self.asked % 8 < 2 else 0.0
        return super().rests(requests)


def drive(
    engine: Engine,
    submits: Sequence[Submit],
    arrivals: Mapping[int, int] | None = None,
    cancels: Mapping[int, int] | None = None,
) -> dict[int, Output]:
    """Step until nothing is left; ``arrivals`` and ``cancels`` give steps by request id."""
    arrivals, cancels = arrivals or {}, cancels or {}
    waiting = sorted(submits, key=lambda submit: arrivals.get(submit.id, 0))
    outputs = {submit.id: Output() for submit in submits}
    step = 0
    while waiting or engine.busy:
        while waiting and arrivals.get(waiting[0].id, 0) <= step:
            engine.submit(waiting.pop(0))
        for id, when in cancels.items():
            if when == step:
                engine.cancel(id)
        if engine.busy:
            for delta in engine.step():
                output = outputs[delta.id]
                output.tokens += delta.token_ids
                output.logprobs += delta.logprobs or []
                output.finish = delta.finish
                output.cached_tokens = delta.cached_tokens
        step += 1
    return outputs


@cache
def alone(engine: Engine, prompt: tuple[int, ...], params: bytes) -> Output:
    """What a request gives when nothing else runs. ``params`` is encoded, to be a key."""
    submit = Submit(0, list(prompt), msgspec.msgpack.decode(params, type=SamplingParams))
    return drive(engine, [submit])[0]


def assert_as_alone(
    plain: Engine, submits: Sequence[Submit], outputs: Mapping[int, Output]
) -> None:
    """Every output has the tokens and log probabilities that the request gives alone."""
    for submit in submits:
        expected = alone(plain, tuple(submit.token_ids), msgspec.msgpack.encode(submit.params))
        found = outputs[submit.id]
        assert found.tokens == expected.tokens, submit.id
        assert found.logprobs == expected.logprobs, submit.id
        assert found.finish == expected.finish, submit.id


def greedy(max_tokens: int, **fields: object) -> SamplingParams:
    """Greedy decoding with log probabilities."""
    return SamplingParams(max_tokens=max_tokens, temperature=0, logprobs=2, **fields)  # type: ignore[arg-type]


def sampled(max_tokens: int, seed: int, **fields: object) -> SamplingParams:
    """Seeded sampling with log probabilities."""
    return SamplingParams(max_tokens=max_tokens, seed=seed, logprobs=2, **fields)  # type: ignore[arg-type]
