"""Histories as queries against vectors of queries, next choices, at equal budgets.

    python -m benchmarks.quality.history make                  generated sets with times, as arrays
    python -m benchmarks.quality.history run SET ... [--workers 8] [--budget 30] [--lines FILE]
    python -m benchmarks.quality.history table [--lines FILE]

``quality.in_time`` makes the arrays of real sets. All sets are split by `last`: a query's last
choice is the test, the one before it the validation. ``quality.order export`` makes those of public
sets, which have no times and a random split.

A run has as many trials as its grid has points, six each; with ``--defaults`` one. A trial has
``--budget`` seconds (CPU seconds where there is no GPU) and a patience of three epochs, validation
included. The best by ndcg@10 is fitted again on train and validation, for as many epochs, once per
seed, and scored on test: all methods see the same choices before the test. ``rg2`` selects its own
settings. ``run`` requires only torch and numpy; fits with a line in ``--lines`` are left out.

The table has means over seeds and the difference to ``softmax, tables``, paired by query, with half
its 95 % interval over queries.

The generated sets: in ``walks`` the next candidate follows from the last, in ``drifts`` the taste
of a query moves on, in ``tastes`` the order says nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.paths import RESULTS, SCRATCH
from benchmarks.quality.equal_terms import Job, cached, fit, warm_up
from benchmarks.quality.quadratic import ARRAYS, DEVICE, Judged
from rankfold.models.search import Filter, Searcher
from rankfold.types import Dataset, Model

OUT = RESULTS / "quality" / "history.json"
METRICS = ("ndcg@10", "recall@20")
RATES = ({"lr": 0.002}, {"lr": 0.006}, {"lr": 0.02})
LEARNT = tuple({**rate, **decay} for rate in RATES for decay in ({}, {"weight_decay": 1e-5}))
ALS = tuple({"background": b, "reg": r} for b in (0.01, 0.1) for r in (0.001, 0.003, 0.01))
HISTORY = {"encoder": "history"}
RUNS: dict[str, tuple[str, dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "rg2": ("rg2", {}, ({},)),
    "ials": ("ials", {}, ALS),
    "softmax, tables": ("softmax", {}, LEARNT),
    "softmax, mean": ("softmax", {**HISTORY, "pooling": "mean"}, LEARNT),
    "softmax, recent": ("softmax", {**HISTORY, "pooling": "recent"}, LEARNT),
    "softmax, attention": ("softmax", {**HISTORY, "pooling": "attention"}, LEARNT),
    "ssl-pop, tables": ("ssl-pop", {}, LEARNT),
    "ssl-pop, attention": ("ssl-pop", {**HISTORY, "pooling": "attention"}, LEARNT),
    "bir, attention": ("bir", {**HISTORY, "pooling": "attention"}, LEARNT),
    "xir, attention": ("xir", {**HISTORY, "pooling": "attention"}, LEARNT),
}
BASE = "softmax, tables"
SETS = ("walks", "drifts", "tastes")
N_QUERIES, N_CANDIDATES, N_GROUPS = 2000, 600, 20
CLOCK = time.process_time if DEVICE.type == "cpu" else time.perf_counter  # other work aside
WIDTH, DEFAULTS = 64, -1  # the number of a point without settings

Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["make", "run", "table"])
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--defaults", action="store_true", help="a trial per run, of its defaults")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of a trial")
    parser.add_argument("--seconds", type=float, default=1e6, help="of the run")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--lines", type=Path, default=SCRATCH / "history.jsonl")
    args = parser.parse_args()
    if args.task == "make":
        for name in SETS:
            make(name)
    elif args.task == "run":
        run(args)
    else:
        table(args.lines)


def make(name: str) -> None:
    """A generated set: queries with 6 to 30 choices, mostly in groups of candidates."""
    import polars as pl

    import rankfold as rf

    rng = np.random.default_rng([0, SETS.index(name)])
    size = N_CANDIDATES // N_GROUPS
    popularity = 1 / np.arange(1, size + 1) ** 0.7
    popularity /= popularity.sum()
    rows = []
    for query in range(N_QUERIES):
        group, place, now = rng.integers(N_GROUPS), rng.integers(size), float(rng.integers(10**6))
        for _ in range(rng.integers(6, 31)):
            now += float(rng.integers(1, 1000))
            if name == "drifts" and rng.random() < 0.12:
                group = (group + rng.choice([1, 2, 7])) % N_GROUPS
            place = (place + rng.integers(1, 4)) % size
            own = place if name == "walks" else rng.choice(size, p=popularity)
            candidate = rng.integers(N_CANDIDATES) if rng.random() < 0.15 else group * size + own
            rows.append((query, int(candidate), now))
    table = pl.DataFrame(rows, schema=["query", "candidate", "time"], orient="row")
    export(rf.prepare(table, split="last"), name)


def export(data: Dataset, name: str) -> None:
    """Prepared data as arrays."""
    arrays = {"n": np.array(len(data.candidates))}
    for split in ("train", "validation", "test"):
        rows = data.split(split)  # type: ignore[arg-type]
        assert rows.times is not None
        arrays |= {f"{split}_o": rows.offsets.numpy(), f"{split}_c": rows.candidates.numpy()}
        arrays[f"{split}_t"] = rows.times.numpy()
    ARRAYS.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(ARRAYS / f"{name}.npz", **arrays)


# ---------------------------------------------------------------------------------- fits


def run(args: argparse.Namespace) -> None:
    """The trials without a line, and the tests of the best of each run."""
    until = time.monotonic() + args.seconds
    args.lines.parent.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers
    pool = ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn"), warm_up)
    running: set[Future[Line | None]] = set()
    begun: set[str] = set()
    while True:
        for line in wanted(args, read(args.lines)):
            if key(line) not in begun:
                begun.add(key(line))
                running.add(pool.submit(result_of, line, args.budget, until))
        if not running:
            break
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            if (error := future.exception()) is not None:
                print("FAILED", repr(error)[:500], flush=True)
            elif (result := future.result()) is not None:
                with args.lines.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                print(*(result[k] for k in ("data", "run", "kind", "point", "seed")), flush=True)
    pool.shutdown()
    print("left:", len(wanted(args, read(args.lines))))


def wanted(args: argparse.Namespace, lines: list[Line]) -> list[Line]:
    """The trials without a line; of a run that has all of them, its tests without a line."""
    done, missing = {key(line) for line in lines}, []
    for name, run_ in product(args.sets, args.only):
        places = [DEFAULTS] if args.defaults else range(len(RUNS[run_][2]))
        every = [about(name, run_, "trial", place, 0) for place in places]
        left = [line for line in every if key(line) not in done]
        if not left:
            best = best_of(lines, name, run_)
            tests = [about(name, run_, "test", best["point"], seed) for seed in range(args.seeds)]
            left = [{**one, "steps": best["steps"]} for one in tests if key(one) not in done]
        missing += left
    return missing


def about(data: str, run: str, kind: str, point: int, seed: int) -> Line:
    return {"data": data, "run": run, "kind": kind, "point": point, "seed": seed}


def key(line: Line) -> str:
    return json.dumps([line[name] for name in ("data", "run", "kind", "point", "seed")])


def best_of(lines: list[Line], name: str, run: str) -> Line:
    own = [one for one in lines if (one["data"], one["run"], one["kind"]) == (name, run, "trial")]
    return max(own, key=lambda one: one["validation"])


def result_of(line: Line, budget: float, until: float) -> Line | None:
    """A fit; None if the time is up."""
    if time.monotonic() > until:
        return None
    data = cached(line["data"])
    method, settings, points = RUNS[line["run"]]
    job = Job(line["data"], method, WIDTH, line["seed"])
    point = {} if line["point"] == DEFAULTS else points[line["point"]]
    given = {"width": WIDTH, **settings, **point}
    began = CLOCK()
    if line["kind"] == "trial":
        history, stopped_by = fit(job, data, given, None, budget, CLOCK)
        assert history.model is not None
        more: Line = {"steps": None if history.in_passes else history.number}
        more |= {"stopped_by": stopped_by, "epochs": len(history.entries)}
        more["validation"] = values_of(history.model, data, "validation")["ndcg@10"].mean().item()
        if history.in_passes:  # it selected its settings
            more["chosen"] = dict(history.model.config)
    else:
        train = data.split("train").union(data.split("validation"))
        whole = replace(data, train=train, validation=None)
        if line["steps"] is None:
            first = fit(job, data, given, None, math.inf)[0].model
            assert first is not None
            given = dict(first.config)
        model = fit(job, whole, given, line["steps"], math.inf)[0].model
        assert model is not None
        values = values_of(model, whole, "test")
        more = {name: one.mean().item() for name, one in values.items()}
        more["values"] = values["ndcg@10"].round(4).tolist()
    seconds = round(CLOCK() - began, 1)
    return {**line, **more, "seconds": seconds, "device": str(DEVICE)}


def values_of(model: Model, data: Dataset, split: Any) -> dict[str, NDArray[np.float64]]:
    """The metrics of each query of a split, in the order of rows."""
    judged = Judged(data, split)
    queries = judged.queries
    hidden = Filter(judged.hidden(queries).to(DEVICE))
    searcher = Searcher(model, data.split("train"))
    ids = searcher.of_queries(queries.to(DEVICE), judged.depth, hidden).ids
    return {name: judged.values(queries, ids, name).double().numpy() for name in METRICS}


def read(lines: Path) -> list[Line]:
    return [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []


# ---------------------------------------------------------------------------------- results


def table(path: Path) -> None:
    """Print test figures, and keep them without the values of single queries."""
    lines, kept = read(path), []
    print("| data | run | ndcg@10 | recall@20 | difference | ± | seconds of a trial |")
    print("|---" * 7 + "|")
    for name, run_ in product(dict.fromkeys(line["data"] for line in lines), RUNS):
        own = [line for line in lines if (line["data"], line["run"]) == (name, run_)]
        tests = [line for line in own if line["kind"] == "test"]
        if not tests:
            continue
        trials = [line["seconds"] for line in own if line["kind"] == "trial"]
        result = {metric: mean(line[metric] for line in tests) for metric in METRICS}
        gap, half = difference(lines, name, run_)
        about_ = {"data": name, "run": run_, "seeds": len(tests), "best": best_of(own, name, run_)}
        kept.append({**about_, **result, "gap": gap, "half": half, "seconds": mean(trials)})
        figures = " | ".join(f"{result[metric]:.4f}" for metric in METRICS)
        print(f"| {name} | {run_} | {figures} | {gap:+.4f} | {half:.4f} | {mean(trials):.1f} |")
    OUT.write_text(json.dumps(kept, indent=1) + "\n")


def difference(lines: list[Line], name: str, run: str) -> tuple[float, float]:
    """The mean over queries of the difference to ``BASE``, and half its interval."""
    both = []
    for one in (run, BASE):
        tests = [line for line in lines if line["data"] == name and line["run"] == one]
        values = [line["values"] for line in tests if line["kind"] == "test"]
        if not values:
            return math.nan, math.nan
        both.append(np.mean(values, axis=0))
    gaps = both[0] - both[1]
    return float(gaps.mean()), 1.96 * float(gaps.std(ddof=1)) / math.sqrt(len(gaps))


if __name__ == "__main__":
    main()
