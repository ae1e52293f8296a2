"""The engine process: the step loop between two ends of a socket.

Started by the HTTP process as ``python -m slipstream.engine.process --fd N --options JSON``.
"""

import argparse
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable

import msgspec

from slipstream.engine.channel import Channel
from slipstream.engine.engine import Engine
from slipstream.engine.load import load, ready
from slipstream.engine.messages import Cancel, Drain, Failed, Report, Submit
from slipstream.engine.options import EngineOptions
from slipstream.errors import UserError

log = logging.getLogger("slipstream.engine")


def main() -> int:
    """Exit status: 0 drained, 1 the HTTP process has gone, 2 cannot start."""
    parser = argparse.ArgumentParser(description="Slipstream's engine process.")
    parser.add_argument("--fd", type=int, required=True, help="inherited stream socket")
    parser.add_argument("--options", required=True, help="EngineOptions as JSON")
    arguments = parser.parse_args()
    # Ctrl-C in a terminal reaches both processes; the HTTP process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=arguments.fd))
    options = msgspec.json.decode(arguments.options, type=EngineOptions)
    logging.basicConfig(format="engine: %(message)s", level=options.log_level.upper())
    try:
        loaded = load(options)
    except UserError as error:
        channel.send(Failed(str(error)))
        return 2
    # What is loaded stays: without this, a full collection in a step would look through it all.
    gc.freeze()
    try:
        channel.send(ready(loaded, options))
        run(loaded.engine(options), channel, loaded.costs.save_if_due)
    except OSError as error:
        log.error("stopping: %s", error)
        return 1
    finally:
        loaded.costs.save()
    return 0


def run(engine: Engine, channel: Channel, after_step: Callable[[], None] | None = None) -> None:
    """Step while there is work, sleep while there is none, until drained.

    Raises ``OSError`` if the HTTP process goes.
    """
    draining = False
    while engine.busy or not draining:
        commands = channel.receive(wait=not engine.busy)
        for command in commands:
            match command:
                case Submit():
                    engine.submit(command)
                case Cancel(id):
                    engine.cancel(id)
                case Drain():
                    draining = True
        # A cancellation shows in the statistics even when it leaves nothing to step.
        if engine.busy or commands:
            deltas = engine.step() if engine.busy else []
            channel.send(Report(deltas, engine.stats()))
            if after_step:
                after_step()


if __name__ == "__main__":
    sys.exit(main())
