"""Launched servers: waited for until they answer, and gone with all their children afterwards."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slipstream.bench import process_tree
from slipstream.bench.client import RequestForm, Target
from slipstream.bench.http import Endpoint
from slipstream.bench.process_tree import cpu_seconds, end_all, members
from slipstream.bench.servers import Launch, Server, free_port
from slipstream.errors import UserError

ANSWERING = """
import http.server, json, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({"data": [{"id": "fake"}]})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        status = 503 if time.monotonic() < loaded else 200
        self.answer({"choices": [{"finish_reason": "stop"}], "usage": {"completion_tokens": 8}},
                    status)
    def answer(self, document, status=200):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *parts):
        pass
loaded = time.monotonic() + float(sys.argv[2])
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("both run", flush=True)
time.sleep(600)
"""
ORPHANING = STUBBORN.replace("\ntime.sleep(600)", "\nsys.exit(3)")


def launch(program: str, *arguments: str, ready_s: float = 60) -> Launch:
    return Launch("it", [sys.executable, "-c", program, *arguments], ready_s=ready_s)


def target(port: int) -> Target:
    return Target(Endpoint.of(f"http://127.0.0.1:{port}"), RequestForm(model=""))


def wait_for_log(server: Server, line: str) -> None:
    deadline = time.monotonic() + 30
    while line not in server.log_tail():
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def test_ready_when_a_completion_succeeds() -> None:
    port = free_port()
    with Server(launch(ANSWERING, str(port), "1.5")) as server:
        started = time.monotonic()
        found, _ = await server.ready(target(port))
        assert time.monotonic() - started > 1  # it listens and lists its model long before
        assert found.form.model == "fake"
        assert server.process.pid in members(server.mark)
        assert cpu_seconds(members(server.mark)) > 0
    assert not members(server.mark)
    assert server.process.returncode == -signal.SIGTERM


async def test_a_server_that_ends_shows_its_last_lines() -> None:
    program = "print(*range(100), sep='\\n'); raise SystemExit(3)"
    with (
        Server(launch(program)) as server,
        pytest.raises(UserError, match=r"it ended \(exit status 3\)(?s:.*) 98\n  99$") as error,
    ):
        await server.ready(target(free_port()))
    assert str(error.value).count("\n") == 15


async def test_a_server_that_is_never_ready() -> None:
    program = "import time; print('loading', flush=True); time.sleep(600)"
    with Server(launch(program, ready_s=1.5)) as server:
        wait_for_log(server, "loading")
        with pytest.raises(UserError, match=r"not ready within 1.5 s \(no server answers(?s:.*)lo"):
            await server.ready(target(free_port()))
    assert not members(server.mark)


def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(UserError, match="it: cannot run /no/such/program: No such file"):
        Server(Launch("it", ["/no/such/program"]))


def test_programs_are_looked_for_where_they_would_be_run(tmp_path: Path) -> None:
    program = tmp_path / "serve"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for command, environment, directory in (
        ([str(program)], {}, None),
        (["./serve"], {}, tmp_path),
        (["serve"], {"PATH": str(tmp_path)}, None),
    ):
        Launch("it", command, environment, directory).check()
    program.chmod(0o644)
    with pytest.raises(UserError, match=f"it: there is no program serve along the PATH {tmp_path}"):
        Launch("it", ["serve"], {"PATH": str(tmp_path)}).check()


def test_a_server_that_does_not_want_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bench.servers._GRACE_S", 0.2)
    monkeypatch.setattr("slipstream.bench.servers._CHILDREN_S", 0.2)
    with Server(launch(STUBBORN)) as server:
        wait_for_log(server, "both run")
        assert len(members(server.mark)) == 2
    assert not members(server.mark)
    server.stop()  # once more does no harm


def test_a_server_that_leaves_a_child_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bench.servers._CHILDREN_S", 0.2)
    with Server(launch(ORPHANING)) as server:
        assert server.process.wait(30) == 3
        with pytest.raises(UserError, match="exit status 3"):
            server.check()
        assert len(members(server.mark)) == 1
    assert not members(server.mark)


async def test_stopped_when_the_measurement_is_interrupted() -> None:
    port = free_port()

    async def measure() -> None:
        with Server(launch(ANSWERING, str(port), "0")) as server:
            marks.append(server.mark)
            await server.ready(target(port))
            await asyncio.sleep(600)

    marks: list[str] = []
    task = asyncio.create_task(measure())
    while not marks:
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not members(marks[0])


def test_the_guard_outlives_a_killed_measurement(tmp_path: Path) -> None:
    log = tmp_path / "mark"
    program = f"""
import os, pathlib, signal, sys, time
from slipstream.bench.servers import Launch, Server
server = Server(Launch("it", [sys.executable, "-c", {STUBBORN!r}]))
while "both run" not in server.log_tail():
    time.sleep(0.02)
pathlib.Path({str(log)!r}).write_text(server.mark)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 20
    while members(log.read_text()):
        assert time.monotonic() < deadline, "the server still runs"
        time.sleep(0.02)


def test_only_what_bears_the_mark_is_ended() -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        end_all("nobody has this mark", os.getpid() + 1_000_000)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_children_that_lose_the_mark_are_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bench.servers._CHILDREN_S", 0.2)
    sleep = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    program = (
        f"import subprocess, sys, time; child = [sys.executable, '-c', {sleep!r}]\n"
        "for elsewhere in (True, False):\n"
        "    subprocess.Popen(child, env={}, start_new_session=elsewhere)\n"
        "print('all run', flush=True); time.sleep(600)"
    )
    with Server(launch(program)) as server:
        wait_for_log(server, "all run")
        time.sleep(0.3)  # until they ignore being asked
        family = {one.pid for one in process_tree.family(server.mark, server.process.pid)}
        assert len(family) == 3
    assert not family & {one.pid for one in process_tree.living()}


def test_what_cannot_be_ended_is_not_waited_for_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_tree, "_KILLING_S", 0.1)
    monkeypatch.setattr("os.kill", lambda pid, number: None)
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    try:
        assert end_all("nobody has this mark", child.pid) == [child.pid]
    finally:
        monkeypatch.undo()
        child.kill()
        child.wait()


def test_the_log_is_shown_without_colours_and_cut() -> None:
    program = r"import sys; sys.stdout.buffer.write(b'\x1b[31mred\x1b[0m \xff\n' + b'x' * 9999)"
    with Server(launch(program)) as server:
        server.process.wait(30)
        assert server.log_tail() == ["red \N{REPLACEMENT CHARACTER}", "x" * 400 + "..."]


@pytest.mark.parametrize("environment", [{"A=B": "1"}, {"A": "\0"}])
def test_an_environment_that_cannot_be(environment: dict[str, str]) -> None:
    with pytest.raises(UserError, match="it: cannot run true: "):
        Server(Launch("it", ["true"], environment))
