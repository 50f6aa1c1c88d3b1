"""The CPU time of a request alone, what of it is HTTP, and what more processes add.

    python -m benchmarks.serve.alone [--rounds 8] [--home DIR] [--write]

The model in DIR has 31 candidates and 20 queries, so that little is computed. Two graders, ``cba``
and ``trees``, have 20 numeric and 4 categorical columns. Microseconds of CPU time, in one thread,
the least of several rounds:

- loop: the model's own search, called again and again.
- echo, asked: another process gets a byte from a socket and sends one, at once or after a search.
  It waits as a server does, so its search runs on caches that others have used, but nothing is
  HTTP: ``asked`` less ``echo`` is what the search of a request costs.
- health, refused, search: requests over one connection. ``refused`` has an unknown field: it is
  read, parsed and checked, and no model is asked.
- http: ``search`` less what the search of a request costs.
- cba, trees: ``loop`` is the model's scores of a row, called again and again, ``asked`` the same by
  a process that waits, ``request`` a request with one row, and ``http`` that without the scores.
- processes: searches over 8 connections per process, summed over the processes of one server with
  1, 2 and 4, and over as many servers of one process. The second is what the machine itself adds:
  processes that share a core use each other's caches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch

import rankfold as rf
from benchmarks.paths import HOME, RESULTS, SCRATCH
from benchmarks.serve.load import processor_seconds
from benchmarks.serve.repeated import encoded, fit_rows, load, random_row
from benchmarks.serve.soak import serving

RESULT, FOLDER = RESULTS / "serve" / "alone.json", SCRATCH / "serve_alone"
CALLS = 1000  # per round
ECHO, ASKED = b"e", b"a"
GRADERS: dict[str, dict[str, Any]] = {"cba": {"epochs": 2}, "trees": {}}
PROCESSES, EACH = (1, 2, 4), 8  # connections per process
REQUESTS = {
    "health": b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    "refused": encoded("/search", {"queries": ["q1"], "depth": 10}),
    "search": encoded("/search", {"queries": ["q1"], "k": 10}),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--home", type=Path, default=FOLDER)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--bare", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.bare is not None:
        name, end = given.bare
        answer_bytes(call_of(given.home, name), socket.socket(fileno=int(end)))
        return
    prepare(given.home)
    result: dict[str, Any] = {"load_before": os.getloadavg()}
    result |= measured(given.home, given.rounds)
    result["processes"] = {n: of_processes(given.home, n, given.rounds) for n in PROCESSES}
    result["load_after"] = os.getloadavg()
    print(json.dumps(result, indent=2))
    if given.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


def prepare(home: Path) -> None:
    """Fit the models that are not there."""
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "model" / "manifest.json").exists():
        rows = [(f"q{n % 20}", f"c{7 * n % 31}") for n in range(200)]
        pairs = pl.DataFrame(rows, ["query", "candidate"], orient="row")
        rf.fit("ials", rf.prepare(pairs), width=4, sweeps=2, out=home / "model")
    for method, settings in GRADERS.items():
        if not (home / method / "manifest.json").exists():
            fit_rows(method, home / method, **settings)


def call_of(home: Path, name: str) -> Callable[[], object]:
    """What a request to a model computes."""
    model = rf.load(home / name)
    if not isinstance(model, rf.Grader):
        return lambda: model.search(["q1"], k=10)
    rows = model.read([random_row(random.Random(0))]).rows
    return lambda: model.score(rows)


def measured(home: Path, rounds: int) -> dict[str, Any]:
    """The microseconds of calls and requests, side by side."""
    names = ("model", *GRADERS)
    calls = {name: call_of(home, name) for name in names}
    row = random_row(random.Random(0))
    requests = {name: encoded(f"/models/{name}/grade", {"rows": [row]}) for name in GRADERS}
    used = defaultdict[tuple[str, str], list[float]](list)
    with ExitStack() as stack:
        address, server = stack.enter_context(serving([home / name for name in names]))
        others = {name: stack.enter_context(bare(home, name)) for name in names}
        for _ in range(rounds):
            for name, call in calls.items():
                used[name, "loop"].append(each(call, time.process_time))
                end, other = others[name]
                for kind, byte in (("echo", ECHO), ("asked", ASKED)):
                    send = partial(exchange, end, byte)
                    used[name, kind].append(each(send, partial(processor_seconds, other)))
            for name, request in (REQUESTS | requests).items():
                with connected(address) as connection:
                    took = each(Exchange(connection, request), partial(processor_seconds, server))
                used[name, "request"].append(took)
    least = {key: round(min(several)) for key, several in used.items()}
    result: dict[str, Any] = {kind: least["model", kind] for kind in ("loop", "echo", "asked")}
    result |= {name: least[name, "request"] for name in REQUESTS}
    result["http"] = result["search"] - (result["asked"] - result["echo"])
    for name in GRADERS:
        own = {kind: least[name, kind] for kind in ("loop", "echo", "asked", "request")}
        result[name] = own | {"http": own["request"] - (own["asked"] - own["echo"])}
    return result


@contextmanager
def bare(home: Path, name: str) -> Iterator[tuple[socket.socket, int]]:
    """A process that answers bytes: the socket to it, and its process id."""
    ours, theirs = socket.socketpair()
    words = ["-m", "benchmarks.serve.alone", "--home", home, "--bare", name, theirs.fileno()]
    process = subprocess.Popen(
        [sys.executable, *map(str, words)], pass_fds=[theirs.fileno()], cwd=HOME.parent
    )
    theirs.close()
    with ours:
        exchange(ours, ECHO)
        yield ours, process.pid
    process.wait()


def answer_bytes(call: Callable[[], object], end: socket.socket) -> None:
    while byte := end.recv(1):
        if byte == ASKED:
            call()
        end.sendall(byte)


def exchange(end: socket.socket, byte: bytes) -> None:
    end.sendall(byte)
    assert end.recv(1) == byte


def each(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """Microseconds of CPU time per call."""
    for _ in range(20):
        call()
    before = clock()
    for _ in range(CALLS):
        call()
    return 1e6 * (clock() - before) / CALLS


def connected(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Exchange:
    """Sends a request and reads its response."""

    def __init__(self, connection: socket.socket, request: bytes) -> None:
        self.connection, self.request = connection, request

    def __call__(self) -> None:
        self.connection.sendall(self.request)
        head, body, size = b"", b"", None
        while size is None or len(body) < size:
            part = self.connection.recv(2**16)
            assert part
            head += part
            if b"\r\n\r\n" in head:
                body = head.partition(b"\r\n\r\n")[2]
                size = int(re.findall(rb"content-length: (\d+)", head)[0])


def of_processes(home: Path, n: int, rounds: int) -> dict[str, int]:
    """Microseconds of a search, summed over the processes of one server, and over n servers."""
    folder = home / "model"
    with ExitStack() as stack:
        kinds = {
            "processes": [stack.enter_context(serving([folder], processes=n))],
            "servers": [stack.enter_context(serving([folder])) for _ in range(n)],
        }
        used: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(rounds + 1):
            for name, servers in kinds.items():
                used[name].append(of_servers(servers, EACH * n // len(servers)))
    return {name: round(min(several[1:])) for name, several in used.items()}  # the first warms up


def of_servers(servers: Sequence[tuple[str, int]], connections: int) -> float:
    async def searches() -> int:
        ports = [int(address.rpartition(":")[2]) for address, _ in servers]
        loads = (load(port, [REQUESTS["search"]], connections, 1.0) for port in ports)
        return sum(map(len, await asyncio.gather(*loads)))

    before = sum(processor_seconds(process) for _, process in servers)
    answered = asyncio.run(searches())
    return 1e6 * (sum(processor_seconds(process) for _, process in servers) - before) / answered


if __name__ == "__main__":
    main()
