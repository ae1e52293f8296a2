"""Notes about the measuring, engines that say who they are, and the time that is left."""

import pytest
from aiohttp import web

from slipstream.bench.http import Endpoint
from slipstream.verdict.answers import difference
from slipstream.verdict.clock import Clock
from slipstream.verdict.engines import Drafted, drafted, identify
from slipstream.verdict.measurement import hardware, notes
from slipstream.verdict.results import Load, Measurement, RequestSample, Results, Settings

LOAD = Load(concurrency=1)


def measured(
    name: str = "a",
    load: Load = LOAD,
    tokens: float = 8,
    cpu: float = 0.1,
    lag: float = 0.001,
    samples: int = 10,
    late: int = 0,
) -> Measurement:
    """Ten seconds; ``late`` requests end after the window."""
    made = [RequestSample(1, 20 if n < late else 5, 2, tokens, True) for n in range(samples)]
    return Measurement(name, load, 0, 10.0, 1.0, None, None, None, None, None, 1.0, cpu, lag, made)


def noted(*measurements: Measurement) -> list[str]:
    settings = Settings("coding", 8, 0.0, True, 1)
    loads = list(dict.fromkeys(m.load for m in measurements))
    return notes(Results("", "", {}, settings, [], loads, list(measurements)))


def test_nothing_to_say() -> None:
    assert noted(measured("a"), measured("b"), measured("b", Load(rate=1.0))) == []


def test_a_load_generator_at_its_limit() -> None:
    (busy,) = noted(measured("a", cpu=0.83), measured("b"))
    assert "short of time at C=1 (up to 83% of a core, up to 1 ms late)" in busy
    (late,) = noted(measured("a", lag=0.25), measured("b"))
    assert "up to 250 ms late" in late


def test_answers_of_unequal_length() -> None:
    assert noted(measured("a", tokens=100), measured("b", tokens=101)) == []
    (line,) = noted(measured("a", tokens=100), measured("b", tokens=97))
    assert line.startswith("answers at C=1 differ in length (a 100.0, b 97.0 tokens on average)")


def test_a_server_that_does_not_keep_up() -> None:
    rate = Load(rate=2.0)
    assert noted(measured("a", rate, late=1)) == []
    (line,) = noted(measured("a", rate, late=2), measured("b", rate))
    assert line.startswith("a does not keep up with 2/s: 8 requests ended while 10 arrived")


def test_where_texts_part() -> None:
    prompts = [[{"role": "user", "content": "p" * 300}]] * 2
    same = "x" * 100
    found = difference("b", "a", prompts, ["same", same + "yes"], ["same", same])
    assert (found.compared, found.different) == (2, 1)
    assert found.first == ("x" * 60, "x" * 60 + "yes")
    assert found.first_prompt == "p" * 200 + "..."
    assert difference("b", "a", prompts, ["1", "2"], ["1", "2"]).first is None


async def test_engines_say_who_they_are() -> None:
    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "owned_by": "vllm"}]})

    async def version(request: web.Request) -> web.Response:
        return web.json_response({"version": "0.9", "build_info": "b1234"})

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            text='# HELP x\nvllm:spec_decode_num_drafts_total{engine="0"} 10.0\n'
            'vllm:spec_decode_num_drafts_total{engine="1"} 20.0\n'
            "vllm:spec_decode_num_accepted_tokens_total 45.0\n"
        )

    app = web.Application()
    app.router.add_get("/v1/models", models)
    for path in ("/version", "/get_server_info", "/props"):
        app.router.add_get(path, version)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint = Endpoint.of(f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        found = await identify(endpoint, "unknown")
        assert (found.engine, found.versions) == ("vllm", {"vllm": "0.9"})
        assert await drafted(endpoint, "vllm") == Drafted(30, 45)
        assert await drafted(endpoint, "sglang") is None
        assert (await identify(endpoint, "sglang")).versions == {"sglang": "0.9"}
        assert (await identify(endpoint, "llama-server")).versions == {"llama-server": "b1234"}
        assert "slipstream" in (await identify(endpoint, "slipstream")).versions
    finally:
        await runner.cleanup()
    nobody = await identify(endpoint, "unknown")
    assert (nobody.engine, nobody.versions) == ("unknown", {})
    assert await drafted(endpoint, "vllm") is None


def test_accepted_length_from_counters() -> None:
    assert Drafted(30, 45).length_since(Drafted(10, 15)) == pytest.approx(2.5)
    assert Drafted(10, 15).length_since(Drafted(10, 15)) is None


def test_the_time_that_is_left() -> None:
    clock = Clock()
    parts = [("a", "C=1"), ("a", "C=2"), ("b", "C=1"), ("b", "C=2")]
    assert clock.left(parts) is None
    clock.note(("a", ""), 3)
    assert clock.left(parts) is None
    clock.note(("a", "C=1"), 10)
    assert clock.left(parts) == 2 * (3 + 10 + 10)
    clock.note(("a", "C=2"), 20)
    clock.note(("b", "C=2"), 40)
    assert clock.left(parts) == (3 + 10 + 20) + (3 + 10 + 40)
    assert clock.left([]) == 0


def test_this_machine() -> None:
    assert {"cpu", "cores", "memory", "system"} <= hardware().keys()
