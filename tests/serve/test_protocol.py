"""Clients that do not read, send too much, or disconnect early."""

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
from rankfold.serve.protocol import MIN_READ, Protocol

Live = Callable[..., tuple[str, int]]
BODY = b'{"queries": [1], "k": 2}'
POST = b"POST /search HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
SEARCH = POST + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
PAGE = b"GET /page/page.css HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """The exceptions that were logged."""
    errors: list[BaseException] = []
    monkeypatch.setattr(
        Log, "write_exception", lambda _log, _event, error, **_more: errors.append(error)
    )
    return errors


def statuses(response: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", response)]


def slow_reader(address: tuple[str, int]) -> socket.socket:
    """A connection with a small receive buffer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(address)
    return connection


def is_full(address: tuple[str, int]) -> bool:
    """Whether a further connection is refused."""
    try:
        return statuses(exchange(address, LAST)) != [200]
    except ConnectionResetError:  # refused before the request was read
        return True


def test_a_client_that_never_reads_is_disconnected(live: Live) -> None:
    address = live(Limits(connections=1, timeout=0.3, idle_timeout=0.6))
    with slow_reader(address) as silent:
        silent.sendall(PAGE * 1000)
        time.sleep(0.3)
        assert is_full(address)
        limit = time.monotonic() + 8
        while is_full(address):
            assert time.monotonic() < limit
            time.sleep(0.1)


def test_a_client_that_reads_late_gets_every_response(
    live: Live, logged: list[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    address = live(Limits(timeout=0.3, idle_timeout=10.0))
    with slow_reader(address) as late:
        late.sendall(PAGE * 1000 + LAST)
        time.sleep(1.0)  # longer than the timeout
        late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        parts = []
        while part := late.recv(2**20):
            parts.append(part)
    response = b"".join(parts)
    assert statuses(response) == [200] * 1001
    assert response.count(b"x-content-type-options: nosniff") == 1001
    assert not logged
    assert not caplog.records


def test_a_client_that_reads_slowly_stays_connected() -> None:
    calls: list[tuple[Callable[[int], None], int]] = []
    ended: list[bool] = []

    def later(_seconds: float, call: Callable[[int], None], left: int) -> SimpleNamespace:
        calls.append((call, left))
        return SimpleNamespace(cancel=lambda: None)

    connection, left = Protocol.__new__(Protocol), [10 * MIN_READ]
    connection.loop = SimpleNamespace(call_later=later)  # type: ignore[assignment]
    connection.transport = SimpleNamespace(  # type: ignore[assignment]
        get_write_buffer_size=lambda: left[0], abort=lambda: ended.append(True)
    )
    connection._start_read_timer()
    left[0] -= MIN_READ
    calls[-1][0](calls[-1][1])
    assert not ended
    assert len(calls) == 2  # the timer was started again
    left[0] -= MIN_READ - 1
    calls[-1][0](calls[-1][1])
    assert ended


INVALID = b"BAD\r\n\r\n"
INVALID_BODY = POST + b"transfer-encoding: chunked\r\n\r\nzzz\r\n"
LARGE = b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (SEARCH + HEALTH + INVALID, [200, 200, 400]),
        (SEARCH + HEALTH + INVALID + HEALTH, [200, 200, 400]),
        (SEARCH + INVALID_BODY, [200, 400]),
        (SEARCH + SEARCH + LARGE, [200, 200, 431]),
        (INVALID_BODY, [400]),
    ],
)
def test_requests_before_an_invalid_one_are_answered(
    live: Live, logged: list[BaseException], sent: bytes, expected: list[int]
) -> None:
    assert statuses(exchange(live(Limits()), sent)) == expected
    assert not logged


def test_a_disconnect_is_not_logged_as_an_error(
    live: Live, logged: list[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    address = live(Limits())
    for _ in range(5):
        with socket.create_connection(address) as leaving:
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            leaving.sendall(SEARCH * 50)
    assert statuses(exchange(address, SEARCH + LAST)) == [200, 200]
    time.sleep(0.2)
    assert not logged
    assert not caplog.records


def test_head_over_a_connection(live: Live) -> None:
    response = exchange(live(Limits()), HEALTH.replace(b"GET", b"HEAD") + LAST)
    first, second = response.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert first.endswith(b"\r\n\r\n")
    assert b"content-length: 20" in first
    assert second.endswith(b'{"status":"running"}')
