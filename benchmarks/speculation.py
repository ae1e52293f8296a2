"""What the drafter's token trees bring at one request, on any prompts.

    python benchmarks/speculation.py --prompts prompts.jsonl --json speculation.json

Offline, greedy, 128 new tokens, end tokens respected, prefix cache off. Every prompt is answered by
each setting in turn, the order rotating from prompt to prompt, in one process; every answer must
equal that of plain decoding. Lines of the file hold a "prompt" and, if they like, a "category".

The first tree is the one whose accepted length (tokens per step, from the second token on) and
acceptance by depth (of the steps that got to a depth, the share that also accepted the next node)
are reported. Speeds are of the tokens after the first, catching up with the prompt included.
`fixed_to_off` is the ratio of the fastest tree. A small model loops, and loops flatter any drafter:
`distinct_4grams` is the share of 4-grams of an answer that are distinct.
"""

import argparse
import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.engine.engine import Engine
from slipstream.engine.load import load_engine
from slipstream.engine.messages import Submit
from slipstream.engine.options import EngineOptions
from slipstream.engine.params import SamplingParams, Speculation, TreeShape
from slipstream.models.tokenizer import load_tokenizer

TREES = ("4,4,16", "1,1,2", "2,1,3", "3,1,4", "2,2,4", "3,2,6", "3,4,8")  # levels, topk, rows
RESAMPLES = 2000


@dataclass
class Answer:
    """One prompt under one setting."""

    tokens: list[int]
    accepted: list[int]  # draft nodes accepted in each step that drafted or could have
    seconds: float  # from the first token to the last

    @property
    def decoded(self) -> int:
        """Tokens after the first."""
        return len(self.tokens) - 1


@dataclass
class Results:
    """Answers of one group of prompts, by setting, in the same order."""

    answers: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))

    def speed(self, setting: str) -> float:
        answers = self.answers[setting]
        return sum(a.decoded for a in answers) / sum(a.seconds for a in answers)

    def ratio(self, setting: str) -> dict[str, float]:
        """Speed to that of plain decoding, with a 95% interval from resampled prompts."""
        tokens = np.array([a.decoded for a in self.answers["off"]], dtype=np.float64)
        plain = np.array([a.seconds for a in self.answers["off"]])
        drafted = np.array([a.seconds for a in self.answers[setting]])
        chosen = np.random.default_rng(0).integers(len(tokens), size=(RESAMPLES, len(tokens)))
        low, high = np.quantile(plain[chosen].sum(1) / drafted[chosen].sum(1), [0.025, 0.975])
        return {"ratio": float(plain.sum() / drafted.sum()), "low95": low, "high95": high}

    def accepted_length(self, setting: str) -> float:
        answers = self.answers[setting]
        return sum(a.decoded for a in answers) / sum(len(a.accepted) for a in answers)

    def acceptance_by_depth(self, setting: str, levels: int) -> list[float]:
        steps = np.array([n for a in self.answers[setting] for n in a.accepted])
        reached = [int((steps >= depth).sum()) for depth in range(levels + 1)]
        return [reached[d + 1] / max(reached[d], 1) for d in range(levels)]

    def distinct_4grams(self) -> float:
        shares = [
            len(grams) / count
            for a in self.answers["off"]
            if (count := len(a.tokens) - 3) > 0
            and (grams := {tuple(a.tokens[i : i + 4]) for i in range(count)})
        ]
        return float(np.mean(shares))

    def summary(self, trees: dict[str, TreeShape]) -> dict[str, Any]:
        main = next(iter(trees))
        ratios = {name: self.ratio(name) for name in trees}
        best = max(ratios, key=lambda name: ratios[name]["ratio"])
        return {
            "prompts": len(self.answers["off"]),
            "accepted_length": self.accepted_length(main),
            "acceptance_by_depth": self.acceptance_by_depth(main, trees[main].num_steps),
            "distinct_4grams": self.distinct_4grams(),
            "tok_s_off": self.speed("off"),
            "fixed_to_off": ratios[best]["ratio"],
            "best_tree": best,
            "trees": {
                name: {"accepted_length": self.accepted_length(name), **ratios[name]}
                for name in trees
            },
        }


def answer(engine: Engine, id: int, prompt: list[int], params: SamplingParams) -> Answer:
    engine.submit(Submit(id, prompt, params))
    tokens: list[int] = []
    accepted: list[int] = []
    started = 0.0
    while engine.busy:
        for delta in engine.step():
            if tokens:
                accepted.append(len(delta.token_ids) - 1)
            else:
                started = time.perf_counter()
            tokens += delta.token_ids
    return Answer(tokens, accepted, time.perf_counter() - started)


def tree_shape(text: str) -> TreeShape:
    levels, topk, rows = map(int, text.split(","))
    return TreeShape(levels, topk, rows)


def measure(arguments: argparse.Namespace, trees: dict[str, TreeShape]) -> dict[str, Results]:
    """Results of all prompts and of each category."""
    options = EngineOptions(
        model=arguments.model,
        drafter=arguments.drafter,
        threads=arguments.threads,
        max_running_requests=1,
        prefix_cache=False,
    )
    engine, _ = load_engine(options)
    tokenizer = load_tokenizer(arguments.model)
    settings = {"off": Speculation("off")}
    settings |= {name: Speculation("fixed", shape) for name, shape in trees.items()}
    lines = [json.loads(line) for line in arguments.prompts.read_text().splitlines() if line]
    results: dict[str, Results] = defaultdict(Results)
    order = list(settings)
    for number, line in enumerate(lines[:: arguments.every]):
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": line["prompt"]}])
        answers: dict[str, Answer] = {}
        for name in order[number % len(order) :] + order[: number % len(order)]:
            params = SamplingParams(
                max_tokens=arguments.max_tokens,
                temperature=0,
                stop_token_ids=tokenizer.eos_token_ids,
                speculation=settings[name],
            )
            answers[name] = answer(engine, number * len(order) + order.index(name), prompt, params)
        for name, given in answers.items():
            if given.tokens != answers["off"].tokens:
                raise SystemExit(f"prompt {number}: {name} gave other tokens than plain decoding")
        if answers["off"].decoded:
            for group in ("all", line.get("category", "none")):
                for name, given in answers.items():
                    results[group].answers[name].append(given)
    return results


def show(name: str, summary: dict[str, Any]) -> None:
    depths = " ".join(f"{share:.2f}" for share in summary["acceptance_by_depth"])
    print(
        f"{name:>15} | {summary['prompts']:3} prompts | accepted length "
        f"{summary['accepted_length']:.2f} | by depth {depths} | distinct 4-grams "
        f"{summary['distinct_4grams']:.2f} | off {summary['tok_s_off']:.0f} tok/s | best tree "
        f"{summary['best_tree']}: {summary['fixed_to_off']:.2f} times off"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--model", default="default")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--trees", nargs="+", default=TREES, metavar="LEVELS,TOPK,ROWS")
    parser.add_argument("--every", type=int, default=1, help="take every n-th prompt only")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    trees = {text: tree_shape(text) for text in arguments.trees}
    results = measure(arguments, trees)
    summaries = {name: group.summary(trees) for name, group in results.items()}
    overall = summaries.pop("all")
    for name, summary in sorted(summaries.items()):
        show(name, summary)
    show("all", overall)
    for name, tree in overall["trees"].items():
        print(
            f"  tree {name:>7}: accepted length {tree['accepted_length']:.2f}, {tree['ratio']:.2f} "
            f"times off (95%: {tree['low95']:.2f} to {tree['high95']:.2f})"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(overall | {"by_category": summaries}, indent=1) + "\n")


if __name__ == "__main__":
    main()
