"""What speculation, fixed and adaptive, gains or costs at each load, and that it changes no token.

    python benchmarks/fixed_speculation.py --requests 1 2 5 10 30 --plot docs/fixed_speculation.svg

Offline, greedy, the coding prompts, the drafter that `slipstream serve` would use. Every round runs
all settings one after the other in one process on the same prompts, and every output is compared
with that of plain decoding. Prints, per load, generated tokens per second as a ratio to plain
decoding (the median of rounds, with the lowest and highest) and the accepted length.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from slipstream.bench.prompt_sets import Prompt, load_prompts
from slipstream.engine.engine import Engine
from slipstream.engine.load import load_engine
from slipstream.engine.messages import Submit
from slipstream.engine.options import EngineOptions
from slipstream.engine.params import SamplingParams, Speculation, TreeShape
from slipstream.models.tokenizer import Tokenizer, load_tokenizer

SETTINGS = {
    "off": Speculation("off"),
    "chain of 3": Speculation("fixed", TreeShape(num_steps=2, topk=1, num_draft_tokens=3)),
    "tree of 16": Speculation("fixed", TreeShape(num_steps=4, topk=4, num_draft_tokens=16)),
    "adaptive": Speculation("adaptive"),
}


def run(
    engine: Engine, prompts: list[list[int]], params: SamplingParams
) -> tuple[float, float, list[list[int]]]:
    """Tokens per second, accepted length, and the tokens themselves."""
    for id, prompt in enumerate(prompts):
        engine.submit(Submit(id, prompt, params))
    outputs: list[list[int]] = [[] for _ in prompts]
    runs = 0
    started = time.perf_counter()
    while engine.busy:
        for delta in engine.step():
            outputs[delta.id] += delta.token_ids
            runs += 1
    seconds = time.perf_counter() - started
    tokens = sum(map(len, outputs))
    return tokens / seconds, tokens / runs, outputs


def level(
    engine: Engine, tokenizer: Tokenizer, prompts: list[Prompt], rounds: int, max_tokens: int
) -> dict[str, Any]:
    """All settings on ``prompts`` at once, ``rounds`` times over."""
    chats = [tokenizer.apply_chat_template(prompt) for prompt in prompts]
    speeds: dict[str, list[float]] = {name: [] for name in SETTINGS}
    accepted: dict[str, float] = {}
    outputs: dict[str, list[list[int]]] = {}
    for number in range(rounds):
        order = list(SETTINGS) if number % 2 == 0 else list(reversed(SETTINGS))
        for name in order:
            params = SamplingParams(
                max_tokens=max_tokens,
                temperature=0,
                stop_token_ids=tuple(tokenizer.eos_token_ids),
                speculation=SETTINGS[name],
            )
            speed, accepted[name], outputs[name] = run(engine, chats, params)
            speeds[name].append(speed)
    different = {name: outputs[name] != outputs["off"] for name in SETTINGS}
    if any(different.values()):
        raise SystemExit(f"outputs differ from plain decoding: {different}")
    ratios = {
        name: [speed / plain for speed, plain in zip(found, speeds["off"], strict=True)]
        for name, found in speeds.items()
    }
    return {
        "requests": len(prompts),
        "off_tok_s": statistics.median(speeds["off"]),
        "ratio": {name: statistics.median(found) for name, found in ratios.items()},
        "ratio_range": {name: [min(found), max(found)] for name, found in ratios.items()},
        "accepted_length": accepted,
    }


def plot(levels: list[dict[str, Any]], path: Path) -> None:
    """Ratio to plain decoding over the number of requests."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    loads = [level["requests"] for level in levels]
    axes.axhline(1, color="0.5", linewidth=1, label="no speculation")
    for name in list(SETTINGS)[1:]:
        low, high = zip(*(level["ratio_range"][name] for level in levels), strict=True)
        axes.plot(loads, [level["ratio"][name] for level in levels], marker="o", label=name)
        axes.fill_between(loads, low, high, alpha=0.2)
    axes.set(
        xscale="log",
        xlabel="requests at once",
        ylabel="speed, plain decoding = 1",
        ylim=(0, None),
        title="Fixed speculation helps or hurts, by load; adaptive follows it",
    )
    axes.set_xticks(loads, [str(load) for load in loads])
    axes.minorticks_off()
    axes.legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 2, 5, 10, 30])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--prompts", default="coding")
    parser.add_argument("--model", default="default")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    engine, ready = load_engine(
        EngineOptions(model=arguments.model, drafter=arguments.drafter, prefix_cache=False)
    )
    tokenizer = load_tokenizer(arguments.model)
    prompts = load_prompts(arguments.prompts)
    levels = []
    for requests in arguments.requests:
        found = level(engine, tokenizer, prompts[:requests], arguments.rounds, arguments.max_tokens)
        levels.append(found)
        parts = [
            f"{name}: {found['ratio'][name]:.2f}x "
            f"({found['ratio_range'][name][0]:.2f} to {found['ratio_range'][name][1]:.2f}), "
            f"accepted length {found['accepted_length'][name]:.2f}"
            for name in list(SETTINGS)[1:]
        ]
        print(f"{requests:4d} requests | off {found['off_tok_s']:.1f} tok/s | " + " | ".join(parts))
    if arguments.json:
        document = {"kernels": ready.kernels, "levels": levels}
        arguments.json.write_text(json.dumps(document, indent=1))
    if arguments.plot:
        plot(levels, arguments.plot)


if __name__ == "__main__":
    main()
