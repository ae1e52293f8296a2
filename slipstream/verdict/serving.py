"""A configuration's server while it is measured: started, or found running."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from slipstream.bench.client import RequestForm, Target
from slipstream.bench.http import Endpoint
from slipstream.bench.probe import prepare
from slipstream.bench.servers import Server, free_port, taken
from slipstream.errors import UserError
from slipstream.verdict.configuration import Candidate


@dataclass
class Serving:
    """It answers; ``server`` is None if it was running before. ``notes`` are the probe's."""

    candidate: Candidate
    target: Target
    notes: list[str]
    server: Server | None = None

    def check(self) -> None:
        """Raise ``UserError``, with the end of its log, if a launched server has ended."""
        if self.server is not None:
            self.server.check()

    def log_text(self) -> str:
        """The end of a launched server's log, to follow a message."""
        return self.server.log_text() if self.server is not None else ""

    def stop(self) -> None:
        """End what was launched, with all its children."""
        if self.server is not None:
            self.server.stop()


async def start(
    candidate: Candidate,
    form: RequestForm,
    api_key: str | None = None,
    waiting: Callable[[str], None] = lambda reason: None,
) -> Serving:
    """Launch it, unless it runs, and wait until it completes a request.

    ``waiting`` is told why it does not yet. Raises ``UserError`` if it does not come to that, and
    ``NeverReadyError`` if only its time was up.
    """
    told = candidate.at(free_port()) if candidate.needs_port else candidate
    endpoint = Endpoint.of(told.url, api_key)
    wanted = Target(endpoint, replace(form, model=candidate.model))
    if told.command is None:
        target, notes = await prepare(wanted)
        return Serving(candidate, target, notes)
    if taken(endpoint.host, endpoint.port):
        raise UserError(
            f"{candidate.name}: something listens at {endpoint.authority} already; end it, or put "
            "{port} where the command's port goes"
        )
    server = Server(told.launch())
    try:
        target, notes = await server.ready(wanted, waiting)
    except BaseException:
        server.stop()
        raise
    return Serving(candidate, target, notes, server)
