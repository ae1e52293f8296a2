"""What drafting costs at one request, in target steps of one row.

    python benchmarks/drafting.py --json drafting.json

Rounds of one process take turns: a target step, drafts of one to four levels, and catching up with
512 positions. Prints medians: the first level, each further level (of `topk` rows), and a whole
ring, as shares of the target's step.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from slipstream.engine.load import load_drafter, load_target, open_drafter_for, open_target
from slipstream.engine.options import EngineOptions
from slipstream.engine.params import SamplingParams
from slipstream.kernels import choose_kernels
from slipstream.memory.pool import pages_for
from slipstream.models.transformer import Transformer
from slipstream.speculation.batch import build_step_batch
from slipstream.speculation.drafter import DraftTask
from slipstream.speculation.eagle3.drafter import WINDOW, Eagle3Drafter, new_rings
from slipstream.speculation.tree import TokenTree, TreeShape

LEVELS = 4


class Request:
    """One request with a committed context of ``length`` tokens."""

    def __init__(self, model: Transformer, vocab_size: int, length: int) -> None:
        self.committed = 0
        self.pages = list(range(pages_for(length + 32)))
        self.tokens = np.random.default_rng(0).integers(100, vocab_size - 100, length + 1)
        self.tokens = self.tokens.astype(np.int32)
        self._model = model
        for start in range(0, length, 256):
            stop = min(start + 256, length)
            tree = TokenTree.chain(self.tokens[start:stop])
            self._model.forward(build_step_batch([self], [tree], [False]))
            self.committed = stop

    def step(self) -> None:
        tree = TokenTree.chain(self.tokens[-1:])
        self._model.forward(build_step_batch([self], [tree], [True]))

    def task(self, levels: int, topk: int) -> DraftTask:
        shape = TreeShape(levels, topk, 1 + levels * topk)
        params = SamplingParams(max_tokens=1, temperature=0)
        return DraftTask(1, self.tokens, shape, self.committed, self.pages, params)


def measure(drafter: Eagle3Drafter, request: Request, topk: int, rounds: int) -> dict[str, float]:
    """Median seconds of a target step, a first level, a further level, and a full ring."""
    seconds: dict[str, list[float]] = defaultdict(list)

    def timed(name: str, work: Callable[[], object]) -> None:
        started = time.perf_counter()
        work()
        seconds[name].append(time.perf_counter() - started)

    for _ in range(rounds):
        for levels in range(1, LEVELS + 1):
            # A step in between, as there is when serving: it drives the drafter out of the caches.
            timed("step", request.step)
            timed(f"{levels} levels", lambda n=levels: drafter.draft([request.task(n, topk)]))
        drafter.forget(1)
        timed("step", request.step)
        timed("ring", lambda: drafter.draft([request.task(1, topk)]))
    median = {name: statistics.median(values) for name, values in seconds.items()}
    deeper = (median[f"{LEVELS} levels"] - median["1 levels"]) / (LEVELS - 1)
    return {
        "step": median["step"],
        "first level": median["1 levels"],
        "each further level": deeper,
        f"ring of {WINDOW}": median["ring"] - median["1 levels"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="default")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--topk", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    options = EngineOptions(
        model=arguments.model,
        drafter=arguments.drafter,
        threads=arguments.threads,
        max_running_requests=1,
    )
    checkpoint = open_target(options)
    eagle3 = open_drafter_for(options, checkpoint)
    assert eagle3 is not None, "an EAGLE-3 drafter is needed"
    layers = eagle3.config.layers_for(checkpoint.config.num_layers)
    kernels = choose_kernels(options.threads)
    model, _ = load_target(options, checkpoint, kernels, 1 << 30, layers)
    drafter = load_drafter(eagle3, model, kernels, new_rings(1))
    request = Request(model, checkpoint.config.vocab_size, WINDOW + 40)
    found = {}
    for topk in arguments.topk:
        found[topk] = measure(drafter, request, topk, arguments.rounds)
        step = found[topk]["step"]
        shares = ", ".join(
            f"{name} {1000 * value:.2f} ms ({value / step:.1%})"
            for name, value in found[topk].items()
        )
        print(f"topk {topk}: {shares}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
