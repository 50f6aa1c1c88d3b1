"""What a request leaves in memory: the bytes that malloc has given out, after each of many rounds.

    python -m benchmarks.serve.leak [--minutes 10] [--home DIR] [--write]

A server process, with the models of ``serve.soak``, gets the same list of requests again and again,
of every kind and some of them broken. Resident memory moves by pages and by what allocators keep,
far more than a byte per request. So the process counts exactly: Python's objects come from malloc
too (``PYTHONMALLOC=malloc``), there is one arena and no cache of threads, and after each round the
garbage is collected and ``mallinfo2`` says how many bytes are in use. polars has an allocator of
its own, which only the anonymous memory of the process (``RssAnon``) shows.

Both are fitted to the number of requests by a line, after 20,000 requests: until then malloc still
finds places that fit. The slope is in bytes per request, with its 95 % interval over blocks of
rounds. The exit code is 1 unless the upper end for malloc is below 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch

from benchmarks.paths import RESULTS
from benchmarks.serve.soak import FOLDER, NAMES, fitted, prepared, questions

RESULT = RESULTS / "serve" / "leak.json"
ROUND, WARM = 200, 100  # requests, and rounds before the first that counts
BLOCKS = 12  # of rounds, whose slopes give the interval
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
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--home", type=Path, default=FOLDER)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    models = {name: fitted(given.home, name, 0) for name in NAMES}
    ask = questions(models, random.Random(0))
    requests = [ask() for _ in range(ROUND)]
    folders = [given.home / f"{name}-0" for name in NAMES]
    used: list[tuple[int, int]] = []
    with (
        counting(folders) as (address, process),
        httpx.Client(base_url=address, timeout=60) as http,
    ):
        for request in WARM * requests:
            http.send(prepared(http, request))
        end = time.monotonic() + 60 * given.minutes
        while time.monotonic() < end:
            for request in requests:
                http.send(prepared(http, request))
            used.append((in_use(process), anonymous(process.pid)))
    counts, pages = np.array(used, dtype=float).T
    result = {
        "requests": len(used) * ROUND,
        "malloc": growth(counts),
        "anonymous": growth(pages),
        "load": os.getloadavg(),
    }
    print(json.dumps(result, indent=2))
    if given.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(result["malloc"]["high"] >= 1)


@contextmanager
def counting(folders: list[Path]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server that says how many bytes are in use for each line that it reads."""
    served = [f"{name}={folder}" for name, folder in zip(NAMES, folders, strict=True)]
    words = ["serve", *served, "--port", "0", "--quiet", "--threads", "1"]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, *words],
        env=os.environ | EXACT,
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


def growth(sizes: np.ndarray[Any, Any]) -> dict[str, float]:
    """Bytes per request, and the 95 % interval of that."""
    blocks = np.array([block.min() for block in np.array_split(sizes, BLOCKS)])
    sent = ROUND * len(sizes) / BLOCKS * np.arange(BLOCKS)
    (slope, _), covariance = np.polyfit(sent, blocks, 1, cov=True)
    half = 2.23 * float(np.sqrt(covariance[0, 0]))  # Student's t of 10 degrees of freedom
    ends = {"slope": slope, "low": slope - half, "high": slope + half}
    return {name: round(float(value), 4) for name, value in ends.items()}


if __name__ == "__main__":
    main()
