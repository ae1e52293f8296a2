"""What a step costs while another process wants a core, by how long OpenMP threads spin.

    python benchmarks/contention.py

Each run is a fresh process with two threads that decodes one request of the default model, without
and with a busy neighbour. `slipstream.kernels` sets GOMP_SPINCOUNT unless it is set already.
"""

import os
import statistics
import subprocess
import sys
import time

from slipstream.engine.load import load_engine
from slipstream.engine.messages import Submit
from slipstream.engine.options import EngineOptions
from slipstream.engine.params import SamplingParams

SPIN_COUNTS = ("", "1000", "10000", "300000", "30000000000")  # empty: as Slipstream sets it


def step_ms() -> float:
    """Median of ten decoding steps."""
    engine, _ = load_engine(EngineOptions(model="default", threads=2))
    engine.submit(Submit(0, [1, 2, 3], SamplingParams(max_tokens=12, temperature=0)))
    engine.step()
    times = []
    while engine.busy:
        started = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - started)
    return 1000 * statistics.median(times)


def run(spin_count: str) -> float:
    """The same in a process of its own, since the count is read once."""
    environment = {key: value for key, value in os.environ.items() if key != "GOMP_SPINCOUNT"}
    if spin_count:
        environment["GOMP_SPINCOUNT"] = spin_count
    command = [sys.executable, __file__, "--one"]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)


def main() -> None:
    if "--one" in sys.argv:
        print(step_ms())
        return
    for spin_count in SPIN_COUNTS:
        alone = run(spin_count)
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as neighbour:
            beside = run(spin_count)
            neighbour.kill()
        name = spin_count or "as set"
        print(
            f"spin {name:>12}: step {alone:6.0f} ms alone, {beside:6.0f} ms beside another process"
        )


if __name__ == "__main__":
    main()
