"""Charts as SVG, drawn by hand: small, without fonts of their own, in the colours of the page.

Colours come from classes (``s0`` to ``s7``), so that style sheets can change them for dark
screens and for paper. A chart is narrow enough for its text to be legible on a phone.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from slipstream.verdict.report import Chart, Point, Series

WIDTH, HEIGHT = 440, 270
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 12, 42
COLOURS = 8
_MARKERS = "osdt"  # circle, square, diamond, triangle


@dataclass(frozen=True)
class _Scale:
    """From data to the picture; x is logarithmic, y where it is asked for."""

    x: tuple[float, float]
    y: tuple[float, float]
    log_y: bool

    def at(self, x: float, y: float) -> tuple[float, float]:
        low, high = self.x
        across = 0.5 if low == high else math.log(x / low) / math.log(high / low)
        bottom, top = self.y
        up = (y - bottom) / (top - bottom)
        if self.log_y:
            up = math.log(y / bottom) / math.log(top / bottom)
        inner = 0.04 + 0.92 * across
        return (
            LEFT + inner * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM),
        )


def svg(chart: Chart) -> str:
    """The whole element. It has at least one point."""
    xs = sorted({point.x for one in chart.series for point in one.points})
    ticks = _ticks(chart)
    scale = _Scale((xs[0], xs[-1]), (ticks[0], ticks[-1]), chart.scale == "log")
    label = escape(f"{chart.title}, by {chart.x_label}")
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" '
        'xmlns="http://www.w3.org/2000/svg">',
        *_axes(chart, scale, xs, ticks),
    ]
    for place, one in enumerate(chart.series):
        shift = 3 * (place - (len(chart.series) - 1) / 2) if _has_intervals(chart) else 0
        parts += _line(one, scale, shift)
    return "".join([*parts, "</svg>"])


def _has_intervals(chart: Chart) -> bool:
    return any(point.low is not None for one in chart.series for point in one.points)


def _axes(
    chart: Chart, scale: _Scale, xs: Sequence[float], ticks: Sequence[float]
) -> Iterable[str]:
    for tick in ticks:
        _, y = scale.at(xs[0], tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="end" x="{LEFT - 7}" y="{y + 4:.1f}">{tick:,.10g}</text>'
    if chart.reference is not None:
        _, y = scale.at(xs[0], chart.reference)
        yield f'<line class="one" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    written = -math.inf
    for value in xs:
        x, _ = scale.at(value, ticks[0])
        if x - written >= 26:
            yield f'<text class="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}">{value:g}</text>'
            written = x
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text class="middle" x="{middle}" y="{HEIGHT - 6}">{escape(chart.x_label)}</text>'


def _line(one: Series, scale: _Scale, shift: float) -> Iterable[str]:
    dashed = " dashed" if one.dashed else ""
    places = [scale.at(point.x, point.y) for point in one.points]
    path = " ".join(f"{x + shift:.1f},{y:.1f}" for x, y in places)
    yield f'<g class="s{one.number % COLOURS}{dashed}">'
    yield f'<polyline points="{path}"/>'
    for point, (x, y) in zip(one.points, places, strict=True):
        if point.low is not None and point.high is not None:
            low, high = scale.at(point.x, point.low)[1], scale.at(point.x, point.high)[1]
            yield f'<path class="interval" d="{_whisker(x + shift, low, high)}"/>'
        # Those that share a colour differ in their marker.
        kind = (one.number + one.number // COLOURS) % len(_MARKERS)
        mark = _marker(_MARKERS[kind], x + shift, y)
        yield f"<g>{mark}<title>{escape(_tip(one, point))}</title></g>"
    yield "</g>"


def _whisker(x: float, low: float, high: float) -> str:
    return f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8"


def _marker(kind: str, x: float, y: float) -> str:
    if kind == "o":
        return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
    path = {
        "s": f"M{x - 3.2:.1f} {y - 3.2:.1f}h6.4v6.4h-6.4z",
        "d": f"M{x:.1f} {y - 4.6:.1f}l4.6 4.6l-4.6 4.6l-4.6 -4.6z",
        "t": f"M{x:.1f} {y - 4.4:.1f}l4.4 7.6h-8.8z",
    }[kind]
    return f'<path class="mark" d="{path}"/>'


def _tip(one: Series, point: Point) -> str:
    text = f"{one.name} at {point.x:g}: {point.y:.4g}"
    if point.low is None or point.high is None:
        return text
    return f"{text} ({point.low:.4g} to {point.high:.4g})"


def _ticks(chart: Chart) -> list[float]:
    """Round numbers around all that is shown."""
    points = [point for one in chart.series for point in one.points]
    values = [v for p in points for v in (p.y, p.low, p.high) if v is not None]
    # A very wide interval may leave the picture; the means may not.
    middle = [point.y for point in points]
    low = max(min(values), min(middle) / 2)
    high = min(max(values), max(middle) * 1.6)
    if chart.reference is not None:
        low, high = min(low, chart.reference), max(high, chart.reference)
    if chart.scale == "log":
        return _log_ticks(low, high)
    if chart.scale == "zero":
        low = 0.0
    if high - low < 0.02 * abs(high):
        low, high = low - 0.05 * abs(high), high + 0.05 * abs(high)
    step = _step((high - low) / 5)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(step * n, 10) for n in range(first, max(last, first + 1) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, or the powers alone where that would be many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    powers = range(first, max(last, first + 1) + 1)
    if last - first > 2:
        return [10.0**power for power in powers]
    every = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    bottom = max(tick for tick in every if tick <= low * 1.001)
    top = min(tick for tick in every if tick >= high * 0.999 and tick > bottom)
    return [tick for tick in every if bottom <= tick <= top]


def _step(least: float) -> float:
    """The round number, 1, 2 or 5 times a power of ten, that is not less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999)
