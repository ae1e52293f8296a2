"""Numbers, lines and pictures of `adaptive.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from slipstream.bench.comparison import Ratio, paired_ratio

OURS, BASE = "adaptive", "off"


@dataclass(frozen=True)
class Scenario:
    """So many requests in flight, or one number after the other, each for some seconds."""

    name: str
    phases: tuple[int, ...]
    seconds: float  # of a phase


@dataclass(frozen=True)
class Measurement:
    """One window. Shares are of 1, None where there is nothing to divide by."""

    tokens: float
    tok_s: float
    itl_p99: float  # seconds
    accepted_length: float | None  # tokens that a request emits in a step
    drafted_rows: float | None  # of all rows of steps
    acceptance: float | None  # of the drafted nodes
    others_cpu: float  # of a core, of all idle servers together
    client_cpu: float  # of a core


@dataclass
class Equality:
    """What came of comparing outputs with those of ``off``."""

    requests: int = 0
    tokens: int = 0
    different: list[str] = field(default_factory=list)
    draft_nodes: dict[str, float] = field(default_factory=dict)  # while comparing


Results = dict[str, dict[str, list[Measurement]]]  # by scenario and configuration


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def described(number: int, scenario: Scenario, name: str, found: Measurement) -> str:
    length = "-" if found.accepted_length is None else f"{found.accepted_length:.2f}"
    return (
        f"round {number + 1} | {scenario.name:>4} in flight | {name:11} | {found.tok_s:7.1f} tok/s"
        f" | itl p99 {1000 * found.itl_p99:5.1f} ms | accepted length {length}"
        f" | drafted {share(found.drafted_rows)} of rows, {share(found.acceptance)} accepted"
        f" | idle servers {found.others_cpu:.1%}, client {found.client_cpu:.0%} of a core"
    )


def differences(found: Equality) -> str:
    nodes = ", ".join(f"{name} {count:.0f}" for name, count in found.draft_nodes.items())
    different = f"{len(found.different)} of {found.requests} answers ({found.tokens} tokens) differ"
    return "; ".join([different, *found.different[:3], f"nodes drafted meanwhile: {nodes}"])


def summary(
    scenarios: Sequence[Scenario],
    results: Results,
    equality: Equality,
    options: Mapping[str, object],
) -> dict[str, Any]:
    """What goes into the file."""
    found = [(scenario, compared(scenario, results[scenario.name])) for scenario in scenarios]
    return {
        "levels": [level for scenario, level in found if len(scenario.phases) == 1],
        "steps": [level for scenario, level in found if len(scenario.phases) > 1],
        "equality": asdict(equality) | {"different": len(equality.different)},
        "differences": equality.different,
        "options": {key: str(value) for key, value in options.items()},
    }


def compared(scenario: Scenario, found: dict[str, list[Measurement]]) -> dict[str, Any]:
    """One level: medians over rounds, and ratios of paired rounds."""
    speeds = {name: [each.tok_s for each in rounds] for name, rounds in found.items()}
    latencies = {name: [each.itl_p99 for each in rounds] for name, rounds in found.items()}
    medians = {name: median(values) for name, values in speeds.items()}
    best = max((name for name in medians if name != OURS), key=lambda name: medians[name])
    to_best = paired_ratio(speeds[OURS], speeds[best])
    to_base = paired_ratio(speeds[OURS], speeds[BASE])
    latency = paired_ratio(latencies[OURS], latencies[BASE])
    return {
        "concurrency": scenario.phases[0] if len(scenario.phases) == 1 else scenario.phases,
        "tok_s": medians,
        "tokens": {n: median(each.tokens for each in rounds) for n, rounds in found.items()},
        "best": best,
        **named("adaptive_to_best", to_best),
        **named("adaptive_to_off", to_base),
        "itl_p99": {name: median(values) for name, values in latencies.items()},
        **named("itl_p99_adaptive_to_off", latency),
        "rounds": {name: [asdict(each) for each in rounds] for name, rounds in found.items()},
    }


def named(name: str, ratio: Ratio) -> dict[str, float | None]:
    return {name: ratio.mean, f"{name}_low95": ratio.low95, f"{name}_high95": ratio.high95}


def table(document: dict[str, Any]) -> str:
    """A line for each level, and what comparing outputs gave."""
    lines = []
    for level in document["levels"] + document["steps"]:
        load = level["concurrency"]
        name = str(load) if isinstance(load, int) else ",".join(map(str, load))
        speeds = "  ".join(f"{name} {speed:.1f}" for name, speed in level["tok_s"].items())
        lines.append(
            f"C={name:>3} | tok/s: {speeds} | adaptive to {level['best']} (the best other): "
            f"{interval(level, 'adaptive_to_best')} | to off: {interval(level, 'adaptive_to_off')}"
            f" | itl p99 to off: {interval(level, 'itl_p99_adaptive_to_off')}"
        )
    return "\n".join(lines)


def interval(level: dict[str, Any], name: str) -> str:
    low, high = level[f"{name}_low95"], level[f"{name}_high95"]
    found = f"{level[name]:.3f}"
    return found if low is None else f"{found} ({low:.3f} to {high:.3f})"


def plot(document: dict[str, Any], path: Path) -> None:
    """Tokens per second over concurrency, and below it the ratio to the best other."""
    import matplotlib.pyplot as plt

    levels = document["levels"]
    loads = [level["concurrency"] for level in levels]
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7, 6), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    for name in levels[0]["tok_s"]:
        speeds = [level["tok_s"][name] for level in levels]
        width = 2.5 if name == OURS else 1.5
        top.plot(loads, speeds, marker="o", linewidth=width, label=name)
    top.set(ylabel="tok/s, all requests together", ylim=(0, None))
    top.legend()
    ratios = [level["adaptive_to_best"] for level in levels]
    ends = {
        end: [level[f"adaptive_to_best_{end}95"] or level["adaptive_to_best"] for level in levels]
        for end in ("low", "high")
    }
    reach = np.abs(np.array([ends["low"], ends["high"]]) - ratios)
    bottom.axhline(1, color="0.5", linewidth=1)
    color = f"C{list(levels[0]['tok_s']).index(OURS)}"
    bottom.errorbar(loads, ratios, reach, marker="o", capsize=3, color=color)
    bottom.set(
        xscale="log",
        xlabel="requests in flight",
        ylabel="adaptive to the best other\n(95% interval)",
    )
    bottom.set_xticks(loads, [str(load) for load in loads])
    bottom.minorticks_off()
    figure.savefig(path)
