"""Settings to paste: how many tokens to draft at which load, in the words of each engine.

Only numbers of draft tokens that were launched and measured are ever written down. K does not
count the root, as in vLLM and TensorRT-LLM.
"""

import json
import math
import shlex
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from slipstream.verdict.analysis import baseline, crossings, ratio, single_choices, tok_s
from slipstream.verdict.results import Configuration, Load, Results

WORTH_A_SWITCH = 1.05  # a gain that is followed even where its interval includes 1


@dataclass(frozen=True)
class Step:
    """With ``low`` to ``high`` requests decoding, draft so many tokens."""

    low: int
    high: int | None  # None: and more
    draft_tokens: int


@dataclass(frozen=True)
class Setting:
    title: str
    text: str  # to paste
    notes: tuple[str, ...] = ()


def settings_to_paste(results: Results) -> list[Setting]:
    """For each engine and model that was measured, in the order of the configurations."""
    groups: dict[tuple[str, str], list[Configuration]] = {}
    for configuration in results.configurations:
        groups.setdefault((configuration.engine, configuration.model), []).append(configuration)
    found = []
    for (engine, _), group in groups.items():
        found += _WRITERS.get(engine, _single_choice)(results, group)
    return found


def schedule(results: Results, candidates: Sequence[Configuration]) -> list[Step]:
    """The best of these at each load; empty where none was measured at a fixed concurrency.

    One choice, at first off, is kept for the next load unless another is faster there, for certain
    or by ``WORTH_A_SWITCH``. Between two measured loads it changes where the two choices are
    equally fast, their ratio's logarithm interpolated over that of the concurrency. The first
    reaches down to 1, the last has no end.
    """
    chosen = _chosen(results, candidates)
    steps: list[Step] = []
    low = 1
    for here, there in pairwise(chosen):
        if here[1].draft_tokens != there[1].draft_tokens:
            high = _change(results, here, there)
            steps.append(Step(low, high, here[1].draft_tokens or 0))
            low = high + 1
    if chosen:
        steps.append(Step(low, None, chosen[-1][1].draft_tokens or 0))
    return steps


Choice = tuple[Load, Configuration]


def _chosen(results: Results, candidates: Sequence[Configuration]) -> list[Choice]:
    chosen: list[Choice] = []
    pairs = max(1, len(candidates) * (len(candidates) - 1) // 2)
    off = next((c for c in candidates if c.draft_tokens == 0), None)
    loads = [load for load in results.loads if load.concurrency]
    for load in sorted(loads, key=lambda load: load.concurrency or 0):
        speeds = {c.name: tok_s(results, c.name, load) or 0.0 for c in candidates}
        best = max(candidates, key=lambda c: speeds[c.name], default=None)
        if not best or not speeds[best.name]:
            continue
        before = chosen[-1][1] if chosen else off
        if before and speeds[before.name]:
            gain = ratio(results, best.name, before.name, load, comparisons=pairs)
            if gain and gain.sign <= 0 and gain.mean < WORTH_A_SWITCH:
                best = before
        chosen.append((load, best))
    return chosen


def _change(results: Results, here: Choice, there: Choice) -> int:
    """The most requests at which the choice ``here`` still holds."""
    first, last = here[0].concurrency or 1, there[0].concurrency or 1
    line = []
    for load in (here[0], there[0]):
        found = ratio(results, here[1].name, there[1].name, load)
        if found:
            line.append((float(load.concurrency or 1), math.log(found.mean)))
    changes = crossings(line)
    at = changes[0] if changes else math.sqrt(first * last)
    return min(max(first, math.floor(at)), last - 1)


def _of_one_kind(
    results: Results,
    group: Iterable[Configuration],
    kind: Callable[[Configuration], Hashable],
) -> tuple[list[Configuration], tuple[str, ...]]:
    """Those that differ in K alone, so that one server can change from one to another.

    Off belongs to each kind; of several kinds, the one that has the best configuration. Also
    returns a note on those that were left out.
    """
    known = [c for c in group if c.draft_tokens is not None]
    drafting = [c for c in known if c.draft_tokens]
    order = [choice.name for choice in single_choices(results)]
    drafting.sort(key=lambda c: order.index(c.name) if c.name in order else len(order))
    same = [c for c in drafting if kind(c) == kind(drafting[0])]
    by_k: dict[int | None, Configuration] = {}
    for configuration in [c for c in known if not c.draft_tokens] + same:
        by_k.setdefault(configuration.draft_tokens, configuration)
    kept = list(by_k.values())
    left = [c.name for c in drafting if c not in kept]
    note = f"Not in the schedule, since they differ in more than K: {', '.join(left)}."
    return kept, (note,) if left else ()


def _single_choice(results: Results, group: Sequence[Configuration]) -> list[Setting]:
    """The command of the one that is best over all loads."""
    choices = single_choices(results)
    order = [choice.name for choice in choices]
    best = next((c for name in order for c in group if c.name == name), None)
    if best is None or len(group) < 2:
        return []
    text = shlex.join(best.command) if best.command else f"# the server at {best.url}"
    engine = "" if best.engine == "unknown" else f"{best.engine}: "
    base = baseline(results)
    sure = best.name == base or any(c.name == best.name and (c.low or 0) > 1 for c in choices)
    notes = () if sure else (f"Not surely faster than {base}.",)
    return [Setting(f"{engine}{best.name}, the best single choice", text, notes)]


def _vllm(results: Results, group: Sequence[Configuration]) -> list[Setting]:
    """vLLM: inclusive ``[low, high, K]``, beginning at 1; beyond the last one its K goes on.

    The batch is the number of requests that are scheduled in a step, prompts included
    (``vllm/v1/spec_decode/dynamic/utils.py`` and ``scheduler.py``, seen in 0.32).
    """

    def kind(configuration: Configuration) -> Hashable:
        found = _json(flag(configuration, "--speculative-config", "-sc"))
        return json.dumps({**found, "num_speculative_tokens": None}, sort_keys=True)

    candidates, notes = _of_one_kind(results, group, kind)
    steps = schedule(results, candidates)
    most = max((step.draft_tokens for step in steps), default=0)
    if len({step.draft_tokens for step in steps}) < 2:
        return _single_choice(results, group)
    source = next(c for c in candidates if c.draft_tokens == most)
    config = _json(flag(source, "--speculative-config", "-sc"))
    if not config:
        notes += ("Add the method and model of the launched server.",)
    highest = max(load.concurrency or 1 for load in results.loads)
    config["num_speculative_tokens"] = most
    config["num_speculative_tokens_per_batch_size"] = [
        [step.low, step.high or max(highest, step.low), step.draft_tokens] for step in steps
    ]
    text = f"--speculative-config {shlex.quote(json.dumps(config))}"
    notes += ("vLLM ignores the schedule with --data-parallel-size above 1.",)
    return [Setting("vLLM: draft tokens by running requests", text, notes)]


_TENSORRT_MAX_BATCH = 2048  # its default; above the last key it does not speculate


def _tensorrt_llm(results: Results, group: Sequence[Configuration]) -> list[Setting]:
    """TensorRT-LLM: a mapping from the largest batch that a draft length is for.

    The first length must be ``max_draft_len``, and above the last key nothing is drafted
    (``tensorrt_llm/llmapi/llm_args.py`` since March 2026; before, keys were the smallest batch).
    """
    candidates, notes = _of_one_kind(results, group, lambda _: None)
    steps = schedule(results, candidates)
    if steps and any(step.draft_tokens > steps[0].draft_tokens for step in steps):
        most = steps[0].draft_tokens
        steps = schedule(results, [c for c in candidates if (c.draft_tokens or 0) <= most])
        notes += ("More draft tokens at a higher load cannot be written down, and are left out.",)
    if len({step.draft_tokens for step in steps}) < 2:
        return _single_choice(results, group)
    lengths = {
        step.high or _TENSORRT_MAX_BATCH: step.draft_tokens
        for step in steps
        if step.high or step.draft_tokens
    }
    text = (
        f"speculative_config:\n  max_draft_len: {steps[0].draft_tokens}\n"
        f"  draft_len_schedule: {_mapping(lengths)}"
    )
    older = _mapping({step.low: step.draft_tokens for step in steps})
    notes += (f"Releases before March 2026 count from the smallest batch: {older}.",)
    return [Setting("TensorRT-LLM: draft length by batch size", text, notes)]


def _mapping(values: dict[int, int]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}"


def _sglang(results: Results, group: Sequence[Configuration]) -> list[Setting]:
    """SGLang: the flags of the best single choice; by load, one candidate for each batch size.

    ``--speculative-adaptive-config`` maps the smallest batch to ``candidate_steps``; with a
    single candidate that is a schedule. It takes EAGLE chains only
    (``python/sglang/srt/speculative/adaptive_spec_params.py``); older releases have no tiers.
    """

    def kind(configuration: Configuration) -> Hashable:
        return tuple(
            flag(configuration, name)
            for name in ("--speculative-algorithm", "--speculative-draft-model-path", _TOPK)
        )

    found = _single_choice(results, group)
    candidates, notes = _of_one_kind(results, group, kind)
    steps = schedule(results, candidates)
    most = max((step.draft_tokens for step in steps), default=0)
    chain = next((c for c in candidates if c.draft_tokens == most and most), None)
    if len({step.draft_tokens for step in steps}) < 2 or chain is None:
        return found
    if flag(chain, _TOPK) != "1" or not (flag(chain, "--speculative-algorithm") or "").startswith(
        "EAGLE"
    ):
        return found
    tiers = {str(step.low): {"candidate_steps": [step.draft_tokens]} for step in steps}
    text = (
        f"echo {shlex.quote(json.dumps(tiers))} > speculation.json\n"
        f"--speculative-num-steps {most} --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens {most + 1} "
        "--speculative-adaptive --speculative-adaptive-config speculation.json"
    )
    notes += ("Needs a release whose adaptive configuration has a key for each batch size.",)
    return [*found, Setting("SGLang: steps by batch size", text, notes)]


_TOPK = "--speculative-eagle-topk"


def _slipstream(results: Results, group: Sequence[Configuration]) -> list[Setting]:
    """This engine: it adapts by itself; a schedule counts the root among the draft tokens."""

    def kind(configuration: Configuration) -> Hashable:
        return tuple(flag(configuration, name) for name in _SHAPE)

    candidates, notes = _of_one_kind(results, group, kind)
    steps = schedule(results, candidates)
    found = []
    adaptive = [c for c in group if c.draft_tokens is None]
    best = next((choice.name for choice in single_choices(results)), None)
    if any(c.name == best for c in adaptive):
        found.append(
            Setting("Slipstream: adaptive, the best single choice", "--speculation adaptive")
        )
    else:
        found += _single_choice(results, group)
    if len({step.draft_tokens for step in steps}) < 2:
        return found
    parts = [
        f"{step.low}-{step.high or ''}={step.draft_tokens + 1}"
        if step.high != step.low
        else f"{step.low}={step.draft_tokens + 1}"
        for step in steps
    ]
    shape = "".join(
        f" {name} {value}"
        for name in _SHAPE
        if (value := next((v for c in candidates if (v := flag(c, name))), None))
    )
    text = f"--speculation schedule:{','.join(parts)}{shape}"
    notes += ("Counted in draft tokens with the root: 1 is off.",)
    return [*found, Setting("Slipstream: a schedule by running requests", text, notes)]


_SHAPE = ("--speculative-num-steps", _TOPK)

_WRITERS: dict[str, Callable[[Results, Sequence[Configuration]], list[Setting]]] = {
    "vllm": _vllm,
    "tensorrt-llm": _tensorrt_llm,
    "sglang": _sglang,
    "slipstream": _slipstream,
}


def flag(configuration: Configuration, *names: str) -> str | None:
    """Its value in the command: ``--flag value`` or ``--flag=value``. None: not given."""
    words = configuration.command or []
    if len(words) == 1 or (len(words) == 3 and words[1] == "-c"):  # a line for the shell
        words = shlex.split(words[-1])
    for word, following in pairwise([*words, ""]):
        if word in names:
            return following
        for name in names:
            if word.startswith(f"{name}="):
                return word.removeprefix(f"{name}=")
    return None


def _json(text: str | None) -> dict[str, object]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
