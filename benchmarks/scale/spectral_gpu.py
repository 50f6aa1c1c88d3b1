"""The spectral solver on a GPU: seconds and share of memory bandwidth for 100 million pairs.

    python -m benchmarks.scale.spectral_gpu [--pairs 1e8] [--width 64] [--out DIR]

1 M queries x 100 k candidates, skewed. For each pair, a product with R^T R reads its index and a
vector of the block on either side. Those bytes per second, divided by the bandwidth of a plain copy
in device memory, are the share. Requires only torch and numpy.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.paths import RESULTS
from rankfold.methods.closed_form.spectral import factors, fold
from rankfold.objectives.implicit import ials
from rankfold.objectives.quadratic import candidate_half, query_half
from rankfold.objectives.rg import rg2, row_sizes, target_line
from rankfold.solvers.als import sweep
from rankfold.solvers.conjugate_gradients import by_conjugate_gradients
from rankfold.solvers.spectral import Target, decompose
from rankfold.types import Interactions

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=float, default=1e8)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--out", type=Path, default=RESULTS / "scale")
    args = parser.parse_args()
    rows = generate(int(args.pairs))
    copied = bandwidth()
    name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "cpu"
    result = {"device": name, "pairs": rows.n_pairs, "copy GB/s": copied / 1e9}
    result["sizes"] = [rows.n_queries, rows.n_candidates]
    for width in args.widths:
        result[f"width {width}"] = measure(rows, width, copied)
        print(json.dumps(result), flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "spectral_gpu.json").write_text(json.dumps(result, indent=1) + "\n")


def generate(pairs: int) -> Interactions:
    """Distinct candidates per query: popular and uniform ones, 100 draws per query."""
    queries, candidates = max(10, pairs // 100), max(10, pairs // 1000)
    rng = torch.Generator(DEVICE).manual_seed(0)
    parts, counts = [], []
    for start in range(0, queries, 100_000):
        size = min(100_000, queries - start)
        draws = torch.rand(size, 100, generator=rng, device=DEVICE) ** 2.5
        chosen = (draws * candidates).int().clamp(max=candidates - 1).sort(dim=1).values
        fresh = torch.ones_like(chosen, dtype=torch.bool)
        fresh[:, 1:] = chosen[:, 1:] != chosen[:, :-1]
        parts.append(chosen[fresh])
        counts.append(fresh.sum(dim=1))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64, device=DEVICE), torch.cat(counts)])
    return Interactions(offsets.cumsum(0), torch.cat(parts), None, candidates)


def measure(rows: Interactions, width: int, copied: float) -> dict[str, float]:
    clock()
    began = clock()
    objective = rg2(rows, 0.0, exponent=-0.375, candidate_exponent=0.35)
    target = Target(objective, 2**36)
    list(target.pairs)
    prepared = clock() - began
    began = clock()
    passes = list(decompose(target, width, torch.Generator().manual_seed(0), tolerance=0.07))
    result = passes[-1]
    solved = clock() - began
    began = clock()
    assert result.vectors is not None
    solution = factors(objective, result.values, result.vectors, 0.0)
    slope, power = target_line(row_sizes(rows), rows.n_candidates, -0.375)
    fold(solution, rows, slope, -power)
    folded = clock() - began
    block = max(16, width // 4)
    vectors = torch.randn(rows.n_candidates, block, device=DEVICE)
    product = timed(lambda: target.normal(vectors))
    moved = 2 * rows.n_pairs * (4 + 4 * block)
    o = ials(rows, 0.003, 0.03)
    halves = query_half(o), candidate_half(o, rows.transpose())
    p = torch.randn(rows.n_queries, width, device=DEVICE) * 0.01
    q = torch.randn(rows.n_candidates, width, device=DEVICE) * 0.01
    swept = timed(lambda: sweep(halves, p, q, by_conjugate_gradients(2)))
    return {
        "prepare seconds": prepared,
        "decomposition seconds": solved,
        "passes": len(passes),
        "columns": result.columns,
        "residual": result.residual,
        "query vectors seconds": folded,
        "product seconds": product,
        "product GB/s": moved / product / 1e9,
        "share of copy bandwidth": moved / product / copied,
        "ials sweep seconds": swept,
        "peak GiB": torch.cuda.max_memory_allocated() / 2**30 if DEVICE.type == "cuda" else 0.0,
    }


def bandwidth() -> float:
    """Bytes per second read and written by a plain copy."""
    source = torch.zeros(2**28 if DEVICE.type == "cuda" else 2**26, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.nbytes / timed(lambda: target.copy_(source))


def timed(work: Callable[[], object], rounds: int = 5) -> float:
    work()
    seconds = []
    for _ in range(rounds):
        began = clock()
        work()
        seconds.append(clock() - began)
    return sorted(seconds)[rounds // 2]


def clock() -> float:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
