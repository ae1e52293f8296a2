"""One request as data."""

from slipstream.engine.params import SamplingParams
from slipstream.engine.request import Request


def test_a_request_grows_to_its_length() -> None:
    request = Request.start(4, [7, 8, 9], SamplingParams(max_tokens=2))
    assert request.tokens.tolist() == [7, 8, 9]
    assert (request.prompt_length, request.pending, request.remaining) == (3, 3, 2)
    assert request.append(5) is None
    request.committed = 3
    assert (request.tokens.tolist(), request.pending, request.remaining) == ([7, 8, 9, 5], 1, 1)
    assert request.append(6) == "length"
    assert (request.tokens.tolist(), request.remaining) == ([7, 8, 9, 5, 6], 0)


def test_a_stop_token_ends_it_and_is_kept() -> None:
    request = Request.start(0, [7], SamplingParams(max_tokens=3, stop_token_ids=(2, 7)))
    assert request.append(3) is None
    assert request.append(2) == "stop"
    assert request.tokens.tolist() == [7, 3, 2]


def test_a_stop_token_in_the_last_place_is_a_stop() -> None:
    request = Request.start(0, [7], SamplingParams(max_tokens=1, stop_token_ids=(2,)))
    assert request.append(2) == "stop"
