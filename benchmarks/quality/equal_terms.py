"""Every method with its defaults on equal terms: one width, one budget, one patience for all.

    python -m benchmarks.quality.quadratic export [--data-sets ...]      prepared data as arrays
    python -m benchmarks.quality.equal_terms run [--data-sets ...] [--methods ...] [--budget 30]
    python -m benchmarks.quality.equal_terms collect LINES               results, a file per study
    python -m benchmarks.quality.equal_terms table [--write]             as in docs/reference

A fit is scored on all validation queries after each epoch, sweep or step. It ends after
``PATIENCE`` of them without a better ndcg@10, at its own last one, or when ``--budget`` seconds are
over, scoring included. Then the method is fitted on train and validation with as many steps as the
best had, and scored on test. ``rg2``, which selects its own settings, does all this with ten seeds,
the others with one.

``run`` requires only torch and numpy. It divides the jobs, the longest first, among ``--workers``
processes of one thread, appends a line per job to ``--lines``, leaves out jobs that have a result,
and ends after ``--seconds``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch

from benchmarks import page
from benchmarks.paths import RESULTS, SCRATCH
from benchmarks.quality.quadratic import DEVICE, Judged, load, start
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.training.early_stopping import History
from rankfold.types import Dataset

OUT = RESULTS / "quality" / "equal_terms"
DATA_SETS = ("gowalla", "pinterest", "debian-links")
WIDTHS = (64, 256)
SHOWN = ("ndcg@10", "ndcg@20", "recall@20")
SELECTED_BY = "ndcg@10"
PATIENCE = 3  # the default of ``rankfold fit``
SEEDS = {"rg2": 10}  # others: 1
COSTS = {  # about how long a job takes on a GPU, relative to the others
    1: ("popularity", "puresvd", "rg2-plain", "ease", "rg2", "blend"),
    2: ("ials", "wrmf", "rg2-weighted", "rgx", "rg2-sampled", "rgx-sampled"),
    6: ("rg2-newton", "softmax", "bce", "bpr", "uib", "sampled-softmax"),
    9: ("ssl", "ssl-pop", "mns", "g-tower", "bir", "sparsemax"),
    12: ("xir", "sml"),
}
COST = {method: cost for cost, methods in COSTS.items() for method in methods}


class Job(NamedTuple):
    """One fit with selection, and its refit."""

    data: str
    method: str
    width: int | None  # None: the method has no width
    seed: int

    @property
    def study(self) -> str:
        return "-".join(map(str, (self.data, self.method, *([self.width] if self.width else []))))

    @property
    def cost(self) -> float:
        return COST[self.method] * (0.5 if self.data == "debian-links" else 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["run", "collect", "table"])
    parser.add_argument("--data-sets", nargs="+", default=DATA_SETS)
    parser.add_argument("--methods", nargs="+", default=list(COST))
    parser.add_argument("--widths", nargs="+", type=int, default=WIDTHS)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of a fit")
    parser.add_argument("--seconds", type=float, default=1e6, help="of the run")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--lines", type=Path, default=SCRATCH / "equal_terms.jsonl")
    parser.add_argument("--write", action="store_true", help="write the tables into the page")
    args = parser.parse_args()
    if args.task == "run":
        run(args)
    elif args.task == "collect":
        collect(args.lines)
    else:
        table(write=args.write)


# ---------------------------------------------------------------------------------- jobs


def run(args: argparse.Namespace) -> None:
    """Work on the jobs without a result until the time is up."""
    until = time.monotonic() + args.seconds
    done = done_jobs(args.lines)
    jobs = [job for job in jobs_of(args.data_sets, args.methods, args.widths) if job not in done]
    jobs.sort(key=lambda job: (-job.cost, -(job.width or 0)))
    args.lines.parent.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(args.workers, spawn, warm_up)
    futures = {pool.submit(result_of, job, args.budget): job for job in jobs}
    left = set(jobs)
    try:
        for future in as_completed(futures, max(1.0, until - time.monotonic())):
            job = futures[future]
            if future.exception() is not None:
                print("FAILED", job, repr(future.exception())[:500], flush=True)
                continue
            left.discard(job)
            with args.lines.open("a") as file:
                file.write(json.dumps(future.result()) + "\n")
            print(summary(future.result()), flush=True)
    except TimeoutError:
        for process in list(pool._processes.values()):
            process.kill()
    pool.shutdown(wait=False, cancel_futures=True)
    print(f"{len(jobs) - len(left)} of {len(jobs)} jobs done; left:", flush=True)
    print(*sorted({f"{job.study}:{job.seed}" for job in left}), flush=True)


def jobs_of(data_sets: list[str], methods: list[str], widths: list[int]) -> list[Job]:
    jobs = []
    for name, method in product(data_sets, methods):
        has_width = "width" in {one.name for one in fields(METHODS[method].config)}
        for width, seed in product(widths if has_width else [None], range(SEEDS.get(method, 1))):
            jobs.append(Job(name, method, width, seed))
    return jobs


def done_jobs(lines: Path) -> set[Job]:
    text = lines.read_text() if lines.exists() else ""
    results = [json.loads(line) for line in text.splitlines()]
    for path in OUT.glob("*.json"):
        results += json.loads(path.read_text())["runs"]
    return {Job(*(one[name] for name in Job._fields)) for one in results}


def warm_up() -> None:
    """The first product and the first optimiser take seconds, which are not the first fit's."""
    torch.set_num_threads(1)
    matrix = torch.ones(64, 64, device=DEVICE, requires_grad=True)
    (matrix @ matrix).sum().backward()
    torch.optim.Adam([matrix]).step()


@cache
def cached(name: str) -> Dataset:
    return load(name)


def result_of(job: Job, budget: float) -> dict[str, Any]:
    """Fit, refit and test."""
    data = cached(job.data)
    settings = {} if job.width is None else {"width": job.width}
    about = {**job._asdict(), "device": str(DEVICE), "budget": budget}
    began = time.perf_counter()
    try:
        history, stopped_by = fit(job, data, settings, None, budget)
    except UserError as error:
        return {**about, "error": str(error)}
    fitted = time.perf_counter()
    assert history.model is not None
    score = Judged(data).means(history.model, [SELECTED_BY])[SELECTED_BY]
    train = data.split("train").union(data.split("validation"))
    whole = replace(data, train=train, validation=None)
    steps = None if history.in_passes else history.number
    again, _ = fit(job, whole, dict(history.model.config), steps, float("inf"))
    assert again.model is not None
    return {
        **about,
        "steps": len(history.entries),
        "best_step": history.number,
        "stopped_by": stopped_by,
        "seconds": round(fitted - began, 1),
        "refit_seconds": round(time.perf_counter() - fitted, 1),
        "chosen": dict(history.model.config),
        "validation": score,
        "test": Judged(whole, "test").means(again.model, SHOWN),
    }


def fit(
    job: Job,
    data: Dataset,
    settings: dict[str, Any],
    steps: int | None,
    budget: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[History, str]:
    """A fit on equal terms, and what stopped it; after ``steps`` it stops anyway."""
    recipe, run = METHODS[job.method], start(data, job.seed, SELECTED_BY)
    history, stopped_by, began = History(steps=steps), "", clock()
    for step in recipe.fit(data, recipe.config(**settings), run):
        late = clock() - began > budget and not recipe.self_tuning
        if step.whole:
            scored = run.validate is not None and step.model is not None and not recipe.self_tuning
            history.note(step, run.validate(step.model) if scored else None)
            over = history.is_over(step, PATIENCE)
            stopped_by = "end" if step.final else "patience" if over else ""
        if not stopped_by and late and history.model is not None:
            stopped_by = "budget"
        if stopped_by:
            break
    assert history.model is not None
    if recipe.finalize is not None:
        history.model = recipe.finalize(history.model, data.split("train").to(DEVICE), run)
    return history, "itself" if history.in_passes else stopped_by


def summary(result: dict[str, Any]) -> str:
    head = Job(*(result[name] for name in Job._fields))
    if "error" in result:
        return f"{head.study}:{head.seed} {result['error']}"
    words = [f"{result['test'][SELECTED_BY]:.4f}", f"step {result['best_step']}/{result['steps']}"]
    words += [result["stopped_by"], f"{result['seconds']} + {result['refit_seconds']} s"]
    return f"{head.study}:{head.seed} " + ", ".join(words)


# ---------------------------------------------------------------------------------- results


def collect(lines: Path) -> None:
    """Add the lines of a run to the files of their studies; a new line replaces an old one."""
    OUT.mkdir(parents=True, exist_ok=True)
    studies: dict[str, list[dict[str, Any]]] = {}
    for line in lines.read_text().splitlines():
        result = json.loads(line)
        study = Job(*(result[name] for name in Job._fields)).study
        studies.setdefault(study, []).append(result)
    for study, results in studies.items():
        path = OUT / f"{study}.json"
        before = json.loads(path.read_text())["runs"] if path.exists() else []
        runs = {one["seed"]: one for one in [*before, *results]}
        keep = {"runs": [runs[seed] for seed in sorted(runs)]}
        path.write_text(json.dumps(keep, indent=1) + "\n")


def table(*, write: bool) -> None:
    """A table per data set, the best method first; into the page if asked."""
    text = "\n\n".join(filter(None, map(table_of, DATA_SETS)))
    if write:
        page.write("equal terms", text)
    else:
        print(text)


def table_of(name: str) -> str:
    rows: dict[str, dict[int | None, list[dict[str, Any]]]] = {}
    for path in OUT.glob(f"{name}-*.json"):
        runs = json.loads(path.read_text())["runs"]
        rows.setdefault(runs[0]["method"], {})[runs[0]["width"]] = runs
    if not rows:
        return ""
    head = [f"width {width}: {metric}" for width in WIDTHS for metric in ("ndcg@10", "recall@20")]
    lines = [f"| {name} | {' | '.join(head)} | stopped by |", "|---" * (len(head) + 2) + "|"]

    def best(method: str) -> float:
        return max((of(runs, SELECTED_BY) or 0.0) for runs in rows[method].values())

    for method in sorted(rows, key=best, reverse=True):
        every = [rows[method].get(width, rows[method].get(None, [])) for width in WIDTHS]
        cells = [cell(runs, metric) for runs in every for metric in ("ndcg@10", "recall@20")]
        lines.append(f"| `{method}` | {' | '.join([*cells, stops(every)])} |")
    return "\n".join(lines)


def of(runs: list[dict[str, Any]], metric: str) -> float | None:
    tested = [one["test"][metric] for one in runs if "test" in one]
    return mean(tested) if tested else None


def cell(runs: list[dict[str, Any]], metric: str) -> str:
    value = of(runs, metric)
    if value is None:
        return "-"
    tested = [one["test"][metric] for one in runs if "test" in one]
    spread = f" ± {page.number(stdev(tested))}" if len(tested) > 1 else ""
    return page.number(value) + spread


def stops(every: list[list[dict[str, Any]]]) -> str:
    """What stopped the fit at each width, and after how many steps; empty for a single step."""
    words = []
    for runs in every:
        first = next((one for one in runs if "test" in one), None)
        if first is None or first["stopped_by"] == "itself" or first["steps"] == 1:
            words.append("-")
        else:
            words.append(f"{first['stopped_by']} {first['steps']}")
    return " / ".join(words) if set(words) != {"-"} else ""


if __name__ == "__main__":
    main()
