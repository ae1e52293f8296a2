"""The engine's end of the socket: frames cut anywhere, and a peer that goes."""

import socket
import threading
from collections.abc import Iterator

import pytest

from slipstream.engine.channel import Channel
from slipstream.engine.messages import (
    Cancel,
    Commands,
    Delta,
    Drain,
    EngineStats,
    Ready,
    Report,
    Submit,
    TokenLogprobs,
    decode_from_engine,
    frame,
)
from slipstream.engine.params import SamplingParams, Speculation, TreeShape

COMMANDS: list[Submit | Cancel | Drain] = [
    Submit(
        1,
        list(range(300)),
        SamplingParams(
            max_tokens=9,
            temperature=0.25,
            logit_bias={3: -1.5},
            seed=2**64 - 1,
            stop_token_ids=(2, 5),
            logprobs=0,
            speculation=Speculation("fixed", TreeShape(2, 3, 5)),
        ),
    ),
    Cancel(0),
    Drain(),
]


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """The engine's channel, and the HTTP process's socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(20)
        yield Channel(ours), theirs


def test_one_frame(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.sendall(frame(Commands(COMMANDS)))
    assert channel.receive(wait=True) == COMMANDS


def test_nothing_to_receive(ends: tuple[Channel, socket.socket]) -> None:
    assert ends[0].receive(wait=False) == []


def test_several_frames_at_once_keep_their_order(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.sendall(b"".join(frame(Commands([command])) for command in COMMANDS))
    assert channel.receive(wait=False) == COMMANDS


def test_frames_cut_anywhere(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    short = [Commands([Cancel(1)]), Commands([]), Commands([Cancel(2), Drain()])]
    stream = b"".join(frame(commands) for commands in short)
    for cut in range(1, len(stream)):
        theirs.sendall(stream[:cut])
        received = channel.receive(wait=False)
        theirs.sendall(stream[cut:])
        received += channel.receive(wait=False)
        assert received == [Cancel(1), Cancel(2), Drain()]


def test_byte_by_byte(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    received = []
    for byte in frame(Commands(COMMANDS)):
        assert received == []
        theirs.sendall(bytes([byte]))
        received += channel.receive(wait=False)
    assert received == COMMANDS


def test_waiting_outlasts_half_a_frame(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    data = frame(Commands([Cancel(4)]))
    theirs.sendall(data[:7])
    later = threading.Timer(0.05, theirs.sendall, [data[7:]])
    later.start()
    assert channel.receive(wait=True) == [Cancel(4)]
    later.join()


def test_a_frame_larger_than_the_sockets_buffer(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    large = Submit(1, [100_000] * 1_000_000, SamplingParams(max_tokens=1))
    sender = threading.Thread(target=theirs.sendall, args=[frame(Commands([large]))])
    sender.start()
    assert channel.receive(wait=True) == [large]
    sender.join()


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("rest", [b"", frame(Commands(COMMANDS))[:9]])
def test_a_peer_that_has_gone(ends: tuple[Channel, socket.socket], wait: bool, rest: bytes) -> None:
    channel, theirs = ends
    theirs.sendall(rest)
    theirs.close()
    with pytest.raises(ConnectionError):
        channel.receive(wait)
    with pytest.raises(OSError):
        channel.send(Report([], EngineStats()))


def test_what_is_sent_arrives(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    report = Report(
        [Delta(3, [1, 2], "stop", [TokenLogprobs(-0.5, [(1, -0.5)]), TokenLogprobs(-1, [])], 32)],
        EngineStats(steps_total=4),
    )
    for message in (Ready("torch", 128, 2), report):
        channel.send(message)
        length = int.from_bytes(theirs.recv(4, socket.MSG_WAITALL), "little")
        assert decode_from_engine(theirs.recv(length, socket.MSG_WAITALL)) == message
