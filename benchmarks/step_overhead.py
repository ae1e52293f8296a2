"""Microseconds of Python in one step: everything but the forward pass.

    python benchmarks/step_overhead.py

A fake model returns ready arrays at once, a fake drafter a ready tree. A step here is what the
engine process does between two forward passes: take commands, plan, draft, build the batch, walk
the trees, commit, encode the report and send it. Processor time of the one thread, the median and
the least of many steps.
"""

import argparse
import socket
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slipstream.engine.channel import Channel
from slipstream.engine.engine import Engine
from slipstream.engine.messages import Report, Submit
from slipstream.engine.params import SamplingParams, Speculation, TreeShape
from slipstream.memory.pool import pages_for
from slipstream.speculation.drafter import Draft, DraftTask

VOCABULARY = 64
TREE = TreeShape(num_steps=4, topk=4, num_draft_tokens=16)
# Four chains below the root. Token 0 is what the fake model always says: one node is accepted.
READY_TREE = Draft(
    tokens=[0, 1, 2, 3, *range(1, 12)],
    parents=[0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 5, 6, 7, 11, 12],
    scores=[-0.5 * node for node in range(15)],
)


class FakeModel:
    """A target whose answers cost nothing."""

    max_model_len = 1 << 16

    def __init__(self) -> None:
        self._logits = np.zeros((1 << 13, VOCABULARY), dtype=np.float32)
        self._tokens = np.zeros(1 << 13, dtype=np.int32)

    def forward(self, batch: Any) -> NDArray[np.float32]:
        return self._logits[: len(batch.logit_rows)]

    def sample(self, logits: NDArray[np.float32], rows: Any) -> NDArray[np.int32]:
        return self._tokens[: len(logits)]

    def move_slots(self, sources: list[int], targets: list[int]) -> None:
        pass


class FakeDrafter:
    """The same tree for everyone."""

    def draft(self, tasks: Sequence[DraftTask]) -> list[Draft]:
        return [READY_TREE] * len(tasks)

    def lag(self, request_id: int, committed: int) -> int:
        return 0

    def forget(self, request_id: int) -> None:
        pass


def start(
    requests: int, prompt: int, steps: int, speculation: Speculation, params: dict[str, Any]
) -> Engine:
    """An engine in which so many requests decode and none ends within ``steps``."""
    tokens = 3 * steps + 8
    engine = Engine(
        FakeModel(),  # type: ignore[arg-type]
        FakeDrafter(),
        pages=requests * (pages_for(prompt + tokens) + 1),
        max_running_requests=requests,
        max_step_rows=requests * prompt,
        speculation=speculation,
    )
    generator = np.random.default_rng(0)
    for id in range(requests):
        token_ids = generator.integers(0, VOCABULARY, prompt).tolist()
        engine.submit(Submit(id, token_ids, SamplingParams(max_tokens=tokens, seed=id, **params)))
    engine.step()
    return engine


def measure(engine: Engine, steps: int) -> list[float]:
    """Seconds of each step."""
    ours, theirs = socket.socketpair()
    seconds = []
    with ours, theirs:
        channel = Channel(ours)
        for _ in range(steps):
            started = time.thread_time()
            channel.receive(wait=False)
            channel.send(Report(engine.step(), engine.stats()))
            seconds.append(time.thread_time() - started)
            theirs.recv(1 << 20)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 10, 30, 100, 250])
    parser.add_argument("--trees", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--prompt", type=int, default=16, help="tokens")
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    off, fixed = Speculation("off"), Speculation("fixed", TREE)
    greedy, sampled = {"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.95}
    levels = [
        *(("plain", requests, off, greedy) for requests in arguments.requests),
        *(("sampled", requests, off, sampled) for requests in arguments.requests),
        *(("trees of 16 nodes", requests, fixed, greedy) for requests in arguments.trees),
    ]
    for name, requests, speculation, params in levels:
        engine = start(requests, arguments.prompt, arguments.steps, speculation, params)
        seconds = measure(engine, arguments.steps)
        median, least = 1e6 * statistics.median(seconds), 1e6 * min(seconds)
        print(
            f"{requests:4d} requests, {name:<17} | median {median:6.0f} us | least {least:6.0f} us"
        )


if __name__ == "__main__":
    main()
