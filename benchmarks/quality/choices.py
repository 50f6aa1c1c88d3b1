"""What methods choose with all, few or no validation queries, on the sets of ``defaults.py``.

    python -m benchmarks.quality.choices OUT.jsonl --sets NAME... [--methods rg2 ease]
        [--queries all 40 0] [--settings '{"popularity": 0}'] [--workers 2]

Each line has the validation and test ndcg@10 of a fit, over all queries, its CPU seconds and what
it chose. A second run resumes.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.quality.defaults import PATIENCE, Judged, load
from rankfold.distributed.collectives import SingleProcess
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.training.early_stopping import History
from rankfold.types import Run

CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--methods", nargs="+", default=["rg2"])
    parser.add_argument("--queries", nargs="+", default=["all"])
    parser.add_argument("--draws", type=int, default=3, help="of few queries")
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    known = [json.loads(line) for line in args.out.open()] if args.out.exists() else []
    jobs = [
        {"set": name, "method": method, "queries": n, "draw": draw, "settings": args.settings}
        for name, method, n in product(args.sets, args.methods, args.queries)
        for draw in range(1 if n in ("all", "0") else args.draws)
    ]
    missing = [job for job in jobs if not any(job.items() <= one.items() for one in known)]
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        for future in as_completed(pool.submit(fit, job) for job in missing):
            with args.out.open("a") as file:
                file.write(json.dumps(future.result()) + "\n")


def fit(job: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    data, method = load(job["set"]), METHODS[job["method"]]
    judged = Judged(data, "validation")
    if job["queries"] != "all":
        order = torch.randperm(
            len(judged.queries), generator=torch.Generator().manual_seed(1000 + job["draw"])
        )
        judged.queries = judged.queries[order[: int(job["queries"])].sort().values]
    has_queries = len(judged.queries) > 0
    run = Run(
        rng=torch.Generator().manual_seed(0),
        device=CPU,
        comm=SingleProcess(),
        judge=judged if has_queries else None,
        validate=(lambda model: judged.mean(model, CPU)) if has_queries else None,
        build_index=Exact,
        memory_budget=2**28,
    )
    began, history = time.process_time(), History()
    for step in method.fit(data, method.config(**job["settings"]), run):
        if step.whole:
            asks = step.model is not None and run.validate is not None and not method.self_tuning
            history.note(step, run.validate(step.model) if asks else None)  # type: ignore[misc]
            if history.is_over(step, PATIENCE):
                break
    model = history.model
    assert model is not None
    if method.finalize is not None:
        model = method.finalize(model, data.split("train"), run)
    seconds = round(time.process_time() - began, 2)
    figures = {
        split: round(Judged(data, split).mean(model, CPU), 5) for split in ("validation", "test")
    }
    return {**job, **figures, "cpu seconds": seconds, "chosen": dict(model.config)}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
