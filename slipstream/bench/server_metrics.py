"""Reading a server's Prometheus page."""

from collections.abc import Mapping
from dataclasses import replace

from slipstream.bench.http import Connection, Endpoint
from slipstream.errors import UserError


async def read_metrics(endpoint: Endpoint) -> dict[str, float]:
    """Every sample of ``/metrics`` by its name, with labels where it has some.

    Raises ``UserError`` if the server has no such page, ``OSError`` if it does not answer.
    """
    connection = Connection(endpoint)
    request = replace(endpoint, base="").request("GET", "/metrics")
    try:
        response = await connection.exchange(request, lambda piece, now: None)
    finally:
        connection.close()
    if response.status != 200:
        raise UserError(f"{endpoint.authority}/metrics answers HTTP {response.status}")
    lines = response.body.decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def total(samples: Mapping[str, float], name: str) -> float | None:
    """The sum of a metric over all of its labels; None where there is no such metric."""
    found = [value for key, value in samples.items() if key.partition("{")[0] == name]
    return sum(found) if found else None
