"""Results of servers whose true speed is known."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from slipstream.verdict.results import (
    Configuration,
    Load,
    Measurement,
    Percentiles,
    RequestSample,
    Results,
    Settings,
)

Speed = Callable[[int], float]  # tokens per second by concurrency


def measurement(
    name: str, load: Load, round_: int, tok_s: float, *, latency: bool = True
) -> Measurement:
    concurrency = load.concurrency or 1
    gap = concurrency / tok_s
    spread = Percentiles(gap, gap, 1.5 * gap, 2 * gap) if latency else None
    scaled = [
        Percentiles(k * gap, k * gap, 1.5 * k * gap, 2 * k * gap) if latency else None
        for k in (64, 3)
    ]
    return Measurement(
        configuration=name,
        load=load,
        round=round_,
        window_s=20.0,
        tok_s=tok_s,
        per_request_tok_s=tok_s / concurrency,
        latency_s=scaled[0],
        ttft_s=scaled[1],
        itl_s=spread,
        accepted_length=1.0 if name == "off" else 2.1,
        in_flight=float(concurrency),
        client_cpu_share=0.08,
        event_loop_lag_s=0.004,
        samples=[RequestSample(0.0, 64 * gap, 3 * gap if latency else None, 64.0, True)],
    )


def configuration(
    name: str, draft_tokens: int | None, command: Sequence[str] = (), engine: str = "slipstream"
) -> Configuration:
    return Configuration(
        name=name,
        command=list(command) or ["slipstream", "serve", "--speculation", name],
        url="http://127.0.0.1:30000",
        engine=engine,
        model="SmolLM2-135M-Instruct",
        draft_tokens=draft_tokens,
        versions={"slipstream": "0.1.0"},
    )


def results(
    speeds: Mapping[str, Speed],
    concurrencies: Sequence[int] = (1, 2, 5, 10, 30),
    *,
    rounds: int = 6,
    noise: float = 0.01,
    drift: float = 0.1,
    seed: int = 0,
    configurations: Sequence[Configuration] | None = None,
) -> Results:
    """Each round's speeds: the true one, times the round's drift, times noise of its own."""
    random = np.random.default_rng(seed)
    found = []
    for round_ in range(rounds):
        for concurrency in concurrencies:
            common = random.normal(0, drift)
            for name, speed in speeds.items():
                value = speed(concurrency) * math.exp(common + random.normal(0, noise))
                found.append(measurement(name, Load(concurrency), round_, value))
    known = {"off": 0, "fixed": 15, "small": 3, "adaptive": None}
    return Results(
        created="2026-11-30T12:00:00+00:00",
        slipstream="0.1.0",
        hardware={"cpu": "Testium 4000", "cores": "2"},
        settings=Settings("coding", 64, 0.0, True, rounds, stop_early=False),
        configurations=list(
            configurations or [configuration(name, known.get(name)) for name in speeds]
        ),
        loads=[Load(concurrency) for concurrency in concurrencies],
        measurements=found,
        complete=True,
    )


def off(concurrency: int) -> float:
    """Saturates: twice the requests, less than twice the tokens."""
    return 40 * concurrency / (1 + concurrency / 20)


def paying_until(crossover: float, gain: float = 0.25) -> Speed:
    """``off`` times a ratio that is a straight line over the logarithm of the concurrency."""
    return lambda c: off(c) * math.exp(-gain * math.log(c / crossover))
