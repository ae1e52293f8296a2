"""A small server to launch, as a program of its own: ``python launched.py PORT [BEHAVIOUR...]``.

Behaviours: ``dies:N`` ends it at its Nth completion, ``hangs:N`` never answers from the Nth on,
``pings:N`` sends nothing but comments from then on, ``loading`` answers 503 for ever, ``child``
starts a process that would stay, ``stubborn`` ignores being asked to end. The Nth counts from 1.
"""

import http.server
import json
import os
import signal
import subprocess
import sys
import time

port, *behaviours = sys.argv[1:]
chosen = {word.partition(":")[0]: word.partition(":")[2] for word in behaviours}
asked = 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.answer({"data": [{"id": "small"}]})

    def do_POST(self) -> None:
        global asked
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked += 1
        if asked == int(chosen.get("dies", -1)):
            print("out of memory", flush=True)
            os._exit(3)
        if "hangs" in chosen and asked >= int(chosen["hangs"]):
            time.sleep(600)
        if "pings" in chosen and asked >= int(chosen["pings"]):
            self.ping()
        choice = {"message": {"content": "word " * body["max_tokens"]}, "finish_reason": "length"}
        document = {"choices": [choice], "usage": {"completion_tokens": body["max_tokens"]}}
        self.answer(document, 503 if "loading" in chosen else 200)

    def answer(self, document: object, status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def ping(self) -> None:
        """Keep a stream open in which nothing comes."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        while True:
            self.wfile.write(b": ping\n\n")
            time.sleep(0.1)

    def log_message(self, *parts: object) -> None:
        pass


if "child" in chosen:
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    subprocess.Popen(sleeper, start_new_session=True)
if "stubborn" in chosen:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("listening", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
