"""The paper's order, XIR > BIR > SSL-Pop: each tuned for each batch size, with paired seeds.

    python -m benchmarks.quality.order export [--data-sets gowalla] [--data DIR]   arrays
    python -m benchmarks.quality.order make                       a generated set named tiny
    python -m benchmarks.quality.order run [--workers 8] [--seconds 560] [--lines FILE]
    python -m benchmarks.quality.order collect [--lines FILE]     into results/quality/order
    python -m benchmarks.quality.order table [--write]            as in docs/reference/tables.md

A trial is a point of ``RATES`` and ``DECAYS`` for a method and a batch size: trained on train with
seed 0, scored on all validation queries after each epoch, until ``PATIENCE`` epochs brought nothing
better. It ends early where it is far behind the finished trials of its method and batch size. The
best by ndcg@10 is fitted on train and validation for as many epochs, once for each of ``SEEDS``. A
seed gives all methods the same first vectors and the same order of pairs, so differences are
paired, by query and by seed. The width is 32, as in the paper.

``run`` requires only torch and numpy. It divides the fits among ``--workers`` processes, appends a
line per fit and leaves out fits that have a line. After ``--seconds`` each fit in work ends with
its epoch and is kept beside the lines, in ``--lines``.parts; a second call goes on there. The last
line printed says what is left. The table marks a rate or a decay at the end of its grid: the best
may lie beyond.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import multiprocessing
import os
import time
import zlib
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import page
from benchmarks.paths import RESULTS, SCRATCH, SHARED
from benchmarks.quality import quadratic
from benchmarks.quality.equal_terms import cached, warm_up
from benchmarks.quality.quadratic import ARRAYS, DEVICE, Judged, start
from rankfold.methods import METHODS
from rankfold.models.search import Filter, Searcher
from rankfold.training.early_stopping import History, timed
from rankfold.types import Dataset, Run, Step

OUT = RESULTS / "quality" / "order"
METHODS_HERE = ("ssl-pop", "bir", "xir")
PAIRS = (("bir", "ssl-pop"), ("xir", "bir"), ("xir", "ssl-pop"))
RATES = {512: (0.001, 0.003, 0.01), 2048: (0.002, 0.006, 0.02), 8192: (0.003, 0.01, 0.03)}
DECAYS = (1e-6, 3e-6, 1e-5)
SEEDS = (0, 1, 2)
WIDTH, EPOCHS, PATIENCE = 32, 100, 5
METRIC, DEPTH = "ndcg@10", 20
HURDLES, BEHIND = (10, 20, 40), 0.85  # epochs; the least share of the best score at a hurdle
STUDENT = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}  # two-sided 95 %, by the number of seeds


class Job(NamedTuple):
    """One fit: a trial, or a test with the settings and the epochs of the best trial."""

    kind: str  # trial, test
    data: str
    method: str
    batch: int
    lr: float
    decay: float
    seed: int
    epochs: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["export", "make", "run", "collect", "table"])
    parser.add_argument("--data-sets", nargs="+", default=["gowalla"])
    parser.add_argument("--methods", nargs="+", default=METHODS_HERE)
    parser.add_argument("--batches", nargs="+", type=int, default=list(RATES))
    parser.add_argument("--epochs", type=int, default=EPOCHS)
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
        collect(args.lines)
    else:
        text = "\n\n".join(filter(None, map(table, args.data_sets)))
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


# ---------------------------------------------------------------------------------- fits


def run(args: argparse.Namespace) -> None:
    """Fit what has no line yet, trials before the tests that follow from them."""
    until = time.time() + args.seconds
    args.lines.parent.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers
    pool = ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn"), warm_up)
    running: dict[Future[dict[str, Any] | None], Job] = {}
    begun: set[Job] = set()
    while True:
        waiting = [job for job in jobs_of(args, read(args.lines)) if job not in begun]
        for job in waiting:
            running[pool.submit(result_of, job, args.lines, until)] = job
        begun |= {*waiting}
        if not running:
            break
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            job, error = running.pop(future), future.exception()
            if error is not None:
                print("FAILED", job, repr(error)[:300], flush=True)
            elif (result := future.result()) is not None:
                with args.lines.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                print(summary(result), flush=True)
    pool.shutdown()
    left = jobs_of(args, read(args.lines))
    print(f"left: {len(left)} fits, and the tests of unfinished grids" if left else "nothing left")


def jobs_of(args: argparse.Namespace, lines: list[dict[str, Any]]) -> list[Job]:
    """The fits without a line that can begin now; small batches, which take longest, first."""
    done, jobs = {key(line) for line in lines}, []
    for name, batch, method in product(args.data_sets, sorted(args.batches), args.methods):
        points = product(RATES[batch], DECAYS)
        trials = [Job("trial", name, method, batch, *point, 0, args.epochs) for point in points]
        missing = [job for job in trials if job not in done]
        if not missing:
            best = best_of([line for line in lines if key(line) in {*trials}])
            point = best["lr"], best["decay"]
            tests = [Job("test", name, method, batch, *point, s, best["epoch"]) for s in SEEDS]
            missing = [job for job in tests if job not in done]
        jobs += missing
    return sorted(jobs, key=lambda job: job.batch)


def key(line: dict[str, Any]) -> Job:
    return Job(*(line[name] for name in Job._fields))


def best_of(trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return max(trials, key=lambda line: line["score"])


def result_of(job: Job, lines: Path, until: float) -> dict[str, Any] | None:
    """The line of a fit; None if the time was up before its end."""
    if time.time() > until:
        return None
    data, part = cached(job.data), Part(job, lines)
    if job.kind == "test":
        train = data.split("train").union(data.split("validation"))
        data = replace(data, train=train, validation=None)
    before = [line["curve"] for line in read(lines) if "curve" in line and key(line)[:4] == job[:4]]
    history = fit(job, data, before, part, until)
    if history is None:
        return None
    about = {**job._asdict(), "device": str(DEVICE)}
    about["seconds"] = round(sum(entry["seconds"] for entry in history.entries), 1)
    part.remove()
    if job.kind == "test":
        values = values_of(history, data)
        packed = base64.b64encode(zlib.compress(values.astype(np.float16).tobytes())).decode()
        return {**about, METRIC: float(values.mean()), "values": packed}
    curve = [round(entry["score"], 6) for entry in history.entries]
    return {**about, "score": history.score, "epoch": history.number, "curve": curve}


def fit(
    job: Job, data: Dataset, before: list[list[float]], part: Part, until: float
) -> History | None:
    """All epochs of a test; a trial ends by patience or behind the finished ones."""
    is_trial, recipe = job.kind == "trial", METHODS[job.method]
    run_, history = start(data, job.seed, METRIC), History(is_chosen=job.kind == "trial")
    run_ = part.load(run_, history)
    settings = {"width": WIDTH, "batch_size": job.batch, "lr": job.lr, "weight_decay": job.decay}
    for step in timed(lambda: recipe.fit(data, recipe.config(epochs=job.epochs, **settings), run_)):
        if not step.whole:
            continue
        assert step.model is not None
        history.note(step, None if run_.validate is None else run_.validate(step.model))
        waited = step.number - history.number
        if is_trial and (waited >= PATIENCE or is_behind(history, before)):
            break
        if time.time() > until and not step.final:
            part.save(step, run_, history)
            return None
    return history


class Part:
    """A fit that is not finished, on disk."""

    def __init__(self, job: Job, lines: Path) -> None:
        name = "-".join(map(str, job))
        self.state = Path(f"{lines}.parts") / f"{name}.npz"
        self.about = self.state.with_suffix(".json")

    def save(self, step: Step, run_: Run, history: History) -> None:
        self.state.parent.mkdir(parents=True, exist_ok=True)
        kept = {**step.state(), "number": torch.tensor(step.number), "rng": run_.rng.get_state()}
        np.savez(self.state, **{name: one.cpu().numpy() for name, one in kept.items()})
        about = {"entries": history.entries, "number": history.number, "score": history.score}
        self.about.write_text(json.dumps(about))  # last: without it the state does not count

    def load(self, run_: Run, history: History) -> Run:
        """The run that goes on where the part ended; its steps are in the history."""
        if not self.about.exists():
            return run_
        for name, value in json.loads(self.about.read_text()).items():
            setattr(history, name, value)
        with np.load(self.state) as kept:
            state = {name: torch.from_numpy(kept[name]) for name in kept.files}
        run_.rng.set_state(state["rng"])
        return replace(run_, resume=state)

    def remove(self) -> None:
        self.about.unlink(missing_ok=True)
        self.state.unlink(missing_ok=True)


def is_behind(history: History, before: list[list[float]]) -> bool:
    """Whether a trial at a hurdle is far behind the best finished one there."""
    now = len(history.entries)
    others = [max(curve[:now]) for curve in before]
    return now in HURDLES and (history.score or 0.0) < BEHIND * max(others, default=0.0)


def values_of(history: History, data: Dataset) -> NDArray[np.float32]:
    """The metric of each test query, in the order of rows."""
    judged, model = Judged(data, "test", METRIC), history.model
    assert model is not None
    rows = judged.queries
    searcher = Searcher(model, data.split("train"), quadratic.MEMORY)
    hidden = Filter(judged.hidden(rows).to(DEVICE))
    ids = searcher.of_queries(rows.to(DEVICE), DEPTH, hidden).ids
    values: NDArray[np.float32] = judged.values(rows, ids).float().numpy()
    return values


def summary(line: dict[str, Any]) -> str:
    value = line.get("score", line.get(METRIC))
    words = f"{line['kind']} {line['data']} {line['method']} {line['batch']} lr {line['lr']:g}"
    return f"{words} decay {line['decay']:g} seed {line['seed']}: {value:.4f}, {line['seconds']} s"


def read(lines: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []


# ---------------------------------------------------------------------------------- results


def collect(lines: Path) -> None:
    """A file per data set: the trials, the tests, and the paired differences of each batch size."""
    every = read(lines)
    for name in dict.fromkeys(line["data"] for line in every):
        own = [line for line in every if line["data"] == name]
        tests = [line for line in own if line["kind"] == "test"]
        differences = []
        for batch, (better, other) in product(sorted({one["batch"] for one in tests}), PAIRS):
            gaps = gaps_of([line for line in tests if line["batch"] == batch], better, other)
            if len(gaps) > 1:
                about = {"batch": batch, "better": better, "other": other}
                differences.append({**about, **interval_of(gaps)})
        plain = [{k: v for k, v in line.items() if k != "values"} for line in own]
        OUT.mkdir(parents=True, exist_ok=True)
        document = {"lines": plain, "differences": differences}
        (OUT / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


def gaps_of(tests: list[dict[str, Any]], better: str, other: str) -> list[NDArray[np.float64]]:
    """Differences by query, for each seed that both methods have."""
    by = {(line["method"], line["seed"]): unpacked(line) for line in tests}
    both = [seed for seed in SEEDS if (better, seed) in by and (other, seed) in by]
    return [by[better, seed] - by[other, seed] for seed in both]


def unpacked(line: dict[str, Any]) -> NDArray[np.float64]:
    stored = zlib.decompress(base64.b64decode(line["values"]))
    return np.frombuffer(stored, dtype=np.float16).astype(np.float64)


def interval_of(gaps: list[NDArray[np.float64]]) -> dict[str, Any]:
    """The mean difference, half its 95 % interval over queries and over seeds, and each seed's.

    Over queries the seeds are these; over seeds (Student) the queries are these.
    """
    seeds, queries = [float(gap.mean()) for gap in gaps], np.mean(gaps, axis=0)
    return {
        "mean": mean(seeds),
        "over_queries": 1.96 * float(queries.std(ddof=1)) / math.sqrt(len(queries)),
        "over_seeds": STUDENT[len(seeds)] * stdev(seeds) / math.sqrt(len(seeds)),
        "seeds": seeds,
    }


def table(name: str) -> str:
    """The chosen point and the test figures of each batch, then the paired differences."""
    path = OUT / f"{name}.json"
    if not path.exists():
        return ""
    document = json.loads(path.read_text())
    lines, out = document["lines"], []
    out += [f"| {name} | batch | rate | decay | epochs | {METRIC} on test |", "|---" * 6 + "|"]
    for batch, method in product(RATES, METHODS_HERE):
        own = [one for one in lines if (one["batch"], one["method"]) == (batch, method)]
        tests = [one[METRIC] for one in own if one["kind"] == "test"]
        if len(tests) > 1:
            best = best_of([one for one in own if one["kind"] == "trial"])
            rate, decay = edge(best["lr"], RATES[batch]), edge(best["decay"], DECAYS)
            value = f"{page.number(mean(tests))} ± {page.number(stdev(tests))}"
            out.append(f"| `{method}` | {batch:,} | {rate} | {decay} | {best['epoch']} | {value} |")
    out += ["", "| batch | difference | mean | ± over queries | ± over seeds | holds |"]
    out += ["|---" * 6 + "|"]
    for one in document["differences"]:
        ends = max(one["over_queries"], one["over_seeds"])
        holds = "yes" if one["mean"] > ends else "no, reversed" if one["mean"] < -ends else "open"
        both = f"{one['over_queries']:.5f} | {one['over_seeds']:.5f}"
        names = f"`{one['better']}` - `{one['other']}`"
        out.append(f"| {one['batch']:,} | {names} | {one['mean']:+.5f} | {both} | {holds} |")
    return "\n".join(out)


def edge(value: float, grid: tuple[float, ...]) -> str:
    """The value, marked if it is at an end of its grid."""
    return f"{value:g}{' (end)' if value in (grid[0], grid[-1]) else ''}"


if __name__ == "__main__":
    main()
