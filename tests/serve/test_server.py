"""A server on a port: limits on connections and headers, shutdown, model swap under load."""

import json
import resource
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from serving import exchange, fit_shop, process

from rankfold.errors import UserError
from rankfold.serve.limits import Limits, fit_open_files
from rankfold.serve.server import allowed_hosts, is_loopback, listen

Live = Callable[..., tuple[str, int]]
BODY = b'{"queries": [1], "k": 2}'
HEAD = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def test_requests_over_one_connection(live: Live) -> None:
    address = live(Limits())
    whole = HEAD + b"content-length: %d\r\n" % len(BODY)
    last = whole + b"connection: close\r\n\r\n" + BODY
    answer = exchange(
        address, whole + b"\r\n" + BODY + last
    )  # the second before the first is answered
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    chunked = b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    parts = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
    assert b"HTTP/1.1 200 OK" in exchange(address, HEAD + chunked + parts)


INVALID = [
    (b"nonsense\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00", 400),
    (b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000, 431),
    (b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % n for n in range(5000)), 431),
    (b"GET /" + b"a" * 40_000, 431),
    (b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n", 431),  # all at once
    (b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % n for n in range(5000)) + b"\r\n", 431),
    (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\nconnection: close\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nhost: loc", 408),
    (b"", 408),
    (HEAD + b"content-length: 100\r\n\r\n{", 408),
    (HEAD + b"content-length: 99999999\r\n\r\n{", 413),
    (HEAD + b"content-length: -1\r\n\r\n", 400),
    (HEAD + b"content-length: 3\r\ncontent-length: 4\r\n\r\n", 400),
    (HEAD + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n", 400),
]


def test_invalid_requests_end_soon(live: Live) -> None:
    """One server answers all of them, and is well after each."""
    address = live(Limits(receive_timeout=0.4))
    for sent, status in INVALID:
        begin = time.monotonic()
        answer = exchange(address, sent)
        assert time.monotonic() - begin < 8, sent[:60]
        assert answer.startswith(b"HTTP/1.1 %d" % status), (sent[:60], answer[:100])
        head, _, body = answer.partition(b"\r\n\r\n")
        assert set(json.loads(body)) == {"error", "hint"}, sent[:60]
        assert b"x-content-type-options: nosniff" in head, sent[:60]
        good = exchange(address, b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert good.startswith(b"HTTP/1.1 200 OK"), sent[:60]


def test_too_many_connections_are_refused(live: Live) -> None:
    address = live(Limits(connections=3, receive_timeout=30.0))
    held = [socket.create_connection(address) for _ in range(3)]
    time.sleep(0.2)
    answer = exchange(address, b"")
    assert answer.startswith(b"HTTP/1.1 503")
    for connection in held:
        connection.close()
    time.sleep(0.2)
    good = exchange(address, b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert good.startswith(b"HTTP/1.1 200 OK")


def test_connections_beyond_the_open_files_are_refused_not_reset(fitted: Path) -> None:
    with process(fitted / "shop", open_files=200) as (running, url):
        host, port = url.removeprefix("http://").split(":")
        address = host, int(port)
        held = [socket.create_connection(address, timeout=20) for _ in range(40)]  # 200 - 128 - 32
        answers = [exchange(address, b"") for _ in range(60)]
        assert all(answer.startswith(b"HTTP/1.1 503") for answer in answers)
        for connection in held:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            connection.close()
        running.terminate()
        _, err = running.communicate(timeout=20)
    first = json.loads(err.splitlines()[0])
    assert (first["event"], first["connections"]) == ("listening", 40)


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "raised"),
    [
        (10_000, 10_000, 1024, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1024, None),
        (1024, 4096, 1024, 1024 + 192),
        (1024, resource.RLIM_INFINITY, 1024, 1024 + 192),
        (1024, 1024, 1024 - 192, 1024),
        (256, 512, 512 - 192, 512),
    ],
)
def test_connections_follow_from_the_open_files(
    soft: int, hard: int, connections: int, raised: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, both: given.append(both))
    assert fit_open_files(Limits(), 2).connections == connections
    assert given == ([] if raised is None else [(raised, hard)])


def test_too_few_open_files_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (128, 128))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    with pytest.raises(UserError, match="needs more than 160 open files, and 128 are") as error:
        fit_open_files(Limits(), 1)
    assert "ulimit -n 1184" in error.value.hint


def test_a_taken_port_is_an_error() -> None:
    taken = listen("127.0.0.1", 0)
    taken.listen()
    with taken, pytest.raises(UserError, match="port") as error:
        listen("127.0.0.1", taken.getsockname()[1])
    assert "--port" in error.value.hint
    with pytest.raises(UserError, match="cannot listen on"):
        listen("no.such.host.invalid", 0)


def test_loopback_names() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.9.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org")))
    assert "localhost" in (allowed_hosts("127.0.0.1") or ())
    assert allowed_hosts("0.0.0.0") is None


def test_swap_and_shutdown_under_load(fitted: Path, tmp_path: Path) -> None:
    shutil.copytree(fitted / "shop", tmp_path / "shop")
    answers: list[tuple[str, ...]] = []
    statuses: list[int] = []
    broken: list[str] = []
    ending = threading.Event()

    def ask(address: str) -> None:
        body = {"queries": [3], "k": 20}
        with httpx.Client(base_url=address, timeout=20) as client:
            while True:
                time.sleep(0.01)  # leaves the server and the fit time
                try:
                    answer = client.post("/search", json=body)
                except httpx.TransportError as error:
                    if not ending.is_set():
                        broken.append(repr(error))
                    return
                statuses.append(answer.status_code)
                (ranking,) = answer.json()["results"]
                answers.append(tuple(each["candidate"] for each in ranking["candidates"]))

    with process(tmp_path / "shop") as (running, address):
        assert running.stdout is not None
        card = running.stdout.readline()
        threads = [threading.Thread(target=ask, args=(address,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        fit_shop(tmp_path / "shop", seed=5)
        limit = time.monotonic() + 30
        while len(set(answers)) < 2 and time.monotonic() < limit:
            time.sleep(0.1)
        ending.set()
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=30)
        for thread in threads:
            thread.join(timeout=20)
    assert running.returncode == 0
    assert broken == []
    assert set(statuses) == {200}
    assert len(set(answers)) == 2  # of the old model and of the new one, no mixture
    assert card.startswith("  shop: rg2-plain; 120 queries")
    lines = [json.loads(line) for line in err.splitlines()]
    events = [line["event"] for line in lines]
    assert events.count("model loaded") == 2
    assert events[-1] == "stopped"
    assert {line["level"] for line in lines} == {"info"}


def test_open_requests_are_answered_at_shutdown(fitted: Path) -> None:
    """A body that is still arriving when the signal comes is read to its end."""
    with process(fitted / "shop", "--grace", 10) as (running, address):
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY[:5])
            time.sleep(0.5)
            running.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            with pytest.raises(OSError):  # noqa: PT011
                socket.create_connection((host, int(port)), timeout=2).close()
            connection.sendall(BODY[5:])
            answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close" in answer
        assert running.wait(timeout=20) == 0
