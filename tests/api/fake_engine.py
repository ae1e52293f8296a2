"""An engine without a model: it speaks ``engine/messages.py`` and follows a script.

In tests it runs as a task beside the server, or (``python fake_engine.py --fd N --options ...``)
as the engine process.
"""

import argparse
import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from slipstream.engine.messages import (
    Cancel,
    Delta,
    Drain,
    EngineStats,
    Failed,
    Ready,
    Report,
    Submit,
    TokenLogprobs,
    decode_commands,
    frame,
)

# What a request emits, step by step; it is cut at max_tokens and at stop tokens.
Script = Callable[[Submit], Iterator[list[int]]]


@dataclass
class _Running:
    submit: Submit
    steps: Iterator[list[int]]
    emitted: int = 0


@dataclass
class FakeEngine:
    """Scripted; records what it was told."""

    script: Script
    max_model_len: int = 4096
    max_running_requests: int = 8
    step_seconds: float = 0.0
    cached_tokens: int = 0
    submitted: list[Submit] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    frames: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)  # cleared: no steps are made

    def __post_init__(self) -> None:
        self.go.set()
        self._running: dict[int, _Running] = {}
        self._draining = False
        self._generated = 0

    async def serve(self, end: socket.socket) -> None:
        """Run on ``end`` until drained or the other side goes."""
        reader, self._writer = await asyncio.open_connection(sock=end)
        self._writer.write(frame(Ready("fake", self.max_model_len, self.max_running_requests)))
        stepping = asyncio.ensure_future(self._step_forever())
        try:
            listening = asyncio.ensure_future(self._listen(reader))
            await asyncio.wait((stepping, listening), return_when=asyncio.FIRST_COMPLETED)
            listening.cancel()
        finally:
            stepping.cancel()
            self._writer.close()

    def die(self) -> None:
        """Drop the connection, as a crash does."""
        self._writer.transport.abort()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                size = int.from_bytes(await reader.readexactly(4), "little")
                document = await reader.readexactly(size)
            except asyncio.IncompleteReadError:
                return
            self.frames += 1
            for command in decode_commands(document).commands:
                match command:
                    case Submit():
                        self.submitted.append(command)
                        self._running[command.id] = _Running(command, self.script(command))
                    case Cancel(request_id):
                        self.cancelled.append(request_id)
                        self._running.pop(request_id, None)
                    case Drain():
                        self._draining = True

    async def _step_forever(self) -> None:
        while self._running or not self._draining:
            await self.go.wait()
            deltas = [self._step(running) for running in list(self._running.values())]
            if deltas:
                self._writer.write(frame(Report(deltas, self._stats())))
            await asyncio.sleep(self.step_seconds or 0.001)

    def _step(self, running: _Running) -> Delta:
        params = running.submit.params
        token_ids = next(running.steps)[: params.max_tokens - running.emitted]
        stops = [i for i, token in enumerate(token_ids) if token in params.stop_token_ids]
        if stops:
            token_ids = token_ids[: stops[0] + 1]
        running.emitted += len(token_ids)
        self._generated += len(token_ids)
        finish = "stop" if stops else "length" if running.emitted == params.max_tokens else None
        if finish:
            del self._running[running.submit.id]
        logprobs = None
        if params.logprobs is not None:
            top = [(token, -0.5 - token) for token in range(params.logprobs)]
            logprobs = [TokenLogprobs(-0.25 - token, top) for token in token_ids]
        return Delta(running.submit.id, token_ids, finish, logprobs, self.cached_tokens)

    def _stats(self) -> EngineStats:
        return EngineStats(generated_tokens_total=self._generated, running=len(self._running))


def cycle(step: list[int]) -> Script:
    """The same tokens in every step, for ever."""

    def script(_: Submit) -> Iterator[list[int]]:
        while True:
            yield step

    return script


def main() -> Any:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int)
    parser.add_argument("--options")
    arguments = parser.parse_args()
    options = msgspec.json.decode(arguments.options)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = socket.socket(fileno=arguments.fd)
    behaviour = os.environ.get("FAKE_ENGINE", "")
    if behaviour == "failed":
        end.sendall(frame(Failed("the fake model is broken")))
        return 2
    if behaviour == "crash":
        return 3

    async def run() -> None:
        # Token 38 is one letter in the default model's vocabulary.
        engine = FakeEngine(
            cycle([38]), max_running_requests=options["max_running_requests"], step_seconds=0.02
        )
        await engine.serve(end)
        if not engine._draining:
            raise SystemExit(1)

    asyncio.run(run())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
