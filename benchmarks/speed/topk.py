"""Exact search against the matrix product alone and against torch.topk: seconds and ratios.

    python -m benchmarks.speed.topk [--data DIR] [--runs N] [--write]

The main case has gowalla's size: 29,858 queries, 40,981 candidates, width 64, some 27 excluded
pairs per query. DIR holds gowalla's ``train.txt.zst``, lines ``query candidate candidate ...``; its
pairs are then the excluded ones. Without it they are random. Vectors are normal.

The product is measured twice: in the blocks of the search, and in the fastest blocks, a few MB that
stay in the cache, since the scores are not read. torch.topk gets the blocks, the buffer and the
exclusion of the search. The variants alternate in each round and ratios are taken within a round,
because a machine is seldom idle. The table shows medians.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch
import zstandard
from torch import Tensor

from benchmarks.paths import RESULTS
from rankfold.index.exact import Exact, _hide, _pairs, _row_length, make_plan
from rankfold.types import Interactions, from_pairs

RESULT = RESULTS / "speed" / "topk.json"
THREADS = 2
WAYS = ("product", "product, best blocks", "ours", "torch.topk")
PRODUCT_BLOCKS = [(512, 1024), (1024, 1024), (2048, 1024), (1024, 2048), (512, 4096), (2048, 2048)]


class Case(NamedTuple):
    queries: int
    candidates: int
    width: int
    k: int


CASES = [
    Case(29_858, 40_981, 64, 10),
    Case(29_858, 40_981, 64, 20),
    Case(29_858, 40_981, 64, 100),
    Case(29_858, 40_981, 16, 20),
    Case(29_858, 40_981, 256, 20),
    Case(29_858, 10_000, 64, 20),
    Case(1_000, 1_000_000, 64, 20),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="a folder with gowalla's train.txt.zst"
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write the figures to {RESULT.name}")
    args = parser.parse_args()
    torch.set_num_threads(THREADS)
    print("seconds; in brackets: times the product in the same blocks / in its best blocks")
    print(f"{'queries x candidates x width':>30} {'k':>4}", *(f"{way:>22}" for way in WAYS))
    rows = []
    for case in CASES:
        rows.append(compare(case, excluded_pairs(case, args.data), args.runs))
        print(_line(case, rows[-1]), flush=True)
    if args.write:
        RESULT.write_text(json.dumps({"threads": THREADS, "cases": rows}, indent=1) + "\n")


def compare(case: Case, exclude: Interactions, runs: int) -> dict[str, object]:
    """Median seconds of each way, and medians of the ratios to both products."""
    rng = torch.Generator().manual_seed(0)
    queries = torch.randn(case.queries, case.width, generator=rng)
    candidates = torch.randn(case.candidates, case.width, generator=rng)
    best = _best_product_blocks(queries, candidates)
    ways: dict[str, Callable[[], object]] = {
        "product": lambda: blocked(queries, candidates, case.k),
        "product, best blocks": lambda: product(queries, candidates, best),
        "ours": lambda: Exact(candidates).search(queries, case.k, exclude),
        "torch.topk": lambda: blocked(queries, candidates, case.k, exclude),
    }
    rounds = [{name: _seconds(work) for name, work in ways.items()} for _ in range(runs)]

    def medians(of: Callable[[dict[str, float], str], float]) -> dict[str, float]:
        return {name: round(median(of(r, name) for r in rounds), 3) for name in WAYS}

    return {
        **case._asdict(),
        "pairs": exclude.n_pairs,
        "best_blocks": best,
        "seconds": medians(lambda r, name: r[name]),
        "to_product": medians(lambda r, name: r[name] / r["product"]),
        "to_best_product": medians(lambda r, name: r[name] / r["product, best blocks"]),
    }


def blocked(
    queries: Tensor, candidates: Tensor, k: int, exclude: Interactions | None = None
) -> None:
    """The product in the blocks of the search; with ``exclude`` also torch.topk of each block.

    The best of several tiles are not merged, in favour of torch.topk.
    """
    plan = make_plan((len(queries), len(candidates)), k, 4, Exact(candidates[:1]).memory_budget)
    buffer = torch.empty(plan.queries, _row_length(plan.candidates, k))
    for start in range(0, len(queries), plan.queries):
        block = queries[start : start + plan.queries]
        for first in range(0, len(candidates), plan.candidates):
            tile = candidates[first : first + plan.candidates]
            scores = buffer[: len(block), : len(tile)]
            torch.mm(block, tile.T, out=scores)
            if exclude is not None:
                pairs = _pairs(exclude, start, start + len(block), block.device)
                _hide(scores, pairs, first, len(tile))
                scores.topk(k)


def product(queries: Tensor, candidates: Tensor, blocks: tuple[int, int]) -> None:
    """The product alone, in blocks of queries and candidates, all in one buffer."""
    buffer = torch.empty(blocks[0] * blocks[1])
    for block in queries.split(blocks[0]):
        for tile in candidates.split(blocks[1]):
            scores = buffer[: len(block) * len(tile)].view(len(block), len(tile))
            torch.mm(block, tile.T, out=scores)


def excluded_pairs(case: Case, folder: Path | None) -> Interactions:
    if folder is not None and (case.queries, case.candidates) == CASES[0][:2]:
        return _read(folder / "train.txt.zst", case)
    rng = torch.Generator().manual_seed(1)
    places = torch.randint(0, case.queries * case.candidates, (27 * case.queries,), generator=rng)
    return _from_places(places, case)


def _read(path: Path, case: Case) -> Interactions:
    with path.open("rb") as file:
        text = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file))
        lines = [[int(word) for word in line.split()] for line in text]
    places = [line[0] * case.candidates + candidate for line in lines for candidate in line[1:]]
    return _from_places(torch.tensor(places), case)


def _from_places(places: Tensor, case: Case) -> Interactions:
    """Pairs from query * N + candidate."""
    places, n = places.unique(), case.candidates
    return from_pairs(places // n, places % n, None, (case.queries, n))


def _best_product_blocks(queries: Tensor, candidates: Tensor) -> tuple[int, int]:
    """The fastest of three block sizes, on a part of the queries."""
    part = queries[:4096]
    rounds = [
        [_seconds(lambda b=blocks: product(part, candidates, b)) for blocks in PRODUCT_BLOCKS]  # type: ignore[misc]
        for _ in range(3)
    ]
    least = [min(times) for times in zip(*rounds, strict=True)]
    return PRODUCT_BLOCKS[least.index(min(least))]


def _seconds(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def _line(case: Case, row: dict[str, object]) -> str:
    seconds, same, best = row["seconds"], row["to_product"], row["to_best_product"]
    assert isinstance(seconds, dict)
    assert isinstance(same, dict)
    assert isinstance(best, dict)
    shape = f"{case.queries:,} x {case.candidates:,} x {case.width}"
    cells = [f"{seconds[way]:7.2f} ({same[way]:5.2f} / {best[way]:5.2f})" for way in WAYS]
    return f"{shape:>30} {case.k:>4} " + " ".join(f"{cell:>22}" for cell in cells)


if __name__ == "__main__":
    main()
