"""Offline throughput of the engine: no HTTP, greedy, prompts of 16 tokens, speculation off.

    python benchmarks/engine.py --requests 1 10 30 --json engine.json

Per level so many requests are submitted at once; the prompts' time counts. JSON:
{"levels": [{"requests", "tok_s", "step_ms"}]}, with `step_ms` the median time of a step in which
every request decodes one token.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np

from slipstream.engine.engine import Engine
from slipstream.engine.load import load_engine
from slipstream.engine.messages import Submit
from slipstream.engine.options import EngineOptions
from slipstream.engine.params import SamplingParams

PROMPT_TOKENS = 16
NEW_TOKENS = 64


def measure(engine: Engine, requests: int, generator: np.random.Generator) -> dict[str, float]:
    """Run one level to its end."""
    params = SamplingParams(max_tokens=NEW_TOKENS, temperature=0)
    for id in range(requests):
        # Ids of ordinary words; every prompt another one, so that no prefix is shared.
        engine.submit(Submit(id, generator.integers(1000, 40000, PROMPT_TOKENS).tolist(), params))
    generated = 0
    steps: list[float] = []
    started = time.perf_counter()
    while engine.busy:
        before = time.perf_counter()
        emitted = sum(len(delta.token_ids) for delta in engine.step())
        generated += emitted
        if emitted == requests:
            steps.append(time.perf_counter() - before)
    seconds = time.perf_counter() - started
    return {
        "requests": requests,
        "tok_s": generated / seconds,
        "step_ms": 1000 * statistics.median(steps),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 10, 30])
    parser.add_argument("--model", default="default")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    options = EngineOptions(model=arguments.model, prefix_cache=False)
    engine, ready = load_engine(options)
    generator = np.random.default_rng(0)
    measure(engine, 2, generator)  # warm-up
    levels = []
    for requests in arguments.requests:
        levels.append(measure(engine, requests, generator))
        print(
            "requests {requests:4d} | {tok_s:7.1f} tok/s | step {step_ms:6.1f} ms".format(
                **levels[-1]
            )
        )
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"kernels": ready.kernels, "levels": levels}, indent=1)
        )


if __name__ == "__main__":
    main()
