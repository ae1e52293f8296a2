"""The life of ``slipstream serve``: socket, engine, HTTP, and an orderly end."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn
import uvloop

import slipstream
from slipstream.api.app import create_app
from slipstream.api.engine_client import EngineDiedError
from slipstream.api.engine_process import EngineProcess
from slipstream.api.launch import LaunchedEngine
from slipstream.api.service import ServerState, Service
from slipstream.api.translate import Limits
from slipstream.engine.messages import Ready
from slipstream.engine.options import EngineOptions
from slipstream.models.checkpoint import Checkpoint, open_checkpoint
from slipstream.models.tokenizer import load_tokenizer

_GRACE = 5  # seconds that slow readers have to take their last bytes
_GARBAGE = 50_000  # objects, allocated and not freed, before cycles are searched
_INTERRUPTED = 130  # exit status after a second Ctrl-C


@dataclass(frozen=True)
class ServeOptions:
    """What the command line says about serving, beside where to listen."""

    engine: EngineOptions
    api_key: str | None
    served_model_name: str | None
    max_queued_requests: int
    log_level: str


def run_server(options: ServeOptions, listener: socket.socket, launched: LaunchedEngine) -> int:
    """Serve until told to stop; gives the exit status. Raises UserError if it cannot start."""
    logging.basicConfig(level=options.log_level.upper(), format="%(levelname)s %(message)s")
    say(f"Slipstream {slipstream.__version__}")
    checkpoint = open_checkpoint(options.engine.model)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Life(options, listener, checkpoint).run(launched))


def say(line: str) -> None:
    """Tell the person who started the server, if somebody still listens."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


class _HTTPServer(uvicorn.Server):
    """Uvicorn without its signal handling: what a signal means is decided here."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Life:
    """One server from start to end."""

    def __init__(
        self, options: ServeOptions, listener: socket.socket, checkpoint: Checkpoint
    ) -> None:
        self._options = options
        self._listener = listener
        self._checkpoint = checkpoint
        self._name = options.served_model_name or checkpoint.name
        self._state = ServerState()
        self._engine: EngineProcess | None = None
        self._signals = 0
        debug = options.log_level == "debug"
        self._http = _HTTPServer(
            uvicorn.Config(
                create_app(self._state, options.api_key),
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="info" if debug else "warning",
                access_log=debug,
                server_header=False,
                proxy_headers=False,  # nobody asks for the client's address
                timeout_keep_alive=60,
                timeout_graceful_shutdown=_GRACE,
            )
        )

    async def run(self, launched: LaunchedEngine) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        http = asyncio.ensure_future(self._http.serve(sockets=[self._listener]))
        self._engine = await EngineProcess.connect(launched)
        try:
            return await self._serve(self._engine)
        finally:
            self._state.unavailable = "the server is shutting down"
            self._engine.kill()
            await self._engine.exited
            self._http.should_exit = True
            await http

    async def _serve(self, engine: EngineProcess) -> int:
        say(f"loading  {self._name}")
        try:
            tokenizer = await asyncio.to_thread(load_tokenizer, self._checkpoint)
            ready = await engine.client.ready
        except EngineDiedError as error:
            if self._signals:
                return 0
            say(f"error: {error} before it was ready")
            return 1
        self._start_serving(
            Service(
                name=self._name,
                tokenizer=tokenizer,
                limits=Limits(
                    vocab_size=self._checkpoint.config.vocab_size,
                    max_model_len=ready.max_model_len,
                    max_step_rows=self._options.engine.max_step_rows,
                    eos_token_ids=tokenizer.eos_token_ids,
                ),
                client=engine.client,
                metrics=self._state.metrics,
                capacity=ready.max_running_requests + self._options.max_queued_requests,
                kernels=ready.kernels,
            ),
            ready,
        )
        return self._ended(await engine.exited)

    def _start_serving(self, service: Service, ready: Ready) -> None:
        self._state.service = service
        self._state.metrics.show_engine(lambda: service.client.stats)
        if not self._signals:
            self._state.unavailable = None
        # What is loaded stays, and requests leave few cycles: searching for them holds up streams.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GARBAGE)
        host, port = self._listener.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        say(f"kernels  {ready.kernels}")
        say(
            f"limits   {ready.max_model_len} tokens of context, {ready.max_running_requests} "
            "requests at once"
        )
        say(f"ready    http://{address}:{port}/v1")

    def _ended(self, code: int) -> int:
        """The exit status that follows from the engine's."""
        if self._signals > 1:
            return _INTERRUPTED
        if self._signals == 1 and code == 0:
            say("stopped")
            return 0
        assert self._engine is not None
        say(f"error: {self._engine.client.failure}")
        return 1

    def _on_signal(self) -> None:
        """The first signal lets running requests finish; the second does not."""
        self._signals += 1
        self._state.unavailable = "the server is shutting down"
        if self._engine is None:
            return
        if self._signals == 1 and self._state.service is not None:
            running = self._engine.client.in_flight
            say(f"stopping: {running} running or queued; once more to stop at once")
            self._engine.client.drain()
        else:
            self._http.force_exit = True
            self._engine.kill()
