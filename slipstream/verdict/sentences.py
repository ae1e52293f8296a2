"""What a verdict says, in words."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from slipstream.verdict.analysis import (
    Answer,
    Crossover,
    Ratio,
    answers,
    baseline,
    crossovers,
    names,
    single_choices,
)
from slipstream.verdict.results import Difference, Failure, Results

_NAMED = 4  # configurations in one sentence
IDLE_SLOTS = 0.9  # of the requests that should have been in flight


def times(ratio: Ratio | None) -> str:
    """``1.38 (1.31 to 1.45)``."""
    if ratio is None:
        return "-"
    return between(ratio.mean, ratio.low, ratio.high)


def between(mean: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"{mean:.2f}"
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def listed(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join([*filter(None, [", ".join(words[:-1])]), *words[-1:]])


def conclusions(results: Results) -> tuple[str, ...]:
    """The answer at each load, neighbours with the same answer as one; crossovers; one choice."""
    found = answers(results)
    grouped = groupby(found, key=_sameness)
    lines = [_answer(results, list(group)) for _, group in grouped]
    for name in names(results)[1:]:
        lines += [_crossover(results, one) for one in crossovers(results, name)]
    return (*lines, *_single_choice(results))


def _sameness(one: Answer) -> tuple[object, ...]:
    """What loads have in common that are told of together."""
    ahead = one.best[0] if one.kind == "several" else None
    return one.load.rate is None, one.kind, set(one.best), ahead


def _answer(results: Results, group: Sequence[Answer]) -> str:
    first, last = group[0], group[-1]
    where = first.load.label if first is last else f"{first.load.label} to {last.load.label}"
    return f"{where}: {_answer_text(results, group)}."


def _answer_text(results: Results, group: Sequence[Answer]) -> str:
    one, base = group[0], baseline(results)
    best = listed(one.best)
    if one.kind == "nothing":
        return "nothing could be measured"
    if one.kind == "alone":
        return f"only {best} could be measured"
    if one.kind == "no difference":
        widest = max(found.within or 0 for found in group)
        return f"no difference, none larger than {widest:.1%}"
    if one.kind == "could not tell":
        known = [found.within for found in group if found.within is not None]
        why = (
            f"there may be differences of {_much(max(known))}" if known else "one round is too few"
        )
        return f"could not tell, {why}"
    others = [found.ratios for found in group]
    if one.kind == "winner" and one.best[0] == base:
        reached = [f"{name} {_range(others, name)}" for name in one.ratios]
        return f"{base} is the fastest; of its speed the others have: {_few(reached)}"
    top, *rest = one.best
    ahead = f"{top} is the fastest" if one.kind == "winner" else f"{top} is ahead"
    if not one.ratios:  # the baseline is missing
        ahead += f" ({base} was not measured)"
    elif top != base:
        ahead += f", {_range(others, top)} times the speed of {base}"
    if not rest:
        return ahead
    speeds = [f"{name} {_range(others, name)}" if name in one.ratios else name for name in rest]
    # The interval that is shown is that of one comparison.
    alone = base in rest and any(found[top].sign > 0 for found in others if top in found)
    after_all = " once all pairs are compared" if alone else ""
    return f"{ahead}, but not surely faster than {_few(speeds)}{after_all}"


def _few(words: Sequence[str]) -> str:
    """The tables have them all."""
    more = len(words) - _NAMED
    return listed(words) if more <= 1 else listed([*words[:_NAMED], f"{more} others"])


def _much(difference: float) -> str:
    """``42%``; beyond twice the speed the factor."""
    return f"{difference:.0%}" if difference <= 1 else f"a factor of {1 + difference:.3g}"


def _range(ratios: Sequence[dict[str, Ratio]], name: str) -> str:
    """Of one load with its interval, of several the least and the most."""
    found = [one[name] for one in ratios if name in one]
    if len(found) == 1:
        return times(found[0])
    low, high = (f"{pick(found, key=lambda r: r.mean).mean:.2f}" for pick in (min, max))
    return low if low == high else f"{low} to {high}"


def _crossover(results: Results, one: Crossover) -> str:
    does = "stops being" if one.faster_below else "begins to be"
    base = baseline(results)
    if not one.certain:
        return (
            f"Perhaps {one.configuration} {does} faster than {base} near {one.at:.1f} requests in "
            "flight; the intervals do not confirm it."
        )
    low = "below what was measured" if one.low is None else f"{one.low:.1f}"
    high = "beyond what was measured" if one.high is None else f"{one.high:.1f}"
    return (
        f"{one.configuration} {does} faster than {base} at about {one.at:.1f} requests in flight "
        f"({low} to {high})."
    )


def _single_choice(results: Results) -> Iterator[str]:
    choices = single_choices(results)
    if len(choices) < 2 or len(results.loads) < 2:
        return
    best, base = choices[0], baseline(results)
    if best.name == base:
        yield f"As one setting for all of these loads: {base}."
        return
    doubt = "" if best.low and best.low > 1 else f", which is not surely more than {base}"
    yield (
        f"As one setting for all of these loads: {best.name}, on average "
        f"{between(best.mean, best.low, best.high)} times the speed of {base}{doubt}; "
        f"at worst {best.worst:.2f}, at {best.worst_load.label}."
    )


def warnings(results: Results) -> tuple[str, ...]:
    """What a reader must know before believing the numbers."""
    lines = [] if results.complete else ["The measuring was ended before it was complete."]
    lines += [_failure(failure) for failure in results.failures]
    lines += results.notes
    lines += [different(one) for one in results.differences if one.different]
    lines += _requests(results)
    return tuple(lines)


def _failure(failure: Failure) -> str:
    where = f" at {failure.load.label}" if failure.load else ""
    first = failure.reason.strip().partition("\n")[0].removesuffix("; its last lines:")
    reason = first or "no reason given"
    return f"{failure.configuration} failed{where}, round {failure.round + 1}: {reason}"


def different(one: Difference) -> str:
    """How many answers differ."""
    if not one.different:
        return f"{one.configuration}: all {one.compared} answers compared equal {one.baseline}'s."
    return (
        f"{one.configuration}: {one.different} of {one.compared} answers differ from "
        f"{one.baseline}'s at temperature 0."
    )


def _requests(results: Results) -> Iterator[str]:
    for name in names(results):
        for load in results.loads:
            found = [m for m in results.measurements if (m.configuration, m.load) == (name, load)]
            samples = [sample for m in found for sample in m.samples if sample.measured]
            failed = [sample for sample in samples if sample.error is not None]
            if failed:
                yield (
                    f"{name} at {load.label}: {len(failed)} of {len(samples)} requests failed; "
                    f"the first: {failed[0].error}"
                )
            if load.concurrency and any(m.in_flight < IDLE_SLOTS * load.concurrency for m in found):
                least = min(m.in_flight for m in found)
                yield (
                    f"{name} at {load.label}: only {least:.1f} requests were in flight on average."
                )
