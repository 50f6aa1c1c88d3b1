"""The server under load: requests per second and latencies, against faiss called in a loop.

    python -m benchmarks.serve.load [--kind auto] [--seconds 10] [--home DIR] [--write]

The model in DIR has 1,000,000 candidates and 100,000 queries of width 64, with the vectors of
``scale/index.py``; each query has seen 20 candidates. ``rankfold index`` gives it an index with a
recall of at least 0.98. One server process answers ``{"queries": [KEY], "k": 10}`` with random
keys. wrk sends the requests from another process on the same machine, with 1, 4, 16 and 64
connections. Recall is measured over HTTP, against exact search.

The comparison on the same vectors, in one thread: faiss's inverted file with the smallest
``nprobe`` of a few that has that recall, one query and 16 queries at a time, and the model's own
search in a loop. faiss excludes nothing; the model excludes seen candidates. faiss's HNSW was not
measured here (rankfold's ``--kind hnsw`` refused this model, with a recall@16 of 0.886 at most for
the efforts that it tries). The overhead is the CPU time of a request with one connection, less that
of the model's own search. With 1, 2 and 4 processes, each with 16 connections, the CPU time of a
request is summed over all processes. On a busy machine CPU time is more reliable than the clock.
The load before and after is saved with the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import polars as pl
import torch
from torch import Tensor

from benchmarks.paths import RESULTS, SCRATCH
from benchmarks.scale.index import made_vectors
from benchmarks.serve.soak import serving
from rankfold.index.exact import Exact
from rankfold.models.load import load_ranker
from rankfold.models.ranker import Ranker
from rankfold.models.ranking import hidden
from rankfold.models.search import Filter
from rankfold.types import Model, Vocabulary, from_pairs

RESULT = RESULTS / "serve" / "load.json"
FOLDER = SCRATCH / "serve_load"
N, M, WIDTH, SEEN, K = 1_000_000, 100_000, 64, 20, 10
TARGET = 0.98
CONNECTIONS = (1, 4, 16, 64)
PROCESSES = (1, 2, 4)
EACH = 16  # connections per process, so that searches are shared equally
RECALL_QUERIES = 1000  # to measure recall
LISTS = 4096  # of plain faiss
TOGETHER = 16
PROBES = (*range(64, 640, 32), 1024)
LOADED = """
local headers = {["content-type"] = "application/json"}
math.randomseed(os.time())
request = function()
  local key = string.format("q%06d", math.random(0, QUERIES - 1))
  return wrk.format("POST", "/search", headers, '{"queries":["' .. key .. '"],"k":10}')
end
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"seconds":%f,"p50":%f,"p90":%f,"p99":%f,"p999":%f,"max":%f,"bad":%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(90) / 1e3, latency:percentile(99) / 1e3, latency:percentile(99.9) / 1e3,
    latency.max / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kind", default="auto")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--home", type=Path, default=FOLDER)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-faiss", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = given.home / "model"
    if not (folder / "manifest.json").exists():
        given.home.mkdir(parents=True, exist_ok=True)
        make().save(folder)
    made = indexed(folder, given.kind)
    ranker = load_ranker(folder)
    queries, candidates = (ranker.model.tensors[name] for name in ("queries", "candidates"))
    rows = torch.randint(0, M, (RECALL_QUERIES,), generator=torch.Generator().manual_seed(1))
    truth = Exact(candidates).search(queries[rows], K, hidden(ranker, rows)).ids
    result: dict[str, Any] = {
        "candidates": N,
        "queries": M,
        "width": WIDTH,
        "cores": os.cpu_count(),
        "load_before": os.getloadavg(),
        "index": made,
    }
    result["in_process"] = in_process(ranker, rows, truth)
    del ranker
    with serving([folder], given.threads) as (address, process):
        result["recall"] = recall_over_http(address, rows, truth)
        result["loads"] = [drive(address, process, n, given.seconds) for n in CONNECTIONS]
    result["processes"] = {}
    for n in PROCESSES:
        with serving([folder], given.threads, n) as (address, process):
            result["processes"][n] = drive(address, process, EACH * n, given.seconds)
    if not given.no_faiss:
        result["faiss"] = plain_faiss(candidates, queries[rows])
    result["load_after"] = os.getloadavg()
    summarise(result)
    print(json.dumps(result, indent=2))
    if given.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


def make() -> Ranker:
    """The model."""
    rng = torch.Generator().manual_seed(0)
    vectors = made_vectors(N + M, rng)
    tensors = {"queries": vectors[N:].clone(), "candidates": vectors[:N].clone()}
    pairs = torch.randint(0, N, (M, SEEN), generator=rng).sort(dim=1).values
    rows, columns = torch.arange(M).repeat_interleave(SEEN), pairs.flatten()
    fresh = torch.ones(len(rows), dtype=torch.bool)
    fresh[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    seen = from_pairs(rows[fresh], columns[fresh], None, (M, N))
    notes = {"history": [], "seed": 0}
    return Ranker(
        Model("rg2-plain", {"width": WIDTH, "reg": 1.0}, tensors, notes),
        _numbered("q", M),
        _numbered("c", N),
        seen,
    )


def _numbered(letter: str, n: int) -> Vocabulary:
    width = len(str(n - 1)) if letter == "c" else 6
    keys = pl.select(pl.lit(letter) + pl.int_range(n).cast(pl.String).str.zfill(width)).to_series()
    return Vocabulary(n, lambda: keys)


def indexed(folder: Path, kind: str) -> dict[str, Any]:
    """The manifest's entry of the index, which is built if it is missing."""

    def entry() -> Any:
        return json.loads((folder / "manifest.json").read_text()).get("index")

    if entry() is None or kind not in ("auto", entry()["kind"]):
        words = ["index", folder, "--kind", kind, "--recall", TARGET]
        subprocess.run([sys.executable, "-m", "rankfold", *map(str, words)], check=True)
    result: dict[str, Any] = entry()
    return result


def drive(address: str, process: int, connections: int, seconds: int) -> dict[str, Any]:
    """Wrk's figures in milliseconds, and the server's CPU time per request."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(LOADED.replace("QUERIES", str(M)))
        script.flush()
        how = ["-t1", f"-c{connections}", "--timeout", "10s", "-s", script.name, address]
        subprocess.run(["wrk", "-d2s", *how], check=True, capture_output=True)  # warms up
        before = processor_seconds(process)
        done = subprocess.run(
            ["wrk", f"-d{seconds}s", *how], check=True, capture_output=True, text=True
        )
        used = processor_seconds(process) - before
    result = json.loads(done.stdout.partition("RESULT ")[2])
    rate = result["requests"] / result["seconds"]
    each = {"processor_microseconds": round(1e6 * used / result["requests"])}
    return {"connections": connections, "requests_per_second": round(rate, 1), **result, **each}


def processor_seconds(process: int) -> float:
    """CPU time of the threads of a process and its children, to the nanosecond."""
    threads = list(Path(f"/proc/{process}/task").iterdir())
    children = (child for one in threads for child in (one / "children").read_text().split())
    own = sum(int((one / "schedstat").read_text().split()[0]) for one in threads)
    return own / 1e9 + sum(map(processor_seconds, map(int, children)))


def recall_over_http(address: str, rows: Tensor, truth: Tensor) -> float:
    """recall@10 of the server's answers."""
    lists: list[list[int]] = []
    for part in rows.split(100):
        body = json.dumps({"queries": [f"q{row:06d}" for row in part.tolist()], "k": K})
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{address}/search", body.encode(), headers)
        with urllib.request.urlopen(request) as answer:
            results = json.load(answer)["results"]
        lists += [[int(each["candidate"][1:]) for each in entry["candidates"]] for entry in results]
    return _recall(torch.tensor(lists), truth)


def in_process(ranker: Ranker, rows: Tensor, truth: Tensor) -> dict[str, float]:
    """The model's own search in a loop, one query at a time, in one thread."""
    lists: list[Tensor] = []

    def ask(row: Tensor) -> None:
        unwanted = hidden(ranker, row)
        lists.append(ranker.searcher.of_queries(row, K, Filter(unwanted)).ids)

    ask(rows[:1])
    lists.clear()
    took = _timed(ask, rows)
    return {**took, "recall": _recall(torch.cat(lists), truth)}


def plain_faiss(candidates: Tensor, asked: Tensor) -> dict[str, Any]:
    """Faiss's inverted file; nothing is excluded."""
    faiss.omp_set_num_threads(os.cpu_count() or 1)
    begin = time.perf_counter()
    lists = faiss.IndexFlatIP(WIDTH)
    index = faiss.IndexIVFFlat(lists, WIDTH, LISTS, faiss.METRIC_INNER_PRODUCT)
    rng = torch.Generator().manual_seed(2)
    index.train(candidates[torch.randint(0, N, (40 * LISTS,), generator=rng)].numpy())
    index.add(candidates.numpy())
    built = time.perf_counter() - begin
    faiss.omp_set_num_threads(1)
    truth = Exact(candidates).search(asked, K).ids
    for probes in PROBES:
        index.nprobe = probes
        recall = _recall(torch.from_numpy(index.search(asked.numpy(), K)[1]), truth)
        if recall >= TARGET:
            break
    each = _timed(lambda row: index.search(row.numpy(), K), asked)
    many = _timed(lambda rows: index.search(rows.numpy(), K), asked, TOGETHER)
    about = {"lists": LISTS, "probes": probes, "recall": recall, "build_seconds": round(built, 1)}
    return {**each, "together": many, **about}


def _timed(ask: Callable[[Tensor], Any], each: Tensor, size: int = 1) -> dict[str, float]:
    """Milliseconds per row in calls of ``size`` rows: elapsed and CPU time."""
    begin, used = time.perf_counter(), time.process_time()
    for rows in each.split(size):
        ask(rows)
    used, passed = time.process_time() - used, time.perf_counter() - begin
    return {
        "microseconds": round(1e6 * passed / len(each), 1),
        "processor_microseconds": round(1e6 * used / len(each), 1),
    }


def _recall(lists: Tensor, truth: Tensor) -> float:
    same = (lists[:, :, None] == truth[:, None, :]).any(dim=2)
    return round(float(same.double().mean()), 4)


def summarise(result: dict[str, Any]) -> None:
    """CPU time of a request beyond the search, and relative to faiss.

    One connection is compared with one call of faiss; 16 connections, which share searches, with
    faiss given 16 queries at a time.
    """
    loads = {load["connections"]: load["processor_microseconds"] for load in result["loads"]}
    result["overhead_microseconds"] = round(
        loads[1] - result["in_process"]["processor_microseconds"], 1
    )
    if "faiss" in result:
        plain, many = result["faiss"], result["faiss"]["together"]
        result["ratio_to_faiss"] = {
            "alone": round(loads[1] / plain["processor_microseconds"], 3),
            "together": round(loads[16] / many["processor_microseconds"], 3),
        }


if __name__ == "__main__":
    main()
