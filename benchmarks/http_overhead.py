"""Processor time that serving costs beside the model: HTTP process, load generator, sending side.

    python benchmarks/http_overhead.py --concurrency 30 100

A real `slipstream serve` whose engine process has no model: each step gives every running request
one token, at `--rate` tokens a second in all. `slipstream bench`'s load generator drives it from
this process. Printed per level: microseconds of CPU per generated token in the three processes
(requests' own costs, parsing and tokenising, are spread over their 64 tokens); then milliseconds of
the HTTP process per request of one token, which is nearly all parsing and tokenising. CPU time, so
that a busy machine matters little.
"""

import argparse
import asyncio
import re
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvloop

from slipstream.bench.client import RequestForm, Target
from slipstream.bench.http import Endpoint
from slipstream.bench.level import Load, run_level
from slipstream.bench.prompt_sets import PromptDeck, load_prompts
from slipstream.engine.channel import Channel
from slipstream.engine.messages import Cancel, Delta, Drain, EngineStats, Ready, Report, Submit
from slipstream.engine.options import EngineOptions

SERVER = """
import slipstream.api.launch
slipstream.api.launch.ENGINE = {engine}
from slipstream.cli import main
main()
"""
TOKENS = range(1000, 2000)  # ids of ordinary words


@dataclass(slots=True)
class Running:
    """A request that has emitted ``emitted`` of its ``max_tokens``."""

    max_tokens: int
    emitted: int = 0


def run_engine(channel: Channel, rate: float) -> None:
    """Step until drained: one token for each request, ``rate`` tokens a second in all."""
    channel.send(Ready("none", 8192, 256))
    running: dict[int, Running] = {}
    generated, draining = 0, False
    due = time.perf_counter()
    while running or not draining:
        for command in channel.receive(wait=not running):
            match command:
                case Submit(id, _, params):
                    running[id] = Running(params.max_tokens)
                case Cancel(id):
                    running.pop(id, None)
                case Drain():
                    draining = True
        due = max(due, time.perf_counter()) + len(running) / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        deltas = []
        for id, request in list(running.items()):
            request.emitted += 1
            generated += 1
            finish = "length" if request.emitted == request.max_tokens else None
            deltas.append(Delta(id, [TOKENS[(generated * 7919) % len(TOKENS)]], finish))
            if finish:
                del running[id]
        channel.send(Report(deltas, EngineStats(generated_tokens_total=generated)))


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, from the scheduler's nanoseconds of all its threads."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


class Server:
    """The server under test and its engine."""

    def __init__(self, model: str, rate: float) -> None:
        program = SERVER.format(engine=(__file__, "--engine", "--rate", str(rate)))
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--port", "0", "--model", model],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.match(r"ready +(\S+)", line):
                self.url = found[1]
                break
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.engine_pid = int(children.read_text())

    def tokens(self) -> int:
        """Generated so far."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/metrics") as response:
            found = re.search(rb"^slipstream_generated_tokens_total (\S+)", response.read(), re.M)
        assert found is not None
        return int(float(found[1]))

    def reading(self) -> tuple[float, float, float, int]:
        """CPU seconds of the server, this process and the engine, and tokens, so far."""
        tokens = self.tokens()
        mine = time.process_time()
        return cpu_seconds(self.process.pid), mine, cpu_seconds(self.engine_pid), tokens


def measure(server: Server, concurrency: int, max_tokens: int, stream: bool) -> list[float]:
    """Microseconds per token in the server, this process and the engine, and tokens a second."""
    form = RequestForm("SmolLM2-135M-Instruct", stream=stream, ignore_eos=True)
    target = Target(Endpoint.of(server.url), form)
    deck = PromptDeck(load_prompts("coding"), 0)
    before, started = server.reading(), time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        run = runner.run(run_level(target, deck, Load(concurrency, max_tokens)))
    seconds, after = time.perf_counter() - started, server.reading()
    assert all(sample.error is None for sample in run.samples), run.samples[0].error
    *cpu, tokens = (late - early for early, late in zip(before, after, strict=True))
    return [*(1e6 * used / tokens for used in cpu), tokens / seconds]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--concurrency", type=int, nargs="+", default=[30, 100])
    parser.add_argument("--rate", type=float, default=2000, help="tokens a second")
    parser.add_argument("--model", default="default", help="whose tokenizer is used")
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--options", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        msgspec.json.decode(arguments.options, type=EngineOptions)
        run_engine(Channel(socket.socket(fileno=arguments.fd)), arguments.rate)
        return
    server = Server(arguments.model, arguments.rate)
    try:
        measure(server, 8, 16, stream=True)  # warm-up
        for concurrency in arguments.concurrency:
            for stream in (False, True):
                http, client, engine, rate = measure(server, concurrency, 64, stream)
                print(
                    f"C={concurrency:3d} {'streamed' if stream else 'whole   '} | "
                    f"CPU us/token: HTTP {http:6.1f}  client {client:6.1f}  engine {engine:6.1f} | "
                    f"{rate:6.0f} tok/s",
                    flush=True,
                )
        http, client, _, _ = measure(server, arguments.concurrency[-1], 1, stream=False)
        print(f"a request of one token: HTTP {http / 1e3:.2f} ms, client {client / 1e3:.2f} ms")
    finally:
        server.process.terminate()
        server.process.wait()


if __name__ == "__main__":
    main()
