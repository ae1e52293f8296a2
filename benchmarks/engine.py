"""Offline throughput of the engine: no HTTP, greedy, prompts of 16 tokens, speculation off.

    python benchmarks/engine.py --requests 1 2 5 10 30 70 100 250 --json engine.json

Per level so many requests are submitted at once; the prompts' time counts. `step_ms` is the median
time of a step in which every request decodes one token, Python included, `python_ms` the part of it
outside the forward pass and the sampling, and `floor_ms` what such a step costs at least at the
rates that the machine shows right before and after (see floor.py).
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
from floor import Floor, Work
from numpy.typing import NDArray

from slipstream.engine.engine import Engine
from slipstream.engine.messages import Submit
from slipstream.engine.params import SamplingParams
from slipstream.kernels import Kernels, SamplingRows, StepBatch, choose_kernels
from slipstream.kernels.native.kernels import NativeKernels
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.models.checkpoint import open_checkpoint
from slipstream.models.config import ModelConfig
from slipstream.models.transformer import Transformer, Weights, page_bytes
from slipstream.speculation.ngram import NgramDrafter

PROMPT_TOKENS = 16
NEW_TOKENS = 64
MOST_STEP_ROWS = 256


class TimedTransformer(Transformer):
    """Sums up the seconds spent in kernels."""

    seconds = 0.0

    def forward(self, batch: StepBatch) -> NDArray[np.float32]:
        started = time.perf_counter()
        logits = super().forward(batch)
        self.seconds += time.perf_counter() - started
        return logits

    def sample(self, logits: NDArray[np.float32], rows: SamplingRows) -> NDArray[np.int32]:
        started = time.perf_counter()
        tokens = super().sample(logits, rows)
        self.seconds += time.perf_counter() - started
        return tokens


def start(
    config: ModelConfig, weights: Weights, kernels: Kernels, requests: int
) -> tuple[Engine, TimedTransformer]:
    """An engine with room for ``requests`` requests."""
    length = PROMPT_TOKENS + NEW_TOKENS
    pages = requests * pages_for(length)
    target = TimedTransformer(config, weights, kernels, pages=pages, max_model_len=length)
    engine = Engine(
        target,
        NgramDrafter(),
        pages=pages,
        max_running_requests=requests,
        max_step_rows=MOST_STEP_ROWS,
        prefix_cache=False,
    )
    return engine, target


def measure(
    engine: Engine, target: TimedTransformer, requests: int, generator: np.random.Generator
) -> dict[str, float]:
    """Run one level to its end."""
    params = SamplingParams(max_tokens=NEW_TOKENS, temperature=0)
    for id in range(requests):
        # Ids of ordinary words; every prompt another one, so that no prefix is shared.
        engine.submit(Submit(id, generator.integers(1000, 40000, PROMPT_TOKENS).tolist(), params))
    generated = 0
    steps: list[tuple[float, float]] = []
    started = time.perf_counter()
    while engine.busy:
        before, target.seconds = time.perf_counter(), 0.0
        emitted = sum(len(delta.token_ids) for delta in engine.step())
        generated += emitted
        if emitted == requests:
            whole = time.perf_counter() - before
            steps.append((whole, whole - target.seconds))
    seconds = time.perf_counter() - started
    return {
        "requests": requests,
        "tok_s": generated / seconds,
        "step_ms": 1000 * statistics.median(whole for whole, _ in steps),
        "python_ms": 1000 * statistics.median(python for _, python in steps),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 10, 30])
    parser.add_argument("--model", default="default")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    kernels = choose_kernels(arguments.threads)
    checkpoint = open_checkpoint(arguments.model)
    weights = Weights.load(checkpoint, kernels)
    engine, target = start(checkpoint.config, weights, kernels, max(arguments.requests))
    floor = Floor(kernels, Work.of(weights)) if isinstance(kernels, NativeKernels) else None
    page = page_bytes(checkpoint.config, kernels)
    generator = np.random.default_rng(0)
    measure(engine, target, 2, generator)  # warm-up
    levels = []
    for requests in arguments.requests:
        level = measure(engine, target, requests, generator)
        if floor:
            # Contexts grow from a prompt to its whole answer; the median step is in the middle.
            context = requests * (PROMPT_TOKENS + NEW_TOKENS / 2) * page / PAGE_SIZE
            before = floor.seconds(requests, context)
            floor.measure()
            level["floor_ms"] = 1000 * min(before, floor.seconds(requests, context))
            level["ratio"] = level["step_ms"] / level["floor_ms"]
        levels.append(level)
        print(" | ".join(f"{name} {value:8.2f}" for name, value in level.items()), flush=True)
    if arguments.json:
        rates = {}
        if floor:
            rates["gigabytes_per_second"] = floor.bytes_per_second / 1e9
            for kind, rate in floor.products_per_second.items():
                rates[f"giga_multiply_adds_per_second_{kind.name.lower()}"] = rate / 1e9
        arguments.json.write_text(
            json.dumps({"kernels": kernels.name, "rates": rates, "levels": levels}, indent=1)
        )


if __name__ == "__main__":
    main()
