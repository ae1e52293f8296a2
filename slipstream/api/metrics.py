"""What ``/metrics`` shows, in Prometheus' text format."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

import msgspec
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from slipstream.engine.messages import EngineStats

_PREFIX = "slipstream_"
_SHORT = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 10)
_LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

_HELP = {
    "steps_total": "Steps of the engine",
    "rows_total": "Rows of all steps: prompt tokens, roots and draft nodes",
    "prompt_tokens_total": "Prompt tokens computed",
    "cached_tokens_total": "Prompt tokens taken from the prefix cache",
    "generated_tokens_total": "Tokens emitted",
    "draft_nodes_total": "Draft nodes verified by the target",
    "accepted_nodes_total": "Draft nodes accepted",
    "preemptions_total": "Requests preempted for want of pages, to be recomputed",
    "evicted_pages_total": "Pages evicted from the prefix cache",
    "step_seconds_total": "Time spent in steps, drafting included",
    "drafted_nodes_total": "Draft nodes proposed, of which draft_nodes were worth verifying",
    "draft_seconds_total": "Time spent drafting",
    "expected_step_seconds_total": "Time that steps were expected to take, drafting apart",
    "expected_tokens_total": "Tokens expected of requests whose speculation adapts",
    "running": "Choices that take part in steps",
    "waiting": "Choices that wait for their first step",
    "pages": "Pages of the K/V pool",
    "pages_free": "Pages that nobody holds",
    "pages_cached": "Pages held by the prefix cache alone",
    "speculation": "Always 1; the label says why speculation is on or off",
}


class _EngineCollector(Collector):
    """Shows the engine's latest statistics, so nothing is copied while nobody looks."""

    def __init__(self, stats: Callable[[], EngineStats]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        for name, value in msgspec.structs.asdict(self._stats()).items():
            text = _HELP.get(name, name)
            if name.endswith("_total"):
                yield CounterMetricFamily(_PREFIX + name, text, value=value)
            elif isinstance(value, str):
                family = GaugeMetricFamily(_PREFIX + name, text, labels=["why"])
                family.add_metric([value], 1)
                yield family
            else:
                yield GaugeMetricFamily(_PREFIX + name, text, value=value)


class _Histogram(Collector):
    """Prometheus' own histogram takes microseconds and a lock for what happens once per token."""

    def __init__(self, name: str, text: str, buckets: tuple[float, ...]) -> None:
        """``buckets`` are upper bounds, ascending; one without a bound comes after them."""
        self._name = f"{_PREFIX}{name}_seconds"
        self._text = text
        self._bounds = buckets
        self._counts = [0] * (len(buckets) + 1)
        self._sum = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += times
        self._sum += seconds * times

    def collect(self) -> Iterator[Metric]:
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._text, buckets, self._sum)


class Metrics:
    """Counters and histograms of the HTTP process, and the engine's statistics beside them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            _PREFIX + "http_requests",
            "HTTP requests answered",
            ("path", "status"),
            registry=self._registry,
        )
        self._choices = Counter(
            _PREFIX + "choices",
            "Choices ended, by reason: stop, length, cancelled",
            ("finish_reason",),
            registry=self._registry,
        )
        self._first = self._histogram("time_to_first_token", "Arrival to first token", _LONG)
        self._between = self._histogram("inter_token_latency", "Time per later token", _SHORT)
        self._whole = self._histogram("request_latency", "Arrival to last token", _LONG)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> _Histogram:
        histogram = _Histogram(name, text, buckets)
        self._registry.register(histogram)
        return histogram

    def show_engine(self, stats: Callable[[], EngineStats]) -> None:
        """Include the engine's statistics from now on."""
        self._registry.register(_EngineCollector(stats))

    def answered(self, path: str, status: int) -> None:
        self._requests.labels(path, str(status)).inc()

    def first_token(self, seconds: float) -> None:
        self._first.observe(seconds)

    def later_tokens(self, seconds: float, tokens: int) -> None:
        """``tokens`` came together, ``seconds`` after the ones before them."""
        self._between.observe(seconds / tokens, tokens)

    def choice_ended(self, finish_reason: str, seconds: float) -> None:
        self._choices.labels(finish_reason).inc()
        if finish_reason != "cancelled":
            self._whole.observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self._registry)
