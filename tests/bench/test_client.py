"""One request: whatever a server does, a sample says what happened."""

import asyncio

import pytest

from slipstream.bench.answer import Answer, error_text
from slipstream.bench.client import Client, RequestForm, Target
from slipstream.bench.http import Endpoint
from slipstream.bench.samples import Sample, TokenEvents
from slipstream.errors import UserError

from .fake_server import FakeServer, serving

PROMPT = [{"role": "user", "content": "Say something."}]


async def ask(fake: FakeServer, tokens: int = 5, **form: object) -> Sample:
    client = Client(fake.target(**form))
    try:
        return await client.complete(PROMPT, tokens, "measured")
    finally:
        client.close()


async def test_continuous_usage_is_asked_for_and_used() -> None:
    async with serving(tokens_per_chunk=2, chunk_seconds=0.01, accepted_length=1.75) as fake:
        sample = await ask(fake)
    assert sample.error is None
    assert (sample.streamed, sample.token_source) == (True, "usage")
    assert sample.events.total() == 5
    assert sample.start < sample.events.times[0] <= sample.end
    assert sample.accepted_length == 1.75
    assert fake.bodies[0]["stream_options"] == {
        "include_usage": True,
        "continuous_usage_stats": True,
    }


@pytest.mark.parametrize(
    ("usage", "source", "tokens"), [("final", "final usage", 5), ("none", "chunks", 3)]
)
async def test_without_continuous_usage(usage: str, source: str, tokens: int) -> None:
    async with serving(usage=usage, tokens_per_chunk=2, chunk_seconds=0.01) as fake:
        sample = await ask(fake)
    assert sample.error is None
    assert sample.token_source == source
    assert sample.events.total() == pytest.approx(tokens)


@pytest.mark.parametrize(("streams", "stream"), [(True, False), (False, True)])
async def test_a_whole_answer_is_spread_over_its_life(streams: bool, stream: bool) -> None:
    async with serving(streams=streams, accepted_length=2.5) as fake:
        sample = await ask(fake, stream=stream)
    assert sample.error is None
    assert (sample.streamed, sample.events.total()) == (False, 5)
    assert sample.accepted_length == 2.5
    assert sample.events.times[-1] == pytest.approx(sample.end)
    assert sample.events.times[0] - sample.start == pytest.approx((sample.end - sample.start) / 5)
    assert ("stream_options" in fake.bodies[0]) is stream


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ({"status": lambda _: 500}, "HTTP 500: told to fail"),
        ({"status": lambda _: 429}, "HTTP 429: told to fail"),
        ({"fault": lambda _: "die"}, "the server closed the connection"),
        ({"fault": lambda _: "empty"}, "the answer holds no token"),
        ({"fault": lambda _: "error chunk"}, "out of luck"),
        ({"fault": lambda _: "garbage"}, "unreadable chunk: "),
        ({"fault": lambda _: "cut"}, "the stream ended before the answer was finished"),
    ],
)
async def test_failures_are_told_not_raised(behaviour: dict[str, object], message: str) -> None:
    async with serving(**behaviour) as fake:
        sample = await ask(fake)
    assert sample.error is not None
    assert sample.error.startswith(message)
    assert sample.end >= sample.start


async def test_a_whole_answer_without_usage_cannot_be_counted() -> None:
    async with serving(usage="none") as fake:
        sample = await ask(fake, stream=False)
    assert sample.error == "the answer has no usage, so its tokens cannot be counted"


async def test_a_late_answer_is_a_failure() -> None:
    async with serving(chunk_seconds=30) as fake:
        client = Client(Target(Endpoint.of(fake.url), RequestForm("fake"), timeout_s=0.05))
        sample = await client.complete(PROMPT, 5, "measured")
    assert sample.error == "no complete answer within 0.05 s"


async def test_no_server_and_no_http() -> None:
    async with serving() as fake:
        pass
    assert (await ask(fake)).error == "connection refused"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ready\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        error = (await ask(fake)).error
    assert error is not None and error.startswith("the answer is not HTTP")


@pytest.mark.parametrize("keep_alive", [True, False])
async def test_one_client_asks_again_and_again(keep_alive: bool) -> None:
    async with serving(keep_alive=keep_alive) as fake:
        client = Client(fake.target())
        errors = [(await client.complete(PROMPT, 3, "measured")).error for _ in range(4)]
        client.close()
    assert errors == [None] * 4
    assert len(fake.bodies) == 4


async def test_an_idle_connection_that_the_server_closed_is_reopened() -> None:
    """The close reaches us together with, or after, our next request."""
    answers = 0

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answers
        await reader.readuntil(b'"stream":false}')
        answers += 1
        body = b'{"usage": {"completion_tokens": 1}}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await reader.readuntil(b"POST")
        writer.transport.abort()

    async with await asyncio.start_server(answer_once, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        target = Target(Endpoint.of(f"http://127.0.0.1:{port}"), RequestForm("m", stream=False), 20)
        client = Client(target)
        errors = [(await client.complete(PROMPT, 1, "measured")).error for _ in range(3)]
        client.close()
    assert errors == [None] * 3
    assert answers == 3


async def test_the_api_key_is_sent() -> None:
    async with serving() as fake:
        client = Client(Target(Endpoint.of(fake.url, "secret"), RequestForm("fake"), 20))
        await client.complete(PROMPT, 1, "measured")
        client.close()
    assert fake.headers[0]["Authorization"] == "Bearer secret"


def events_of(*chunks: str) -> TokenEvents:
    """The events of a stream whose chunks come at 1, 2, 3 and so on."""
    answer = Answer()
    for time, chunk in enumerate([*chunks, "[DONE]"], start=1):
        answer.feed(f"data: {chunk}\n\n".encode(), float(time))
    sample = Sample("measured", 0.0, len(chunks) + 1.0, TokenEvents())
    answer.complete_stream(sample)
    assert sample.error is None
    return sample.events


def chunk(text: str, tokens: int | None = None) -> str:
    usage = "null" if tokens is None else f'{{"completion_tokens": {tokens}}}'
    return f'{{"choices": [{{"delta": {{"content": "{text}"}}}}], "usage": {usage}}}'


def test_token_events_by_usage_count_what_each_chunk_added() -> None:
    events = events_of(chunk("", 0), chunk("a", 1), chunk("bcd", 4), chunk("", 4), chunk("e", 5))
    assert (list(events.times), list(events.tokens)) == ([2, 3, 5], [1, 3, 1])


def test_token_events_by_final_usage_share_it_out() -> None:
    final = '{"choices": [], "usage": {"completion_tokens": 9}}'
    events = events_of(chunk(""), chunk("ab"), chunk("c"), final)
    assert (list(events.times), list(events.tokens)) == ([2, 3], [4.5, 4.5])


def test_token_events_without_usage_count_chunks_with_text() -> None:
    events = events_of(chunk(""), chunk("ab"), chunk("c"), chunk(""))
    assert (list(events.times), list(events.tokens)) == ([2, 3], [1, 1])


def test_an_answer_without_text_still_has_its_tokens() -> None:
    events = events_of(chunk(""), '{"choices": [], "usage": {"completion_tokens": 1}}')
    assert (list(events.times), list(events.tokens)) == ([2], [1])


def test_chunks_read_in_one_go_are_still_continuous_usage() -> None:
    answer = Answer()
    chunks = [chunk("", 0), chunk("a", 1), chunk("b", 3), "[DONE]"]
    answer.feed("".join(f"data: {data}\n\n" for data in chunks).encode(), 1.0)
    sample = Sample("measured", 0.0, 1.0, TokenEvents())
    answer.complete_stream(sample)
    assert sample.token_source == "usage"
    assert (list(sample.events.times), list(sample.events.tokens)) == ([1], [3])


def test_chunks_may_be_cut_anywhere() -> None:
    stream = (
        b': hello\r\n\r\ndata: {"choices":[{"delta":{"content":"a"}}]}\r\n\r\n'
        b'data:{"choices":[{"delta":{"reasoning_content":"b"}}]}\n\n'
        b'data: {"choices":[],"usage":{"completion_tokens":6}}\n\ndata: [DONE]\n\n'
    )
    for size in (1, 2, 7, len(stream)):
        answer = Answer()
        for time, start in enumerate(range(0, len(stream), size)):
            answer.feed(stream[start : start + size], float(time))
        sample = Sample("measured", 0.0, 9e9, TokenEvents())
        answer.complete_stream(sample)
        assert sample.error is None
        assert sample.events.total() == 6
        assert len(sample.events.times) == (1 if size == len(stream) else 2)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": {"message": "no\\nroom", "code": 1}}', "no room"),
        (b'{"error": "bad"}', "bad"),
        (b'{"message": "old style"}', "old style"),
        (b'{"detail": "fast"}', '{"detail": "fast"}'),
        (b"<html> oops\n</html>", "<html> oops </html>"),
        (b"\xff", "\ufffd"),
    ],
)
def test_error_texts(body: bytes, text: str) -> None:
    assert error_text(body) == text


def test_addresses() -> None:
    endpoint = Endpoint.of("http://127.0.0.1:30000/v1/")
    assert (endpoint.host, endpoint.port, endpoint.base) == ("127.0.0.1", 30000, "/v1")
    assert Endpoint.of("localhost:8000").port == 8000
    assert Endpoint.of("https://example.org/api/v2").base == "/api/v2"
    assert Endpoint.of("https://example.org").port == 443
    assert Endpoint.of("http://[::1]:9").host == "::1"
    head = endpoint.request("POST", "/x", b"{}")
    assert head.startswith(b"POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1:30000\r\n")
    assert head.endswith(b"Content-Length: 2\r\n\r\n{}")


@pytest.mark.parametrize(
    "url", ["", "ftp://a", "http://", "http://a:b", "http://me:pw@a", "a?b=c", "a..b", "a" * 64]
)
def test_bad_addresses(url: str) -> None:
    with pytest.raises(UserError, match="not a server's address"):
        Endpoint.of(url)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error": {"message": "no\\nluck"}}', "no luck"),
        (b"<html>", "unreadable answer: "),
        (b'{"usage": {"completion_tokens": 0}}', "the answer holds no token"),
        (b'{"usage": null}', "the answer has no usage"),
    ],
)
def test_whole_answers_that_are_none(body: bytes, error: str) -> None:
    sample = Sample("measured", 0.0, 1.0, TokenEvents())
    Answer().complete_whole(body, sample)
    assert sample.error is not None
    assert sample.error.startswith(error)
