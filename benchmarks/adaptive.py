"""Whether adaptive speculation is ever slower than the best static setting, over HTTP.

    python benchmarks/adaptive.py --concurrency 1 2 5 10 30 70 100 250 --json adaptive.json

One `slipstream serve` per configuration. All are started at the beginning and measured one at a
time; that the others sleep meanwhile is measured, too. A round goes through all levels, at each
through all configurations, in an order that reverses from round to round. Each measurement warms up
at its level and, without draining, counts the tokens that arrive in a window of `--seconds`.

Within a round all configurations get the same prompts in the same order. Every prompt starts with a
number of its own, so that no prefix cache ever knows it. End tokens are respected.

`adaptive_to_best` is the geometric mean over rounds of the ratio to the best other configuration,
the one with the highest median over all rounds; choosing it afterwards favours it by what chance
adds. `..._low95` is the lower end of Student's two-sided 95% interval of the logarithms.

Beside each level's load, in a pass of its own, every server answers the same greedy and the same
seeded sampled requests, which must give the token ids that `off` gave alone.

    --steps 1,60,1,60 --step-seconds 10     a load that steps; all tokens are compared
    --noise                                 a drafter whose weights are random
    --prompts encyclopedic --temperature 0.8
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from adaptive_report import (
    BASE,
    OURS,
    Equality,
    Measurement,
    Results,
    Scenario,
    described,
    differences,
    plot,
    summary,
    table,
)
from noise_drafter import write_noise_drafter

from slipstream.bench.client import RequestForm, Target
from slipstream.bench.http import Connection, Endpoint
from slipstream.bench.in_flight import InFlight
from slipstream.bench.process_tree import cpu_seconds, members
from slipstream.bench.prompt_sets import Prompt, PromptDeck, load_prompts, numbered
from slipstream.bench.server_metrics import read_metrics
from slipstream.bench.servers import Launch, Server, free_port
from slipstream.bench.statistics import inter_token_latency_between, tokens_between
from slipstream.errors import UserError

SHAPE = (
    "--speculative-num-steps",
    "--speculative-eagle-topk",
    "--speculative-num-draft-tokens",
)
CONFIGURATIONS = {
    "off": ["--speculation", "off"],
    "fixed": ["--speculation", "fixed", SHAPE[0], "4", SHAPE[1], "4", SHAPE[2], "16"],
    "fixed-small": ["--speculation", "fixed", SHAPE[0], "2", SHAPE[1], "1", SHAPE[2], "3"],
    "adaptive": ["--speculation", "adaptive"],
}
IDLE_SHARE = 0.01  # of a core: more is not sleeping
EQUAL_TOKENS = 64


@dataclass
class Running:
    """A configuration's server."""

    server: Server
    target: Target
    pids: list[int]


async def measure(
    name: str, servers: dict[str, Running], scenario: Scenario, prompts: Iterator[Prompt], most: int
) -> Measurement:
    """One window of one configuration. Raises ``UserError`` if a request fails."""
    running = servers[name]
    idle = [pid for other in servers.values() if other is not running for pid in other.pids]
    async with InFlight(running.target, lambda: next(prompts), most) as load:
        load.resize(scenario.phases[0])
        await load.steady()
        before = await read_metrics(running.target.endpoint)
        cpu, client, start = cpu_seconds(idle), time.process_time(), time.perf_counter()
        for phase in scenario.phases:
            load.resize(phase)
            await asyncio.sleep(scenario.seconds)
        end = time.perf_counter()
        cpu, client = cpu_seconds(idle) - cpu, time.process_time() - client
        after = await read_metrics(running.target.endpoint)
    if failed := [sample.error for sample in load.samples if sample.error is not None]:
        running.server.check()
        raise UserError(f"{name}: {len(failed)} requests failed, the first: {failed[0]}")
    await settle(running)
    tokens = tokens_between(load.samples, start, end)
    latency = inter_token_latency_between(load.samples, start, end)
    if latency is None or not tokens:
        raise UserError(f"{name}: hardly a token within {end - start:.0f} s; give more --seconds")
    return Measurement(
        tokens=tokens,
        tok_s=tokens / (end - start),
        itl_p99=latency.p99,
        **speculated(before, after),
        others_cpu=cpu / (end - start),
        client_cpu=client / (end - start),
    )


def speculated(before: dict[str, float], after: dict[str, float]) -> dict[str, float | None]:
    """What the engine's counters at both ends say about a window."""
    rows, nodes, accepted, tokens = (
        after[f"slipstream_{name}_total"] - before[f"slipstream_{name}_total"]
        for name in ("rows", "draft_nodes", "accepted_nodes", "generated_tokens")
    )
    return {
        "accepted_length": tokens / (tokens - accepted) if tokens else None,
        "drafted_rows": nodes / rows if rows else None,
        "acceptance": accepted / nodes if nodes else None,
    }


async def settle(running: Running) -> None:
    """Wait until the server has nothing left to do."""
    async with asyncio.timeout(60):
        while True:
            found = await read_metrics(running.target.endpoint)
            if not found["slipstream_running"] and not found["slipstream_waiting"]:
                return
            await asyncio.sleep(0.05)


async def token_ids(endpoint: Endpoint, body: dict[str, Any]) -> list[int]:
    """What the server answers to one request."""
    connection = Connection(endpoint)
    request = endpoint.request("POST", "/chat/completions", json.dumps(body).encode())
    try:
        response = await connection.exchange(request, lambda piece, now: None)
    finally:
        connection.close()
    if response.status != 200:
        raise UserError(f"HTTP {response.status}: {response.body.decode(errors='replace')}")
    ids: list[int] = json.loads(response.body)["choices"][0]["token_ids"]
    return ids


class Comparer:
    """Asks every server the same and compares with what ``off`` answered alone."""

    def __init__(self, prompts: list[Prompt], each: int) -> None:
        """``each`` greedy and as many sampled requests."""
        common = {"max_tokens": EQUAL_TOKENS, "return_token_ids": True}
        self._bodies = [
            common | {"messages": prompt, "temperature": temperature, "seed": seed}
            for temperature in (0.0, 0.8)
            for seed, prompt in enumerate(prompts[:each])
        ]
        self._expected: list[list[int]] = []
        self.found = Equality()

    async def _ask(self, running: Running) -> list[list[int]]:
        endpoint = running.target.endpoint
        return await asyncio.gather(*(token_ids(endpoint, body) for body in self._bodies))

    async def compare(
        self, name: str, servers: dict[str, Running], load: int, prompts: Iterator[Prompt]
    ) -> None:
        """Ask while ``load`` other requests are in flight."""
        running, found = servers[name], self.found
        self._expected = self._expected or await self._ask(servers[BASE])
        before = await read_metrics(running.target.endpoint)
        async with InFlight(running.target, lambda: next(prompts), EQUAL_TOKENS) as others:
            others.resize(load)
            answers = await self._ask(running)
        after = await read_metrics(running.target.endpoint)
        await settle(running)
        for number, (answer, expected) in enumerate(zip(answers, self._expected, strict=True)):
            found.requests += 1
            found.tokens += len(expected)
            if answer != expected:
                found.different.append(f"{name}, {load} in flight, request {number}")
        key = "slipstream_draft_nodes_total"
        found.draft_nodes[name] = found.draft_nodes.get(name, 0) + after[key] - before[key]


def launch(name: str, arguments: argparse.Namespace, drafter: str, port: int) -> Launch:
    command = [sys.executable, "-m", "slipstream", "serve", "--port", str(port)]
    command += ["--model", arguments.model, "--drafter", drafter]
    command += ["--kv-memory", arguments.kv_memory, *CONFIGURATIONS[name]]
    if arguments.threads:
        command += ["--threads", str(arguments.threads)]
    return Launch(name, command)


async def start(stack: ExitStack, arguments: argparse.Namespace) -> dict[str, Running]:
    """Start all servers, and check that they sleep when nobody asks them for anything."""
    drafter = arguments.drafter
    if arguments.noise:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "noise"
        write_noise_drafter(folder)
        drafter = str(folder)
    ports = {name: free_port() for name in arguments.configurations}
    launched = {
        name: stack.enter_context(Server(launch(name, arguments, drafter, port)))
        for name, port in ports.items()
    }
    sampled = arguments.temperature > 0
    form = RequestForm("", temperature=arguments.temperature, seed=0 if sampled else None)
    servers = {}
    for name, server in launched.items():
        wanted = Target(Endpoint.of(f"http://127.0.0.1:{ports[name]}"), form)
        target, notes = await server.ready(wanted)
        servers[name] = Running(server, target, members(server.mark))
        say(" | ".join([f"{name} is ready", *notes]))
    for name, running in servers.items():
        await settle(running)
        used = cpu_seconds(running.pids)
        await asyncio.sleep(2)
        used = (cpu_seconds(running.pids) - used) / 2
        word = "sleeps" if used < IDLE_SHARE else "DOES NOT SLEEP"
        say(f"{name} {word} when idle: {used:.2%} of a core")
    return servers


async def run(arguments: argparse.Namespace, scenarios: list[Scenario]) -> dict[str, Any]:
    """All rounds and comparisons; the file is written after each round."""
    prompts = load_prompts(arguments.prompts)
    results: Results = {s.name: {n: [] for n in arguments.configurations} for s in scenarios}
    comparer = Comparer(prompts, arguments.equal)
    write(arguments.json, {})  # now, if it cannot be written
    with ExitStack() as stack:
        servers = await start(stack, arguments)
        clock = Clock(scenarios, arguments.rounds * len(servers))
        for number in range(arguments.rounds):
            order = list(servers) if number % 2 == 0 else list(reversed(servers))
            for place, scenario in enumerate(scenarios):
                for name in order:
                    deck = PromptDeck(prompts, seed=number * len(scenarios) + place)
                    dealt = numbered(deck, f"{number}-{place}")
                    found = await measure(name, servers, scenario, dealt, arguments.max_tokens)
                    results[scenario.name][name].append(found)
                    say(f"{clock.tick(scenario)} | {described(number, scenario, name, found)}")
            document = summary(scenarios, results, comparer.found, vars(arguments))
            write(arguments.json, document)
        for load in sorted({max(scenario.phases) for scenario in scenarios}):
            for name in servers if arguments.equal else ():
                dealt = numbered(PromptDeck(prompts, seed=-1), f"{arguments.rounds}-{load}")
                await comparer.compare(name, servers, load, dealt)
            say(f"outputs compared beside {load} in flight: {differences(comparer.found)}")
    document = summary(scenarios, results, comparer.found, vars(arguments))
    write(arguments.json, document)
    return document


class Clock:
    """How much is done, and how long the rest will take."""

    def __init__(self, scenarios: list[Scenario], times: int) -> None:
        self._total = times * sum(self._cost(scenario) for scenario in scenarios)
        self._done, self._start = 0.0, time.monotonic()

    @staticmethod
    def _cost(scenario: Scenario) -> float:
        """Roughly in seconds: warming up takes longer, the more requests there are."""
        return len(scenario.phases) * scenario.seconds + 3 + 0.1 * scenario.phases[0]

    def tick(self, scenario: Scenario) -> str:
        """After a measurement: the time left."""
        self._done += self._cost(scenario)
        left = (time.monotonic() - self._start) * (self._total / self._done - 1)
        return f"{left / 60:3.0f} min left"


def say(line: str) -> None:
    print(line, flush=True)


def write(path: Path | None, document: dict[str, Any]) -> None:
    if path:
        path.write_text(json.dumps(document, indent=1) + "\n")


def phases(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def configurations(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(CONFIGURATIONS):
        raise argparse.ArgumentTypeError(f"there is no {', '.join(sorted(unknown))}")
    return [name for name in CONFIGURATIONS if name in {*names, BASE, OURS}]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    levels = [1, 2, 5, 10, 30, 70, 100, 250]
    parser.add_argument(
        "--configurations",
        type=configurations,
        default=list(CONFIGURATIONS),
        metavar="NAME,...",
        help=f"of {', '.join(CONFIGURATIONS)}; {BASE} and {OURS} are always there",
    )
    parser.add_argument("--concurrency", type=int, nargs="*", default=levels)
    parser.add_argument("--seconds", type=float, default=20, help="of a window")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=phases, help="requests in flight in turn, like 1,60,1,60")
    parser.add_argument("--step-seconds", type=float, default=10)
    parser.add_argument("--max-tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--prompts", default="coding", help="coding, encyclopedic, or a file")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--equal", type=int, default=4, help="requests of each kind to compare")
    parser.add_argument("--model", default="default")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--noise", action="store_true", help="a drafter of random weights")
    parser.add_argument("--threads", type=int, help="of each server")
    parser.add_argument("--kv-memory", default="3GiB", help="of each server")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    scenarios = [Scenario(str(n), (n,), arguments.seconds) for n in arguments.concurrency]
    if arguments.steps:
        name = ",".join(map(str, arguments.steps))
        scenarios.append(Scenario(name, arguments.steps, arguments.step_seconds))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            document = runner.run(run(arguments, scenarios))
    except (UserError, OSError) as error:
        sys.exit(f"error: {error}")
    say(table(document))
    if arguments.plot and document["levels"]:
        plot(document, arguments.plot)
    if document["differences"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
