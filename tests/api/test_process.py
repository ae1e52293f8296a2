"""The two processes: start, signals, and the death of either. The engine is scripted."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM

import openai
import pytest

from tests.serving import ROOT, ServeProcess, alive, serve

PROGRAM = """
import slipstream.api.launch
slipstream.api.launch.ENGINE = ("-m", "tests.api.fake_engine")
from slipstream.cli import main
main()
"""


@pytest.fixture
def server() -> Iterator[ServeProcess]:
    with serve(program=PROGRAM) as running:
        yield running


def client(server: ServeProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


class Stream(threading.Thread):
    """A streamed request that runs beside the test."""

    def __init__(self, server: ServeProcess, max_tokens: int) -> None:
        super().__init__(daemon=True)
        self._client = client(server)
        self._max_tokens = max_tokens
        self.begun = threading.Event()
        self.tokens = 0  # each is one letter
        self.finish_reason: str | None = None
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            model = self._client.models.list().data[0].id
            for chunk in self._client.completions.create(
                model=model, prompt="Hi", max_tokens=self._max_tokens, stream=True
            ):
                self.begun.set()
                self.tokens += len(chunk.choices[0].text)
                self.finish_reason = chunk.choices[0].finish_reason
        except Exception as error:
            self.error = error


def test_an_interrupt_lets_running_requests_finish(server: ServeProcess) -> None:
    stream = Stream(server, 60)
    assert stream.begun.wait(20)
    server.signal(SIGINT)
    server.wait_for("^stopping: 1 ")
    with pytest.raises(openai.APIStatusError, match="shutting down") as caught:
        client(server).models.list()
    assert caught.value.status_code == 503
    assert server.wait() == 0
    stream.join(20)
    assert (stream.tokens, stream.finish_reason, stream.error) == (60, "length", None)
    assert server.lines[-1] == "stopped"


def test_a_second_interrupt_stops_at_once(server: ServeProcess) -> None:
    stream = Stream(server, 4000)
    assert stream.begun.wait(20)
    engine = server.engine_pid
    server.signal(SIGINT)
    server.wait_for("^stopping: 1 ")
    server.signal(SIGINT)
    assert server.wait() == 130
    stream.join(20)
    assert stream.error is not None
    assert not alive(engine)
    assert "Traceback" not in server.output


def test_sigterm_without_requests(server: ServeProcess) -> None:
    server.signal(SIGTERM)
    assert server.wait() == 0


def test_an_interrupt_when_nobody_reads_the_log() -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "serve", "--port", "0"], stderr=subprocess.PIPE, cwd=ROOT
    )
    assert server.stderr is not None
    while not server.stderr.readline().startswith(b"ready"):
        assert server.poll() is None
    server.stderr.close()
    server.send_signal(SIGINT)
    assert server.wait(60) == 0


def test_a_killed_engine_ends_the_server(server: ServeProcess) -> None:
    stream = Stream(server, 4000)
    assert stream.begun.wait(20)
    os.kill(server.engine_pid, SIGKILL)
    assert server.wait() == 1
    assert "error: the engine process ended (exit code -9: killed by SIGKILL" in server.output
    stream.join(20)
    assert isinstance(stream.error, openai.APIError)
    assert "killed by SIGKILL" in str(stream.error)
    assert "Traceback" not in server.output


def test_a_killed_server_ends_the_engine(server: ServeProcess) -> None:
    engine = server.engine_pid
    server.signal(SIGKILL)
    server.wait()
    deadline = time.monotonic() + 20
    while alive(engine) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(engine)


def test_the_server_never_imports_torch_and_stays_small(server: ServeProcess) -> None:
    stream = Stream(server, 3)
    stream.join(20)
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "tokenizers" in maps
    assert "torch" not in maps and "transformers" not in maps
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    [resident] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    assert int(resident) < 150 * 1024


@pytest.mark.parametrize(
    ("behaviour", "code", "line"),
    [
        ("failed", 2, "error: the fake model is broken"),
        ("crash", 1, "error: the engine process ended (exit code 3) before it was ready"),
    ],
)
def test_an_engine_that_cannot_start(behaviour: str, code: int, line: str) -> None:
    server = ServeProcess(program=PROGRAM, environment={"FAKE_ENGINE": behaviour})
    assert server.wait() == code
    assert server.lines[-1] == line
    assert "Traceback" not in server.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "/nowhere/at/all"), "there is no model at"),
        (("--host", "no such host"), "--host"),
        (("--kv-memory", "lots"), "2GiB"),
        (("--api-key", ""), "API key"),
        (("--speculative-num-steps", "3"), "--speculation fixed"),
    ],
)
def test_what_cannot_be_served(arguments: tuple[str, ...], words: str) -> None:
    server = ServeProcess(*arguments, program=PROGRAM)
    assert server.wait() == 2
    assert words in server.lines[-1]
    assert server.lines[-1].startswith("error: ")
    assert "Traceback" not in server.output


def test_a_busy_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        server = ServeProcess("--port", port, program=PROGRAM)
        assert server.wait() == 2
    [line] = server.lines
    assert f"port {port}" in line and "--port" in line
