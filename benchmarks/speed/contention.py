"""Fits alone, beside three busy loops and on one core: wall and CPU seconds, in one run.

    taskset --cpu-list 0,1 python -m benchmarks.speed.contention [--write LABEL]

Each fit runs in its own process with two torch threads, after a small one that warms it up.
``implicit`` is measured if it can be imported. ``run`` requires only torch and numpy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from statistics import median
from typing import Any

from benchmarks.paths import RESULTS

FITS = ("rg2", "ials", "bpr", "implicit")
PAIRS, QUERIES, CANDIDATES = int(os.environ.get("PAIRS", "500000")), 20_000, 10_000
SETTINGS: dict[str, dict[str, Any]] = {
    "rg2": {"width": 256},
    "ials": {"width": 128, "sweeps": 15},
    "bpr": {"width": 64, "epochs": 1},
}
BUSY = "while True: pass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", choices=FITS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fits", nargs="+", default=FITS)
    parser.add_argument("--write", metavar="LABEL")
    args = parser.parse_args()
    if args.fit:
        print(json.dumps(fit(args.fit)))
        return
    results: dict[str, Any] = {}
    for name in args.fits:
        rounds = [one_round(name) for _ in range(args.rounds)]
        if rounds[0] is None:
            continue
        results[name] = {
            where: [round(median(r[where][i] for r in rounds), 2) for i in (0, 1)]
            for where in rounds[0]
        }
        print(name, results[name], flush=True)
    if args.write:
        path = RESULTS / "speed" / f"contention-{args.write}.json"
        path.write_text(json.dumps({"seconds": "wall, CPU", **results}, indent=1) + "\n")


def one_round(name: str) -> Any:
    """Wall and CPU seconds alone, beside three busy loops, and on one core."""
    alone = measure(name)
    if alone is None:
        return None
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(3)]
    try:
        beside = measure(name)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    core = str(min(os.sched_getaffinity(0)))
    return {"alone": alone, "beside 3": beside, "one core": measure(name, "taskset", "-c", core)}


def measure(name: str, *before: str) -> list[float] | None:
    command = [*before, sys.executable, "-m", "benchmarks.speed.contention", "--fit", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(name, done.stderr[-300:], file=sys.stderr)
        return None
    return list(json.loads(done.stdout.splitlines()[-1]))


def fit(name: str) -> list[float]:
    """Wall and CPU seconds of the second fit; the first, of a tenth of the data, warms up."""
    if name == "implicit":
        return fit_implicit()
    import time

    import torch

    from rankfold.distributed.collectives import SingleProcess
    from rankfold.index.exact import Exact
    from rankfold.methods import METHODS
    from rankfold.training.history import timed
    from rankfold.types import Run

    method = METHODS[name]
    for n in (PAIRS // 10, PAIRS):
        data = dataset(n)
        run = Run(
            rng=torch.Generator().manual_seed(0),
            device=torch.device("cpu"),
            comm=SingleProcess(),
            judge=Judged(data),
            build_index=Exact,
        )
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in timed(lambda: method.fit(data, method.config(**SETTINGS[name]), run)):  # noqa: B023
            pass
        result = [time.perf_counter() - wall, time.process_time() - cpu]
    return result


def fit_implicit() -> list[float]:
    import time

    import numpy as np
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    for n in (PAIRS // 10, PAIRS):
        queries, candidates = pairs(n)
        shape = (QUERIES, CANDIDATES)
        matrix = csr_matrix((np.ones(n, np.float32), (queries, candidates)), shape)
        model = AlternatingLeastSquares(128, alpha=40, iterations=15, num_threads=2, random_state=0)
        wall, cpu = time.perf_counter(), time.process_time()
        model.fit(matrix, show_progress=False)
        result = [time.perf_counter() - wall, time.process_time() - cpu]
    return result


def pairs(n: int) -> tuple[Any, Any]:
    """Pairs in 40 groups, candidates by a power law."""
    import numpy as np

    rng = np.random.default_rng(0)
    queries = rng.integers(0, QUERIES, n)
    draws = (CANDIDATES * rng.random(n) ** 2).astype(np.int64)
    return queries, np.where(
        rng.random(n) < 0.7, draws // 40 * 40 + queries % 40, draws
    ) % CANDIDATES


def dataset(n: int) -> Any:
    import torch

    from rankfold.types import Dataset, Vocabulary, from_pairs

    queries, candidates = map(torch.from_numpy, pairs(n))
    shape = (QUERIES, CANDIDATES)
    codes = (queries * CANDIDATES + candidates).unique()
    held = torch.rand(len(codes), generator=torch.Generator().manual_seed(1)) < 0.1
    train, validation = (
        from_pairs(part // CANDIDATES, part % CANDIDATES, None, shape)
        for part in (codes[~held], codes[held])
    )
    names = map(Vocabulary.numbered, shape)
    return Dataset("interactions", train, validation, None, *names)


class Judged:
    """The validation queries, at most 10,000, by ndcg@10."""

    def __init__(self, data: Any) -> None:
        self.data, self.truth, self.depth = data, data.split("validation"), 10
        self.queries = self.truth.counts().nonzero().flatten()[:10_000]

    def hidden(self, queries: Any) -> Any:
        return self.data.seen("validation").select(queries)

    def values(self, queries: Any, ids: Any) -> Any:
        from rankfold.metrics import METRICS
        from rankfold.metrics.judged import judge

        return METRICS["ndcg"].value(judge(ids, self.truth.select(queries)), 10)


if __name__ == "__main__":
    main()
