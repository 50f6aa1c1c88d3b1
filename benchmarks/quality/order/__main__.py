"""The paper's order, XIR > BIR > SSL-Pop: each tuned for each batch size, with paired seeds.

    python -m benchmarks.quality.order export [--data-sets gowalla] [--data DIR]   arrays
    python -m benchmarks.quality.order make                       a generated set named tiny
    python -m benchmarks.quality.order run [--workers 3] [--seconds 540] [--lines FILE]
    python -m benchmarks.quality.order collect [--lines FILE]     into results/quality/order
    python -m benchmarks.quality.order table [--write]            as in docs/reference/tables.md

A trial is a point of ``RATES`` and ``DECAYS`` for a method and a batch size: trained on train with
seed 0, scored on all validation queries after each epoch, until ``PATIENCE`` epochs brought nothing
better. It ends early where it is far behind the best trial of its method and batch size. The best
by ndcg@10 of each decay is fitted on train and validation for as many epochs, once for each of
``SEEDS``, and tested. The best of all decays is the method's own figure. The others compare
methods at equal decays. A seed gives all methods the same first vectors and the same order of
pairs, so differences are paired, by query and by seed. The width is 32, as in the paper.

``run`` requires only torch and numpy. The fits of a method and a batch size that are left take
their steps together (``stack.py``), in one of ``--workers`` processes, and are appended to
``--lines`` when the last of them is done. Fits that have a line are left out. After ``--seconds``
each stack ends with its epoch; fits that are not done are kept in the scratch folder, and a second
call goes on there. The last line printed says what is left.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import page
from benchmarks.paths import SCRATCH, SHARED
from benchmarks.quality import quadratic
from benchmarks.quality.equal_terms import warm_up
from benchmarks.quality.order import plan, results
from benchmarks.quality.order.fits import lines_of
from benchmarks.quality.quadratic import ARRAYS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["export", "make", "run", "collect", "table"])
    parser.add_argument("--data-sets", nargs="+", default=["gowalla"])
    parser.add_argument("--methods", nargs="+", default=plan.METHODS_HERE)
    parser.add_argument("--batches", nargs="+", type=int, default=list(plan.RATES))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the public sets")
    parser.add_argument("--lines", type=Path, default=SCRATCH / "order.jsonl")
    parser.add_argument("--write", action="store_true", help="write the table into the docs")
    args = parser.parse_args()
    if args.task == "export":
        from benchmarks.peers.quadratic import prepared

        for name in args.data_sets:
            prepared(name, args.data)
        quadratic.export(args.data_sets)
    elif args.task == "make":
        make("tiny")
    elif args.task == "run":
        run(args)
    elif args.task == "collect":
        results.collect(args.lines)
    else:
        text = "\n\n".join(filter(None, map(results.table, args.data_sets)))
        print(text)
        if args.write:
            page.write("order", text)


def make(name: str) -> None:
    """Arrays of 400 queries with tastes for groups of 120 candidates."""
    rng = np.random.default_rng(0)
    popularity = 1 / np.arange(1, 21) ** 0.7
    rows = []
    for _ in range(400):
        groups = rng.choice(6, 2, replace=False)
        odds = np.full(120, 0.02)
        for group in groups:
            odds[group * 20 : group * 20 + 20] = popularity
        rows.append(rng.choice(120, 14, replace=False, p=odds / odds.sum()))
    arrays: dict[str, Any] = {"n": np.array(120)}
    for split, some in (
        ("train", slice(10)),
        ("validation", slice(10, 12)),
        ("test", slice(12, 14)),
    ):
        parts = [np.sort(row[some]) for row in rows]
        arrays[f"{split}_o"] = np.cumsum([0, *map(len, parts)])
        arrays[f"{split}_c"] = np.concatenate(parts).astype(np.int32)
    ARRAYS.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(ARRAYS / f"{name}.npz", **arrays)


def run(args: argparse.Namespace) -> None:
    """Fit what has no line yet, trials before the tests that follow from them."""
    until = time.time() + args.seconds
    args.lines.parent.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers
    pool = ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn"), warm_up)
    running: set[Future[list[dict[str, Any]]]] = set()
    begun: set[plan.Job] = set()
    while True:
        waiting = [job for job in plan.jobs_of(args, plan.read(args.lines)) if job not in begun]
        for jobs in plan.stacks_of(waiting):
            running.add(pool.submit(lines_of, jobs, until))
        begun |= {*waiting}
        if not running:
            break
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            if (error := future.exception()) is not None:
                print("FAILED", repr(error)[:2000], flush=True)
                continue
            for line in future.result():
                with args.lines.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(summary(line), flush=True)
    pool.shutdown()
    left = plan.jobs_of(args, plan.read(args.lines))
    print(f"left: {len(left)} fits, and the tests of unfinished grids" if left else "nothing left")


def summary(line: dict[str, Any]) -> str:
    value = line.get("score", line.get(plan.METRIC))
    words = f"{line['kind']} {line['data']} {line['method']} {line['batch']} lr {line['lr']:g}"
    return f"{words} decay {line['decay']:g} seed {line['seed']}: {value:.4f}, {line['seconds']} s"


if __name__ == "__main__":
    main()
