"""Exact top-k beside the matrix product alone and beside torch.topk: seconds and ratios.

    python benchmarks/topk.py [--data FOLDER] [--write]

29,858 queries x 40,981 candidates (gowalla's size), width 64, seen pairs left out. The same blocks
and the same buffer for all; runs alternate and medians are compared, because the machine is noisy.
With a prepared folder of gowalla its training pairs are the seen ones, otherwise random pairs are.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from rankfold.index.exact import Exact, make_plan
from rankfold.types import Interactions

RESULT = Path(__file__).parent / "results" / "topk.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a prepared folder")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULT.name}")
    args = parser.parse_args()
    cases = [(29_858, 40_981, 64, k) for k in (10, 20, 100)]
    cases += [(29_858, 10_000, 64, 20), (2_000, 1_000_000, 64, 20), (29_858, 40_981, 256, 20)]
    rows = []
    for m, n, width, k in cases:
        seen = _seen(m, n, args.data)
        row = {"queries": m, "candidates": n, "width": width, "k": k}
        row |= compare(m, n, width, k, seen, args.runs)
        print(json.dumps(row), flush=True)
        rows.append(row)
    if args.write:
        RESULT.write_text(json.dumps(rows, indent=1) + "\n")


def compare(m: int, n: int, width: int, k: int, seen: Interactions, runs: int) -> dict[str, float]:
    rng = torch.Generator().manual_seed(0)
    queries = torch.randn(m, width, generator=rng)
    candidates = torch.randn(n, width, generator=rng)
    ways: dict[str, Callable[[], object]] = {
        "product": lambda: _blocks(queries, candidates, lambda _: None),
        "ours": lambda: Exact(candidates).search(queries, k, seen),
        "torch_topk": lambda: _blocks(queries, candidates, lambda scores: scores.topk(k)),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(runs):
        for name, work in ways.items():
            if name == "torch_topk" and run >= 2:
                continue  # slow, and only for comparison
            began = perf_counter()
            work()
            times[name].append(perf_counter() - began)
    seconds = {name: median(values) for name, values in times.items()}
    result = {name: round(value, 3) for name, value in seconds.items()}
    result["ours/product"] = round(seconds["ours"] / seconds["product"], 2)
    result["torch_topk/product"] = round(seconds["torch_topk"] / seconds["product"], 2)
    return result


def _blocks(queries: Tensor, candidates: Tensor, work: Callable[[Tensor], object]) -> None:
    """The product alone, in the blocks that the search uses; then ``work`` on each block."""
    plan = make_plan(len(candidates), 4, 2**30)
    buffer = torch.empty(plan.rows * plan.columns)
    for start in range(0, len(queries), plan.rows):
        block = queries[start : start + plan.rows]
        for first in range(0, len(candidates), plan.columns):
            tile = candidates[first : first + plan.columns]
            scores = buffer[: len(block) * len(tile)].view(len(block), len(tile))
            torch.mm(block, tile.T, out=scores)
            work(scores)


def _seen(m: int, n: int, data: Path | None) -> Interactions:
    if data is not None:
        from rankfold.data.folder import load

        train = load(data).split("train")
        if (train.n_queries, train.n_candidates) == (m, n):
            return train
    chosen = torch.randint(0, n, (m, 27), generator=torch.Generator().manual_seed(1)).sort().values
    return Interactions(torch.arange(0, 27 * m + 1, 27), chosen.flatten().int(), None, n)


if __name__ == "__main__":
    main()
