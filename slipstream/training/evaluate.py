"""How often a drafter's guesses are accepted, by depth and by kind of text."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from rich.table import Table

from slipstream.engine.engine import Engine
from slipstream.engine.messages import Delta, Submit
from slipstream.engine.params import SamplingParams, Speculation, TreeShape

ALL = "all"


@dataclass(slots=True)
class Acceptance:
    """Steps of requests that draft; the step that emits a request's first token cannot."""

    accepted: list[int] = field(default_factory=list)  # draft nodes, of each step

    @property
    def accepted_length(self) -> float:
        """Tokens per step."""
        return 1 + sum(self.accepted) / max(len(self.accepted), 1)

    def by_depth(self, levels: int) -> list[float]:
        """Of the steps that accepted so many nodes, the share that accepted one more."""
        reached = [sum(n >= depth for n in self.accepted) for depth in range(levels + 1)]
        return [more / max(some, 1) for some, more in pairwise(reached)]


def evaluate(
    engine: Engine,
    prompts: Iterable[tuple[str, list[int]]],
    shape: TreeShape,
    max_tokens: int,
    stop_token_ids: tuple[int, ...],
    report: Callable[[str], None] = lambda kind: None,
) -> dict[str, Acceptance]:
    """Answer prompts (a kind, token ids) one by one, greedily, with trees of this shape.

    Returns the acceptance of each kind, and of ``all``. ``report`` is called after each prompt.
    """
    results: defaultdict[str, Acceptance] = defaultdict(Acceptance)
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=0,
        stop_token_ids=stop_token_ids,
        speculation=Speculation("fixed", shape),
    )
    for number, (kind, tokens) in enumerate(prompts):
        engine.submit(Submit(number, tokens, params))
        steps = [len(delta.token_ids) - 1 for delta in _deltas(engine)]
        for name in (kind, ALL):
            results[name].accepted += steps[1:]
        report(kind)
    return dict(results)


def _deltas(engine: Engine) -> Iterable[Delta]:
    while engine.busy:
        yield from engine.step()


def acceptance_table(results: Mapping[str, Acceptance], levels: int) -> Table:
    """A row for each kind of text, the whole last."""
    table = Table("text", "steps", "accepted length", *(f"depth {d + 1}" for d in range(levels)))
    for kind in ordered(results):
        acceptance = results[kind]
        shares = [f"{share:.2f}" for share in acceptance.by_depth(levels)]
        length = f"{acceptance.accepted_length:.2f}"
        table.add_row(kind, str(len(acceptance.accepted)), length, *shares)
    return table


def plot_acceptance(results: Mapping[str, Acceptance], levels: int, file: Path) -> None:
    """Acceptance over depth for each kind of text, as SVG or what the name's ending says."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    depths = range(1, levels + 1)
    for kind in ordered(results):
        acceptance = results[kind]
        width = 2.5 if kind == ALL else 1.2
        label = f"{kind}: accepted length {acceptance.accepted_length:.2f}"
        axes.plot(depths, acceptance.by_depth(levels), marker="o", linewidth=width, label=label)
    axes.set(xlabel="depth in the tree", ylabel="share accepted", ylim=(0, 1), xticks=depths)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(file)
    plt.close(figure)


def ordered(results: Mapping[str, Acceptance]) -> list[str]:
    """Kinds of text by name, the whole last."""
    return [*sorted(kind for kind in results if kind != ALL), ALL]
