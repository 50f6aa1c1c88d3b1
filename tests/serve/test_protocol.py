"""Connections of clients that do not read, say too much, or leave in the middle."""

import re
import socket
import struct
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from serving import exchange

from rankfold.serve.limits import Limits
from rankfold.serve.log import Log
from rankfold.serve.protocol import READ, Protocol

Live = Callable[..., tuple[str, int]]
ASK = b'{"queries": [1], "k": 2}'
POST = b"POST /search HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
SEARCH = POST + b"content-length: %d\r\n\r\n" % len(ASK) + ASK
HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
PAGE = b"GET /page/page.css HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What the log was told of as a bug."""
    found: list[BaseException] = []
    monkeypatch.setattr(Log, "fault", lambda _log, _event, error, **_more: found.append(error))
    return found


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]


def narrow(place: tuple[str, int]) -> socket.socket:
    """A connection that takes little at a time."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(place)
    return connection


def is_full(place: tuple[str, int]) -> bool:
    """Whether a connection more is refused."""
    try:
        return statuses(exchange(place, LAST)) != [200]
    except ConnectionResetError:  # refused before it was read
        return True


def test_who_never_reads_is_not_waited_for(live: Live) -> None:
    place = live(Limits(connections=1, seconds=0.3, idle=0.6))
    with narrow(place) as silent:
        silent.sendall(PAGE * 1000)
        time.sleep(0.3)
        assert is_full(place)
        limit = time.monotonic() + 8
        while is_full(place):
            assert time.monotonic() < limit
            time.sleep(0.1)


def test_who_reads_late_gets_every_answer_as_it_should_be(
    live: Live, faults: list[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    place = live(Limits(seconds=0.3, idle=10.0))
    with narrow(place) as late:
        late.sendall(PAGE * 1000 + LAST)
        time.sleep(1.0)  # longer than an answer may take
        late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        parts = []
        while part := late.recv(2**20):
            parts.append(part)
    answer = b"".join(parts)
    assert statuses(answer) == [200] * 1001
    assert answer.count(b"x-content-type-options: nosniff") == 1001
    assert not faults
    assert not caplog.records


def test_who_reads_slowly_keeps_the_connection() -> None:
    calls: list[tuple[Callable[[int], None], int]] = []
    ended: list[bool] = []

    def later(_seconds: float, call: Callable[[int], None], left: int) -> SimpleNamespace:
        calls.append((call, left))
        return SimpleNamespace(cancel=lambda: None)

    connection, left = Protocol.__new__(Protocol), [10 * READ]
    connection.loop = SimpleNamespace(call_later=later)  # type: ignore[assignment]
    connection.transport = SimpleNamespace(  # type: ignore[assignment]
        get_write_buffer_size=lambda: left[0], abort=lambda: ended.append(True)
    )
    connection._watch()
    left[0] -= READ
    calls[-1][0](calls[-1][1])
    assert not ended
    assert len(calls) == 2  # and it is looked at again
    left[0] -= READ - 1
    calls[-1][0](calls[-1][1])
    assert ended


BAD = b"BAD\r\n\r\n"
BAD_BODY = POST + b"transfer-encoding: chunked\r\n\r\nzzz\r\n"
LARGE = b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (SEARCH + HEALTH + BAD, [200, 200, 400]),
        (SEARCH + HEALTH + BAD + HEALTH, [200, 200, 400]),
        (SEARCH + BAD_BODY, [200, 400]),
        (SEARCH + SEARCH + LARGE, [200, 200, 431]),
        (BAD_BODY, [400]),
    ],
)
def test_what_was_asked_before_nonsense_is_answered(
    live: Live, faults: list[BaseException], sent: bytes, expected: list[int]
) -> None:
    assert statuses(exchange(live(Limits()), sent)) == expected
    assert not faults


def test_who_leaves_is_no_bug(
    live: Live, faults: list[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    place = live(Limits())
    for _ in range(5):
        with socket.create_connection(place) as leaving:
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            leaving.sendall(SEARCH * 50)
    assert statuses(exchange(place, SEARCH + LAST)) == [200, 200]
    time.sleep(0.2)
    assert not faults
    assert not caplog.records


def test_a_head_without_a_body_over_a_connection(live: Live) -> None:
    answer = exchange(live(Limits()), HEALTH.replace(b"GET", b"HEAD") + LAST)
    first, second = answer.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert first.endswith(b"\r\n\r\n")
    assert b"content-length: 20" in first
    assert second.endswith(b'{"status":"running"}')
