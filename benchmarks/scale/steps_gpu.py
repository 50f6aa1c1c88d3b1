"""In-batch methods on a GPU: a step with its floor, and tables of 100 million rows.

    python -m benchmarks.scale.steps_gpu step [--batch 8192] [--width 128]
    python -m benchmarks.scale.steps_gpu tables [--rows 1e8] [--width 64]

``step``: milliseconds of a step of ``ssl-pop``, ``bir`` and ``xir`` on 1 M queries x 200,000
candidates. The floor is what the same shapes cost at least: scores of batch x pool in float32, a
softmax over them and the two products of their gradient, without a sampler, a table or an
optimiser.

``tables``: ``ssl-pop`` with ``table=float16``: vectors of ``--rows`` candidates in half precision,
with a momentum in half precision and two numbers per row. Peak memory, and what it is by
arithmetic: 4 x width + 8 bytes per row. Requires only torch and numpy; ``--out`` gets the figures.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.paths import RESULTS
from benchmarks.quality.quadratic import DEVICE, start
from rankfold.methods import METHODS
from rankfold.types import Dataset, Interactions, Vocabulary

METHODS_HERE = ("ssl-pop", "bir", "xir")
SHAPES = {"ssl-pop": (1,), "bir": (1,), "xir": (1, 1)}  # pools of a step, in batches
PAIRS_PER_QUERY, WARM_UP, ROUNDS = 4, 3, 20
STRETCHES = 6  # of about a second, after the first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["step", "tables"])
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--width", type=int)
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--queries", type=float, default=1e6)
    parser.add_argument("--out", type=Path, default=RESULTS / "scale")
    args = parser.parse_args()
    if args.task == "step":
        result = steps(int(args.queries), args.batch, args.width or 128)
    else:
        result = tables(int(args.queries), int(args.rows), args.batch, args.width or 64)
    name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else str(DEVICE)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"steps_gpu-{args.task}.json"
    path.write_text(json.dumps({"device": name, **result}, indent=1) + "\n")
    print(path.read_text())


def steps(n_queries: int, batch: int, width: int) -> dict[str, Any]:
    """Milliseconds per step and of its floor, by method."""
    data = pairs(n_queries, n_queries // 5)
    result: dict[str, Any] = {"batch": batch, "width": width}
    for method in METHODS_HERE:
        spent, _ = trained(method, data, batch, width, {})
        floor = sum(least(batch, share * batch, width) for share in SHAPES[method])
        result[method] = {"ms": spent, "floor_ms": floor, "times_floor": spent / floor}
    return result


def tables(n_queries: int, n_rows: int, batch: int, width: int) -> dict[str, Any]:
    """Milliseconds per step and bytes with large tables, as halves and as float32."""
    data = pairs(n_queries, n_rows)
    result: dict[str, Any] = {"rows": n_rows, "width": width, "batch": batch}
    for table, size in (("float16", 4 * width + 8), ("float32", 8 * width + 8)):
        spent, peak = trained("ssl-pop", data, batch, width, {"table": table})
        by_arithmetic = size * (n_rows + n_queries)
        result[table] = {"ms": spent, "peak_bytes": peak, "tables_and_state_bytes": by_arithmetic}
    return result


def pairs(n_queries: int, n_candidates: int) -> Dataset:
    """Queries with a few choices each, of which early candidates are more popular."""
    rng = torch.Generator().manual_seed(0)
    drawn = torch.rand(n_queries, PAIRS_PER_QUERY, generator=rng, dtype=torch.float64)
    places = torch.arange(PAIRS_PER_QUERY)  # of the range of a place, so that none is repeated
    ids = ((places + drawn**2.5) / PAIRS_PER_QUERY * n_candidates).long()
    offsets = torch.arange(n_queries + 1) * PAIRS_PER_QUERY
    rows = Interactions(
        offsets, ids.clamp(max=n_candidates - 1).flatten().int(), None, n_candidates
    )
    names = Vocabulary.numbered(n_queries), Vocabulary.numbered(n_candidates)
    return Dataset("interactions", rows, None, None, *names)


def trained(
    method: str, data: Dataset, batch: int, width: int, more: dict[str, Any]
) -> tuple[float, int]:
    """Milliseconds per step in training and the peak of memory.

    A fit pauses about every second. The steps up to the first pause are the warm-up.
    """
    recipe, run = METHODS[method], start(data, 0)
    config = recipe.config(
        width=width, batch_size=batch, optimiser="row-adam", epochs=1, lr=0.01, **more
    )
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    places: list[tuple[float, int]] = []  # seconds, and steps until then
    for step in recipe.fit(data, config, run):
        done = data.split("train").n_pairs // batch if step.whole else int(step.state()["place"])
        places.append((time.perf_counter(), done))
        if step.whole or len(places) > STRETCHES:
            break
    (began, first), (ended, last) = places[0], places[-1]
    peak = torch.cuda.max_memory_allocated() if DEVICE.type == "cuda" else 0
    return 1000 * (ended - began) / max(last - first, 1), peak


def least(batch: int, pool: int, width: int) -> float:
    """Milliseconds of the scores, their softmax, and the gradients of both sides."""
    queries, others = (torch.randn(n, width, device=DEVICE) for n in (batch, pool))

    def work() -> None:
        weights = (queries @ others.T).softmax(dim=1)
        _ = weights @ others, weights.T @ queries

    return 1000 * clocked(work)


def clocked(work: Callable[[], None]) -> float:
    """Seconds of one call, by the mean of some."""
    for _ in range(WARM_UP):
        work()
    settle()
    began = time.perf_counter()
    for _ in range(ROUNDS):
        work()
    settle()
    return (time.perf_counter() - began) / ROUNDS


def settle() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
