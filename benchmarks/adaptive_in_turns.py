"""Adaptive speculation against plain decoding in one engine, in turns of a second or two.

    python benchmarks/adaptive_in_turns.py --concurrency 4 16 --max-tokens 64

So many requests are always decoding; every turn, all of them change from one kind to the other. A
machine that slows down slows both alike, so that some percent can be told within a minute. Only
steps without prompts count: prompts fall into turns by chance, and cost the same in both. Prints
the mean ratio of goodput over pairs of turns, its standard error, and where the time goes.
"""

import argparse
import itertools
import time
from dataclasses import dataclass

import numpy as np

from slipstream.bench.prompt_sets import load_prompts
from slipstream.engine.engine import Engine
from slipstream.engine.load import load_engine
from slipstream.engine.messages import Submit
from slipstream.engine.options import EngineOptions
from slipstream.engine.params import SamplingParams, Speculation
from slipstream.models.tokenizer import load_tokenizer

KINDS = (Speculation("off"), Speculation("adaptive"))
WARM_UP = 4  # turns


@dataclass
class Turn:
    """Sums over the steps without prompts of one kind's turn."""

    tokens: int = 0
    seconds: float = 0.0
    steps: int = 0


def turns(
    engine: Engine, prompts: list[list[int]], in_flight: int, wanted: argparse.Namespace
) -> list[Turn]:
    """Off and adaptive alternate, off first."""
    ids, texts, lengths = itertools.count(), itertools.cycle(prompts), itertools.count(1)
    kind = KINDS[0]

    def submit(max_tokens: int) -> None:
        params = SamplingParams(max_tokens=max_tokens, speculation=kind)
        engine.submit(Submit(next(ids), next(texts), params))

    for _ in range(in_flight):  # of different lengths, so that they do not end together
        submit(max(1, next(lengths) * wanted.max_tokens // in_flight))
    done: list[Turn] = []
    for number in range(WARM_UP + 2 * wanted.pairs):
        kind = KINDS[number % 2]
        for request in engine._requests.values():
            request.speculation = kind
        turn = Turn()
        until = time.perf_counter() + wanted.turn_seconds
        while time.perf_counter() < until:
            decoding = all(request.pending == 1 for request in engine._requests.values())
            started = time.perf_counter()
            deltas = engine.step()
            if decoding:
                turn.tokens += sum(len(delta.token_ids) for delta in deltas)
                turn.seconds += time.perf_counter() - started
                turn.steps += 1
            for delta in deltas:
                if delta.finish:
                    submit(wanted.max_tokens)
        done.append(turn)
    for id in list(engine._requests):
        engine.cancel(id)
    return done[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--concurrency", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--max-tokens", type=int, default=64, help="of an answer")
    parser.add_argument("--turn-seconds", type=float, default=1.5)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--prompts", default="coding")
    wanted = parser.parse_args()
    engine, _ = load_engine(EngineOptions(model="default", prefix_cache=False))
    tokenizer = load_tokenizer("default")
    prompts = [tokenizer.apply_chat_template(text) for text in load_prompts(wanted.prompts)]
    for in_flight in wanted.concurrency:
        found = turns(engine, prompts, in_flight, wanted)
        pairs = [pair for pair in zip(found[::2], found[1::2], strict=True) if pair[0].steps]
        ratios = [
            (ours.tokens / ours.seconds) / (off.tokens / off.seconds)
            for off, ours in pairs
            if ours.steps
        ]
        if len(ratios) < 2:
            print(f"C={in_flight:3} | every step held a prompt: give more --max-tokens or --pairs")
            continue
        error = np.std(ratios, ddof=1) / np.sqrt(len(ratios))
        off, ours = (
            1e3 * sum(turn.seconds for turn in kind) / sum(turn.steps for turn in kind)
            for kind in (found[::2], found[1::2])
        )
        accepted = sum(t.tokens for t in found[1::2]) / sum(t.steps for t in found[1::2])
        print(
            f"C={in_flight:3} | adaptive to off {np.mean(ratios):.3f} +- {error:.3f} of "
            f"{len(ratios)} pairs | a step {ours:.1f} to {off:.1f} ms, "
            f"{accepted / in_flight:.2f} tokens of each request"
        )


if __name__ == "__main__":
    main()
