"""Approximate search against exact search and faiss's HNSW: build, query time, recall, memory.

    python -m benchmarks.scale.index_recall [--threads N ...] [--large] [--write]

Candidates have width 128. *clustered*: unit vectors around N / 100 centres. *skewed*: normal, with
columns of decreasing size and log-normal norms, like the factors of a factorisation. The queries
follow the same distribution; the index is tuned on others. HNSW (up to 100,000 candidates) has
16 links; its ``efSearch`` is the first of a few that reaches the target recall@100, else the last.
Milliseconds are per query in a batch of 1000. On a busy machine two threads wait for each other,
and their figures mean little: the load before and after is saved with the figures.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import faiss
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.paths import RESULTS
from rankfold.index.exact import Exact
from rankfold.index.inverted import Inverted

RESULT = RESULTS / "scale" / "index_recall.json"
WIDTH, QUERIES, TARGET = 128, 1000, 0.95
SIZES = [10_000, 100_000, 1_000_000]
LARGE = 10_000_000
MOST_FOR_HNSW = 100_000
EF = [64, 128, 256, 512, 1024]


class Case(NamedTuple):
    candidates: Tensor
    tuning: Tensor
    queries: Tensor
    truth: Tensor  # [QUERIES, 100]
    threads: list[int]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--large", action="store_true", help=f"also {LARGE:,} candidates")
    parser.add_argument("--write", action="store_true", help=f"write the figures to {RESULT.name}")
    args = parser.parse_args()
    rows, load = [], [os.getloadavg()[0]]
    for n in SIZES + [LARGE] * args.large:
        for kind, draw in {"clustered": clustered, "skewed": skewed}.items():
            for row in compare(n, draw, args.threads):
                rows.append({"candidates": n, "kind": kind, **row})
                print(json.dumps(rows[-1]), flush=True)
    if args.write:
        load.append(os.getloadavg()[0])
        kept = {"width": WIDTH, "target": TARGET, "load": load, "rows": rows}
        RESULT.write_text(json.dumps(kept, indent=1) + "\n")


def compare(n: int, draw: Callable[[int], Tensor], threads: list[int]) -> list[dict[str, Any]]:
    """One row per way to search n candidates."""
    drawn = draw(n + 2 * QUERIES)
    candidates, tuning, queries = drawn.split([n, QUERIES, QUERIES])
    torch.set_num_threads(max(threads))
    truth = Exact(candidates).search(queries, 100).ids
    case = Case(candidates, tuning, queries, truth, threads)
    rows = [measure_exact(case), measure_ours(case)]
    return [*rows, measure_hnsw(case)] if n <= MOST_FOR_HNSW else rows


def measure_exact(case: Case) -> dict[str, Any]:
    index = Exact(case.candidates)
    return {"way": "exact", **timed(case, lambda k: index.search(case.queries, k).ids)}


def measure_ours(case: Case) -> dict[str, Any]:
    builds = {}
    for threads in case.threads:
        torch.set_num_threads(threads)
        before, began = resident_bytes(), perf_counter()
        index = Inverted(case.candidates, queries=case.tuning, target=TARGET)
        builds[f"build_s_{threads}"] = round(perf_counter() - began, 2)
        held = resident_bytes() - before
    searched = timed(case, lambda k: index.search(case.queries, k).ids)
    probing = {p.depth: [p.groups, p.lists, p.slack, p.share] for p in index.built.probings}
    size = {
        "held_mb": round(held / 2**20),
        "file_mb": round(sum(t.nbytes for t in index.tensors().values()) / 2**20, 1),
    }
    return {"way": "ours", **builds, **searched, **size, "probings": probing}


def measure_hnsw(case: Case) -> dict[str, Any]:
    threads = max(case.threads)
    faiss.omp_set_num_threads(threads)
    began = perf_counter()
    index: Any = faiss.IndexHNSWFlat(WIDTH, 16, faiss.METRIC_INNER_PRODUCT)
    index.add(case.candidates.numpy())
    build = round(perf_counter() - began, 2)

    def search(k: int) -> Tensor:
        faiss.omp_set_num_threads(torch.get_num_threads())
        return torch.from_numpy(index.search(case.queries.numpy(), k)[1])

    for ef in EF:
        index.hnsw.efSearch = ef
        if recall(search(100), case.truth) >= TARGET:
            break
    return {"way": "hnsw", f"build_s_{threads}": build, **timed(case, search), "ef": ef}


def timed(case: Case, search: Callable[[int], Tensor]) -> dict[str, Any]:
    """Milliseconds per query with one and two threads, and recall, at 10 and 100."""
    row: dict[str, Any] = {}
    for k in (10, 100):
        for threads in case.threads:
            torch.set_num_threads(threads)
            began = perf_counter()
            ids = search(k)
            row[f"ms@{k}_{threads}"] = round((perf_counter() - began) / QUERIES * 1000, 3)
        row[f"recall@{k}"] = round(recall(ids, case.truth[:, :k]), 4)
    return row


def recall(result: Tensor, truth: Tensor) -> float:
    return float((result.unsqueeze(2) == truth.unsqueeze(1)).any(dim=1).double().mean())


def clustered(n: int) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    centres = normalize(torch.randn(n // 100, WIDTH, generator=rng))
    noise = torch.randn(n, WIDTH, generator=rng).mul_(0.7 / WIDTH**0.5)
    return normalize(noise.add_(centres[torch.randint(0, len(centres), (n,), generator=rng)]))


def skewed(n: int) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    norms = torch.randn(n, 1, generator=rng).mul_(0.5).exp_()
    columns = torch.arange(1, WIDTH + 1) ** -0.5
    return torch.randn(n, WIDTH, generator=rng).mul_(norms).mul_(columns)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    main()
