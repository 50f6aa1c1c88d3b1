"""Several processes answer on one port like one: shared models, swaps in all, summed metrics."""

import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import fit_shop, process

from rankfold import storage
from rankfold.errors import UserError
from rankfold.serve.channel import Channel
from rankfold.serve.metrics import (
    Counts,
    Metrics,
    from_plain,
    lasting,
    text_of,
    to_plain,
    total,
)
from rankfold.serve.processes import listen_together
from rankfold.serve.server import listen

BODY = {"queries": [3], "k": 20}


class Load:
    """Clients that search until they are stopped, each on its own connection."""

    def __init__(self, url: str, n: int = 4) -> None:
        self.url, self.done = url, threading.Event()
        self.answers: list[str] = []
        self.broken: list[str] = []
        self.threads = [threading.Thread(target=self._ask) for _ in range(n)]

    def __enter__(self) -> "Load":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        for thread in self.threads:
            thread.join(timeout=60)

    def _ask(self) -> None:
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self.done.wait(0.02):  # leaves the processes time to start
                try:
                    answer = client.post("/search", json=BODY)
                except httpx.TransportError as error:
                    self.broken.append(repr(error))
                else:
                    self.answers.append(keys(answer))


def keys(answer: httpx.Response) -> str:
    """The ranking, or the error."""
    if answer.status_code != 200:
        return f"{answer.status_code}: {answer.text}"
    (ranking,) = answer.json()["results"]
    return "\n".join(each["candidate"] for each in ranking["candidates"])


def values(url: str, name: str) -> dict[str, float]:
    lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    found = [line.rsplit(" ", 1) for line in lines if line.startswith(f"rankfold_{name}")]
    return {labels.removeprefix(f"rankfold_{name}"): float(value) for labels, value in found}


def searches(url: str) -> float:
    return values(url, "requests_total")['{endpoint="/search",status="200"}']


def until(condition: Callable[[], Any]) -> None:
    limit = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.1)


def children(parent: int) -> list[int]:
    words = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(word) for word in words]


@pytest.fixture
def log() -> Iterator[Any]:
    with tempfile.TemporaryFile("w+") as stream:
        yield stream


def events(stream: Any) -> list[dict[str, Any]]:
    stream.seek(0)
    return [json.loads(line) for line in stream]  # lines of several processes do not mix


def test_processes_answer_like_one(fitted: Path, tmp_path: Path, log: Any) -> None:
    shop = Path(shutil.copytree(fitted / "shop", tmp_path / "shop"))
    with process(shop, "--processes", 2, "--threads", 1, log=log) as (running, url):
        with Load(url) as load:
            until(lambda: len(load.answers) > 200)
        asked = len(load.answers)
        assert set(load.answers) == {keys(httpx.post(f"{url}/search", json=BODY))}
        assert searches(url) == asked + 1  # the sum over both processes
        assert values(url, "ready") == {'{model="shop"}': 1}

        with Load(url) as load:  # all processes are replaced: no request fails
            before = set(children(running.pid))
            assert len(before) == 2
            running.send_signal(signal.SIGHUP)
            until(lambda: before.isdisjoint(now := set(children(running.pid))) and len(now) == 2)
        assert load.broken == []
        assert len(set(load.answers)) == 1
        assert searches(url) == asked + 1 + len(load.answers)

        with Load(url) as load:  # a new model is used by all of them, or by none
            fit_shop(shop, seed=5)
            until(lambda: values(url, "swaps_total"))
            fresh = len(load.answers)
            until(lambda: len(load.answers) > fresh + 100)
        assert load.broken == []
        assert len(set(load.answers)) == 2
        assert len(set(load.answers[fresh + 4 :])) == 1  # at most four were being answered
        assert values(url, "swaps_total") == {'{model="shop",outcome="done"}': 1}

        os.kill(children(running.pid)[0], signal.SIGKILL)  # another one takes its place
        until(lambda: len(children(running.pid)) == 2)
        answers = {keys(httpx.post(f"{url}/search", json=BODY, timeout=60)) for _ in range(20)}
        assert answers == set(load.answers[-1:])
        workers = children(running.pid)
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=60) == 0
        assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    lines = events(log)
    assert {line["process"] for line in lines if line["event"] == "request"} == {0, 1}
    assert [line["event"] for line in lines if line["level"] == "error"] == [
        "a process ended, another one starts"
    ]
    assert lines[-1]["event"] == "stopped"


def test_workers_end_with_the_leading_process(fitted: Path) -> None:
    with process(fitted / "shop", "--processes", 2) as (running, _url):
        workers = children(running.pid)
        running.kill()
        running.wait()
        until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


def test_a_taken_port_is_an_error() -> None:
    together = listen_together("127.0.0.1", 0, 3)
    port = together[0].getsockname()[1]
    assert [each.getsockname()[1] for each in together] == [port] * 3
    together[1].listen()
    with pytest.raises(UserError, match="cannot listen"):
        listen_together("127.0.0.1", port, 2)
    with pytest.raises(UserError, match="cannot listen"):
        listen("127.0.0.1", port)
    for each in together:
        each.close()


def test_messages_carry_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("content")
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "a").open() as file:
        sender, receiver = Channel(ours), Channel(theirs)
        long = {"text": "ä" * 100_000}
        thread = threading.Thread(target=lambda: [sender.send(long, [file.fileno()] * 2)])
        thread.start()
        message, handles = receiver.receive()
        thread.join()
        assert message == long
        files = [storage.PrivateFile(handle) for handle in handles]
        assert [each.path.read_text() for each in files] == ["content"] * 2
        sender.send({})
        assert receiver.receive() == ({}, [])
        ours.close()
        with pytest.raises(EOFError):
            receiver.receive()


def metrics(n: int) -> Counts:
    own = Metrics()
    for number in range(n):
        own.count("/search", 200, 0.002 * number)
    own.swaps["a", "done"] = n
    return {
        **own.counts({("a",): int(n > 1)}, {("a",): n}),
        "private_bytes": {(): 100 * n},
        "shared_bytes": {(): 1000 + n},
    }


def test_counts_of_processes_add_up() -> None:
    both = total([metrics(1), metrics(3)])
    assert both["requests_total"] == {("/search", "200"): 4}
    assert both["waiting"] == {("a",): 4}
    assert both["ready"] == {("a",): 0}  # not in all of them
    assert both["private_bytes"] == {(): 400}
    assert both["shared_bytes"] == {(): 1003}  # counted once
    text = text_of(both)
    assert 'rankfold_request_seconds_bucket{endpoint="/search",le="0.001"} 2' in text
    assert 'rankfold_request_seconds_count{endpoint="/search"} 4' in text
    assert "rankfold_resident_bytes 1403" in text
    assert from_plain(json.loads(json.dumps(to_plain(both)))) == both


def test_what_an_ended_process_has_counted_remains() -> None:
    both = total([lasting(metrics(1)), metrics(3)])
    assert both["requests_total"] == {("/search", "200"): 4}
    assert both["swaps_total"] == {("a", "done"): 4}
    assert both["waiting"] == {("a",): 3}
    assert both["private_bytes"] == {(): 300}
