"""What a request leaves in memory: the bytes that malloc has given out, after each of many rounds.

    python -m benchmarks.serve.leak [--requests 100000] [--home DIR] [--only GROUP ...] [--write]

A server process, with the models of ``serve.soak``, gets the same requests again and again: one
group searches, one grades, and one asks for everything else, broken requests among it. Resident
memory moves by pages and by what allocators keep, far more than a byte per request. So one server
counts exactly: Python's objects come from malloc too (``PYTHONMALLOC=malloc``), there is one arena
and no cache of threads, and after each round the garbage is collected and ``mallinfo2`` says how
many bytes are in use. polars has an allocator of its own, which only the anonymous memory of a
process (``RssAnon``) shows. That is read from a second server with the usual allocators.

Both are fitted to the number of requests by a line, after the first half of the requests. Until
then bounded stores fill up: Python's cache of attributes keeps up to 4,096 names that libraries
look up, one or a few per request, and its table of names is made anew once (1.9 MB). The slope is
in bytes per request, with its 95 % interval over blocks of rounds. The exit code is 1 unless the
upper end for malloc is below 1 in each group.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.paths import RESULTS
from benchmarks.serve.soak import FOLDER, NAMES, Request, fitted, questions

RESULT = RESULTS / "serve" / "leak.json"
GROUPS = {
    "search": ("queries", "history", "candidates", "text", "texts"),
    "grade": ("grade",),
    "other": ("keys", "history of", "card", "state", "broken"),
}
ROUND, ROUNDS = 100, 5  # different requests, and how often between two counts
MOST_RESULTS = 20  # of a search
BLOCKS = 12  # of counts, whose slopes give the interval
EXACT = {
    "PYTHONMALLOC": "malloc",
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
}
SERVER = """
import ctypes, gc, sys, threading
names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in names]
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Info
def answer():
    for _ in sys.stdin:
        gc.collect()
        info = mallinfo()
        print(info.uordblks + info.hblkhd, flush=True)
threading.Thread(target=answer, daemon=True).start()
from rankfold.cli import main
main()
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=100_000, help="of each group")
    parser.add_argument("--home", type=Path, default=FOLDER)
    parser.add_argument("--only", nargs="*", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    models = {name: fitted(given.home, name, 0) for name in NAMES}
    folders = [given.home / f"{name}-0" for name in NAMES]
    result: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for group in given.only:
        ask = questions(models, random.Random(0))
        requests = list(islice(filter(partial(is_wanted, group), iter(ask, None)), ROUND))
        result[group] = measured(folders, requests, given.requests)
        print(group, json.dumps(result[group]), flush=True)
    if given.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(any(result[group]["malloc"]["high"] >= 1 for group in given.only))


def is_wanted(group: str, request: Request) -> bool:
    """Whether it is of the group, and quick."""
    return request.kind in GROUPS[group] and (request.body or {}).get("k", 0) <= MOST_RESULTS


def measured(folders: list[Path], requests: list[Request], total: int) -> dict[str, Any]:
    """What ``total`` requests leave behind, in two servers."""
    counts = [malloc for malloc, _ in asked(folders, requests, total, EXACT)]
    pages = [resident for _, resident in asked(folders, requests, total, {})]
    return {
        "requests": len(counts) * ROUND * ROUNDS,
        "malloc": growth(counts),
        "anonymous": growth(pages),
        "load": os.getloadavg(),
    }


def asked(
    folders: list[Path], requests: list[Request], total: int, environment: dict[str, str]
) -> list[tuple[int, int]]:
    """The bytes that malloc has given out, and ``RssAnon``, after every few rounds."""
    used: list[tuple[int, int]] = []
    with counting(folders, environment) as (address, process):
        connection = HTTPConnection(address.removeprefix("http://"), timeout=60)
        for _ in range(total // (ROUND * ROUNDS)):
            for request in ROUNDS * requests:
                send(connection, request)
            used.append((in_use(process), anonymous(process.pid)))
        connection.close()
    return used


def send(connection: HTTPConnection, request: Request) -> None:
    """Send a request and read its response; the server may end the connection after it."""
    content = request.content if request.body is None else json.dumps(request.body).encode()
    headers = {} if content is None else request.headers
    try:
        connection.request(request.method, request.path, content, headers)
        connection.getresponse().read()
    except (ConnectionError, HTTPException):  # it refused the rest of a body
        if request.kind != "broken":
            raise
        connection.close()


@contextmanager
def counting(
    folders: list[Path], environment: dict[str, str]
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server that says how many bytes are in use for each line that it reads."""
    served = [f"{name}={folder}" for name, folder in zip(NAMES, folders, strict=True)]
    words = ["serve", *served, "--port", "0", "--quiet", "--threads", "1"]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, *words],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = re.search(r"http://\S+", process.stdout.readline())
    assert address
    for _ in NAMES:
        process.stdout.readline()  # a line about each model
    try:
        yield address[0], process
    finally:
        process.terminate()
        process.wait(60)


def in_use(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def anonymous(process: int) -> int:
    text = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", text)
    assert found
    return 1024 * int(found[1])


def growth(sizes: list[int]) -> dict[str, float]:
    """Bytes per request in the second half, and the 95 % interval of that."""
    later = np.array(sizes[len(sizes) // 2 :], dtype=float)
    blocks = np.array([block.min() for block in np.array_split(later, BLOCKS)])
    sent = ROUND * ROUNDS * len(later) / BLOCKS * np.arange(BLOCKS)
    (slope, _), covariance = np.polyfit(sent, blocks, 1, cov=True)
    half = 2.23 * float(np.sqrt(covariance[0, 0]))  # Student's t of 10 degrees of freedom
    ends = {"slope": slope, "low": slope - half, "high": slope + half}
    return {name: round(float(value), 4) for name, value in ends.items()}


if __name__ == "__main__":
    main()
