"""The CPU time of a request alone, what of it is HTTP, and what more processes add.

    python -m benchmarks.serve.alone [--rounds 8] [--home DIR] [--write]

The model in DIR has 31 candidates and 20 queries, so that little is computed. Microseconds of CPU
time, in one thread, the least of several rounds:

- loop: the model's own search, called again and again.
- paused: the same with 2 ms of sleep before each call. A server that waits for its next request
  runs like this: the caches of the processor have been used by others.
- health, refused, search: requests over one connection. ``refused`` has an unknown field: it is
  read, parsed and checked, and no model is asked.
- http: search less paused.
- processes: searches over 8 connections per process, summed over 1, 2 and 4 processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import torch

import rankfold as rf
from benchmarks.paths import RESULTS, SCRATCH
from benchmarks.serve.load import processor_seconds
from benchmarks.serve.repeated import encoded, load
from benchmarks.serve.soak import serving

RESULT, FOLDER = RESULTS / "serve" / "alone.json", SCRATCH / "serve_alone"
CALLS, PAUSE = 300, 0.002  # per round; seconds
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
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = given.home / "model"
    if not (folder / "manifest.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        rows = [(f"q{n % 20}", f"c{7 * n % 31}") for n in range(200)]
        pairs = pl.DataFrame(rows, ["query", "candidate"], orient="row")
        rf.fit("ials", rf.prepare(pairs), width=4, sweeps=2, out=folder)
    result: dict[str, Any] = {"load_before": os.getloadavg()}
    result |= measured(folder, given.rounds)
    result["http"] = round(result["search"] - result["paused"])
    result["processes"] = {n: of_processes(folder, n, given.rounds) for n in PROCESSES}
    result["load_after"] = os.getloadavg()
    print(json.dumps(result, indent=2))
    if given.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


def measured(folder: Path, rounds: int) -> dict[str, int]:
    """The microseconds of calls and requests, side by side."""
    ranker = rf.load(folder)

    def ask() -> None:
        ranker.search(["q1"], k=10)

    def ask_later() -> None:
        time.sleep(PAUSE)
        ask()

    used: dict[str, list[float]] = {}
    with serving([folder]) as (address, process):
        for _ in range(rounds):
            for name, call in (("loop", ask), ("paused", ask_later)):
                used.setdefault(name, []).append(each(call, time.process_time))
            for name, request in REQUESTS.items():
                with connected(address) as connection:
                    send = Exchange(connection, request)
                    took = each(send, lambda: processor_seconds(process))
                used.setdefault(name, []).append(took)
    return {name: round(min(several)) for name, several in used.items()}


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


def of_processes(folder: Path, n: int, rounds: int) -> int:
    """Microseconds of a search, summed over the processes of one server."""
    used = []
    with serving([folder], processes=n) as (address, process):
        port = int(address.rpartition(":")[2])
        asyncio.run(load(port, [REQUESTS["search"]], EACH * n, 1.0))
        for _ in range(rounds):
            before = processor_seconds(process)
            answered = asyncio.run(load(port, [REQUESTS["search"]], EACH * n, 1.0))
            used.append(1e6 * (processor_seconds(process) - before) / len(answered))
    return round(min(used))


if __name__ == "__main__":
    main()
