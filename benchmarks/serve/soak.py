"""The server for half an hour: every endpoint, three models that are replaced, broken requests.

    python -m benchmarks.serve.soak [--minutes 30] [--home DIR] [--clients 6] [--write]

Models of packages (pairs), of their suggestions (texts) and of generated patients (graded rows),
two versions of each, are fitted once in DIR. A server process answers clients that send every kind
of request; one in twenty is broken on purpose. Every twenty seconds the folder of one model is
replaced by its other version. Required at the end: every status is 2xx or 4xx, every request was
answered, every replacement was loaded, and memory grew by at most 5 % after the first fifth of the
time. Otherwise the exit code is 1. ``serve.leak`` counts what a request leaves behind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import polars as pl
import torch

import rankfold as rf
from benchmarks.paths import RESULTS, SCRATCH
from rankfold.models.grader import Grader
from rankfold.models.ranker import Ranker

RESULT = RESULTS / "serve" / "soak.json"
FOLDER = SCRATCH / "serve_soak"
NAMES = ("packages", "suggestions", "patients")
SWAP = 20.0  # seconds
BROKEN = 0.05
STALL = 2.0  # seconds: a longer pause means that the machine was busy with other work
GROWTH = 1.05
JSON = {"content-type": "application/json"}


class Request(NamedTuple):
    kind: str
    method: str
    path: str
    body: Any = None
    content: bytes | None = None
    headers: dict[str, str] = JSON


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--home", type=Path, default=FOLDER)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    versions = {name: [fitted(given.home, name, seed) for seed in (0, 1)] for name in NAMES}
    folders = {name: given.home / "served" / name for name in NAMES}
    (given.home / "served").mkdir(exist_ok=True)
    for name, folder in folders.items():
        versions[name][0].save(folder)
    with serving(list(folders.values())) as (address, process):
        soak = Soak(address, process, versions, folders)
        asyncio.run(soak.run(60 * given.minutes, given.clients))
        result = soak.summary()
        ended = time.perf_counter()
    result["seconds_to_end"] = round(time.perf_counter() - ended, 2)
    print(json.dumps(result, indent=2))
    if given.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(0 if result["good"] else 1)


# ---------------------------------------------------------------------------------- models


def fitted(home: Path, name: str, seed: int) -> Any:
    folder = home / f"{name}-{seed}"
    if not (folder / "manifest.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        FITS[name](folder, seed)
    return rf.load(folder)


def fit_packages(folder: Path, seed: int) -> None:
    rf.fit("rg2-plain", rf.prepare(source="debian", seed=seed), width=32, seed=seed, out=folder)


def fit_suggestions(folder: Path, seed: int) -> None:
    data = rf.prepare(source="debian-seealso", format="texts")
    rf.fit("siamesexml", data, width=64, joint_epochs=1, seed=seed, out=folder)


def fit_patients(folder: Path, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    numbers = torch.randn(2000, 3, generator=rng)
    site = torch.randint(0, 4, (2000,), generator=rng)
    noisy = numbers.sum(dim=1) + 0.5 * site + torch.randn(2000, generator=rng)
    columns = {
        name: numbers[:, place].numpy() for place, name in enumerate(("age", "dose", "mass"))
    }
    table = pl.DataFrame(
        {
            **columns,
            "site": [f"site {number}" for number in site.tolist()],
            "grade": torch.bucketize(noisy, torch.tensor([0.0, 1.5, 3.0])).numpy(),
        }
    )
    data = rf.prepare(table, format="features", grade_column="grade", seed=seed)
    rf.fit("cba", data, epochs=1, seed=seed, out=folder)


FITS = {"packages": fit_packages, "suggestions": fit_suggestions, "patients": fit_patients}


# ---------------------------------------------------------------------------------- requests


def questions(models: dict[str, Any], rng: random.Random) -> Callable[[], Request]:
    """A function that returns a random request."""
    packages, suggestions = models["packages"], models["suggestions"]
    assert isinstance(packages, Ranker)
    assert isinstance(suggestions, Ranker)
    assert isinstance(models["patients"], Grader)
    queries, candidates = packages.queries.keys.to_list(), packages.candidates.keys.to_list()
    others = suggestions.candidates.keys.to_list()
    words = ["editor", "for", "images", "python", "library", "network", "server", "game", "tool"]

    def post(kind: str, name: str, path: str = "search", **body: Any) -> Request:
        address = (
            f"/{path}" if name == "packages" and rng.random() < 0.5 else f"/models/{name}/{path}"
        )
        return Request(kind, "POST", address, body)

    def some(keys: list[Any], most: int) -> list[Any]:
        return rng.choices(keys, k=rng.randint(1, most))

    def text() -> str:
        return " ".join(some(words, 6))

    def row() -> dict[str, Any]:
        result = {name: rng.gauss(0, 1) for name in ("age", "dose", "mass") if rng.random() < 0.9}
        return {**result, "site": rng.choice(["site 0", "site 3", "elsewhere", None])}

    def k() -> int:
        return rng.choice([1, 5, 10, 10, 10, 20, 100, 1000])

    makers: list[Callable[[], Request]] = [
        lambda: post("queries", "packages", queries=[rng.choice(queries)], k=k()),
        lambda: post("queries", "packages", queries=[rng.choice(queries)]),
        lambda: post("batch", "packages", queries=some(queries, 50), include_seen=True),
        lambda: post("history", "packages", history=some(candidates, 8), k=k()),
        lambda: post("history", "packages", history=[]),
        lambda: post("batch", "packages", history=[some(candidates, 4), []]),
        lambda: post("candidates", "packages", candidates=some(candidates, 3), k=k()),
        lambda: post("filters", "packages", queries=some(queries, 3), exclude=some(candidates, 50)),
        lambda: post("filters", "packages", queries=some(queries, 3), allow=some(candidates, 300)),
        lambda: post("text", "suggestions", text=text(), k=k()),
        lambda: post("batch", "suggestions", text=[text() for _ in range(rng.randint(1, 20))]),
        lambda: post("candidates", "suggestions", candidates=some(others, 3)),
        lambda: post("grade", "patients", "grade", rows=[row() for _ in range(rng.randint(1, 40))]),
        lambda: post("grade", "patients", "grade", rows=[row()], fpr=rng.choice([0.01, 0.05, 0.2])),
        lambda: Request("keys", "GET", f"/keys?side=candidate&like={rng.choice(words)}"),
        lambda: Request("history of", "GET", f"/history?query={quote(rng.choice(queries))}"),
        lambda: Request("card", "GET", f"/models/{rng.choice(NAMES)}/card"),
        lambda: Request(
            "state", "GET", rng.choice(["/health", "/ready", "/metrics", "/models", "/"])
        ),
    ]
    broken: list[Callable[[], Request]] = [
        lambda: post("broken", "packages", queries=["no such package " + text()]),
        lambda: post("broken", "packages", queries=[True], k=-1),
        lambda: post("broken", "packages", text="of a model that reads none"),
        lambda: post("broken", "patients", "grade", rows=[{"height": 3}]),
        lambda: Request("broken", "POST", "/search", None, rng.randbytes(rng.randint(0, 5000))),
        lambda: Request("broken", "POST", "/search", None, b"[" * rng.randint(1, 100_000)),
        lambda: Request("broken", "POST", "/search", None, b" " * (2**20 + rng.randint(1, 10**6))),
        lambda: Request("broken", "POST", "/search", None, b"{}", {"content-type": "text/html"}),
        lambda: Request("broken", "GET", f"/{rng.choice(['x', 'page/../../x', 'models/x/card'])}"),
        lambda: Request("broken", "DELETE", "/search"),
    ]
    return lambda: rng.choice(broken if rng.random() < BROKEN else makers)()


def prepared(client: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
    content = request.content if request.body is None else json.dumps(request.body).encode()
    headers = {} if content is None else request.headers
    return client.build_request(request.method, request.path, content=content, headers=headers)


async def hang_up(address: str, rng: random.Random) -> None:
    """Begin a request and disconnect."""
    host, port = address.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20\r\n\r\n"
    whole = head + b'{"queries": ["a"]}  '
    writer.write(whole[: rng.randint(0, len(whole))])
    await writer.drain()
    writer.close()


# ---------------------------------------------------------------------------------- the run


class Soak:
    """Requests sent and their outcomes."""

    def __init__(
        self,
        address: str,
        process: int,
        versions: dict[str, list[Any]],
        folders: dict[str, Path],
    ) -> None:
        self.address, self.process = address, process
        self.versions, self.folders = versions, folders
        self.statuses: Counter[str] = Counter()
        self.seconds: dict[str, list[float]] = {}
        self.dropped: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.memory: list[int] = []
        self.stalls: list[
            tuple[int, float]
        ] = []  # when, and how long, this process was not scheduled
        self.troubles: list[tuple[int, str]] = []  # when, and what
        self.began = time.monotonic()
        self.swaps = 0
        self.metrics = ""

    async def run(self, seconds: float, clients: int) -> None:
        end = time.monotonic() + seconds
        asking = [self._ask(number, end) for number in range(clients)]
        await asyncio.gather(*asking, self._swap(end), self._watch(end))
        async with httpx.AsyncClient(base_url=self.address, timeout=30) as client:
            await asyncio.sleep(3)
            self.metrics = (await client.get("/metrics")).text

    async def _ask(self, number: int, end: float) -> None:
        rng = random.Random(number)
        ask = questions({name: each[0] for name, each in self.versions.items()}, rng)
        async with httpx.AsyncClient(base_url=self.address, timeout=60) as client:
            while time.monotonic() < end:
                if rng.random() < 0.01:
                    await hang_up(self.address, rng)
                request = ask()
                begin = time.perf_counter()
                try:
                    answer = await client.send(prepared(client, request))
                except httpx.TransportError as error:
                    self.dropped[f"{request.kind}: {error!r}"[:200]] += 1
                    self._trouble(f"{request.kind}: {error!r}")
                    continue
                self._note(request, answer, time.perf_counter() - begin)

    def _note(self, request: Request, answer: httpx.Response, seconds: float) -> None:
        self.statuses[f"{request.kind} {answer.status_code}"] += 1
        self.seconds.setdefault(request.kind, []).append(seconds)
        good = answer.status_code == 200
        if good == (request.kind == "broken") and answer.status_code != 429:
            self.wrong[f"{request.kind} {answer.status_code} {answer.text[:100]}"] += 1
            self._trouble(f"{request.kind} {answer.status_code}")

    def _trouble(self, what: str) -> None:
        self.troubles.append((int(time.monotonic() - self.began), what[:80]))

    async def _swap(self, end: float) -> None:
        while time.monotonic() + SWAP < end:
            await asyncio.sleep(SWAP)
            name = NAMES[self.swaps % len(NAMES)]
            version = self.versions[name][(self.swaps // len(NAMES) + 1) % 2]
            await asyncio.to_thread(version.save, self.folders[name])
            self.swaps += 1

    async def _watch(self, end: float) -> None:
        while time.monotonic() < end:
            self.memory.append(self._resident())
            before = time.monotonic()
            await asyncio.sleep(1)
            late = time.monotonic() - before - 1
            if late > STALL:
                self.stalls.append((int(before - self.began), round(late, 1)))

    def _resident(self) -> int:
        pages = Path(f"/proc/{self.process}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def summary(self) -> dict[str, Any]:
        settled = self.memory[len(self.memory) // 5 :]
        part = max(1, len(settled) // 4)
        first, last = median(settled[:part]), median(settled[-part:])
        counted = re.findall(
            r'rankfold_swaps_total\{model="\w+",outcome="(\w+)"\} (\d+)', self.metrics
        )
        taken = {outcome: 0 for outcome in ("done", "failed")}
        for outcome, n in counted:
            taken[outcome] += int(n)
        statuses: Counter[int] = Counter()
        for name, n in self.statuses.items():
            statuses[int(name.rpartition(" ")[2])] += n
        bad = {status: n for status, n in statuses.items() if not 200 <= status < 500}
        good = not bad and not self.dropped and not self.wrong
        good = good and taken == {"done": self.swaps, "failed": 0}
        return {
            "good": good and last <= GROWTH * first,
            "requests": statuses.total(),
            "statuses": dict(sorted(statuses.items())),
            "by_kind": dict(sorted(self.statuses.items())),
            "dropped": dict(self.dropped),
            "troubles": self.troubles[:50],
            "stalls": self.stalls[:50],
            "wrong": dict(self.wrong.most_common(20)),
            "swaps": self.swaps,
            "taken": taken,
            "memory_mib": {
                "first": round(self.memory[0] / 2**20, 1),
                "settled": round(first / 2**20, 1),
                "last": round(last / 2**20, 1),
                "most": round(max(self.memory) / 2**20, 1),
                "growth": round(last / first, 4),
            },
            "milliseconds": {kind: spread(each) for kind, each in sorted(self.seconds.items())},
        }


def spread(seconds: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=100) if len(seconds) > 1 else seconds * 99
    return {"p50": round(1e3 * cuts[49], 2), "p99": round(1e3 * cuts[98], 2), "n": len(seconds)}


@contextmanager
def serving(folders: list[Path], threads: int = 1, processes: int = 1) -> Iterator[tuple[str, int]]:
    """A server process: its address and process id; it must exit with 0."""
    words = ["serve", *folders, "--port", 0, "--quiet", "--threads", threads]
    words += ["--processes", processes]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "rankfold", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://\S+", line)
        assert address, line
        try:
            yield address[0], process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=60)
            log.seek(0)
            lines = [line for line in log if '"info"' not in line]
            print(*lines[-20:], sep="", file=sys.stderr)
            assert code == 0, code


if __name__ == "__main__":
    main()
