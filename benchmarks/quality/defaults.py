"""How far each method's defaults are from its best settings, on sets that no table shows.

    python -m benchmarks.quality.defaults run GROUP... [--workers 12] [--width 64]
    python -m benchmarks.quality.defaults table [GROUP...]
    python -m benchmarks.quality.defaults side-by-side [GROUP...]

A set is an .npz file in ``scratch/sets``: train_q, train_c, val_q, val_c, test_q, test_c and shape.
``run`` fits every point of a group's grid and the defaults on train, stopping on validation, and
writes validation and test ndcg@10 of each to ``results/quality/defaults/GROUP.jsonl``. A second run
resumes. ``table`` takes the best point by validation and divides the test figure of the defaults by
that of the point: a summary by method, then every set. ``side-by-side`` compares the
methods at their defaults. The rules were made on other sets than those in ``JUDGES`` and
``LATER_JUDGES``. ``run`` requires only torch and numpy, so that it can run on a GPU machine.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.paths import RESULTS, SCRATCH
from rankfold.distributed.collectives import SingleProcess
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.metrics import METRICS, parse
from rankfold.metrics.judged import judge
from rankfold.models.search import Filter, Searcher
from rankfold.training.early_stopping import History
from rankfold.types import Dataset, Interactions, Model, Run, Vocabulary, from_pairs

SETS = SCRATCH / "sets"
OUT = RESULTS / "quality" / "defaults"
METRIC = "ndcg@10"
GOAL = 0.95  # of the tuned figure
JUDGES = ["emoji-keywords", "gene-phenotypes", "ml-latest-small", "py-imports", "thesaurus-fr"]
JUDGES += ["gen-0012", "gen-0050", "gen-1000"]
LATER_JUDGES = ["c-includes", "icon-terms", "ml-in-time", "moves", "pizzas", "planes", "gen-tiny"]
LATER_JUDGES += ["gen-small", "gen-dense", "gen-2000", "gen-0006", "gen-drift"]
PATIENCE = 3
N_POINTS = 16
MAX_QUERIES = 10_000
RATIOS = (3.0, 10.0, 30.0, 100.0)
WEIGHTED = {"alpha": (0.005, 0.02, 0.05, 0.15), "reg": (0.03, 0.1, 0.3, 1.0)}
RATES = (0.003, 0.01, 0.03, 0.1)
GROUPS: dict[str, dict[str, tuple[float, ...]]] = {  # N_POINTS for each method
    "ials": {"ratio": RATIOS, "reg": (0.003, 0.01, 0.03, 0.1)},
    "wrmf": {"ratio": RATIOS, "reg_by_root": (0.001, 0.003, 0.01, 0.03)},
    "rg2-weighted": WEIGHTED,
    "rgx": WEIGHTED,
    "ease": {"reg": (1.0, 3.0, 10.0, 30.0), "candidate_exponent": (0.0, 0.125, 0.25, 0.375)},
    "bpr": {"lr": RATES, "query_decay": (0.004, 0.02, 0.1, 0.5)},
    "softmax": {"lr": RATES, "query_decay": (0.02, 0.12, 0.5, 2.0)},
    "rg2": {},
    "blend": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["run", "table", "side-by-side"])
    parser.add_argument("groups", nargs="*", default=list(GROUPS))
    parser.add_argument("--sets", nargs="+", default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no fit after this time")
    parser.add_argument("--defaults-only", action="store_true", help="no points of the grids")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    names = args.sets or sorted(path.stem for path in SETS.glob("*.npz"))
    {"run": run, "table": table, "side-by-side": side_by_side}[args.task](args, names)


def run(args: argparse.Namespace, names: list[str]) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    deadline, device = time.time() + args.seconds, "cuda" if torch.cuda.is_available() else "cpu"
    jobs = [job for group in args.groups for job in missing(group, names, args)]
    jobs = [job for job in jobs if not (args.defaults_only and job["settings"])]
    # All defaults first, then whole sets in the given order.
    jobs.sort(key=lambda job: (len(job["settings"]) > 0, names.index(job["set"])))
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        _collect({pool.submit(fit_and_score, job, device, deadline): job for job in jobs}, args.out)


def _collect(pending: dict[Future[Any], dict[str, Any]], out: Path) -> None:
    for future in as_completed(pending):
        job = pending[future]
        try:
            record = future.result()
        except Exception as error:
            print("failed", job, error, flush=True)
            continue
        if record is not None:
            with (out / f"{job['group']}.jsonl").open("a") as file:
                file.write(json.dumps(record) + "\n")


def missing(group: str, names: list[str], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The points of a group that have no figure yet; {} is the defaults."""
    path, grid = args.out / f"{group}.jsonl", GROUPS[group]
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = [(one["set"], one["settings"]) for one in known if one["width"] == args.width]
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    for name, settings in product(names, [{}, *filter(None, points)]):
        if (name, settings) not in done:
            yield {"group": group, "set": name, "width": args.width, "settings": settings}


def load(name: str) -> Dataset:
    arrays = np.load(SETS / f"{name}.npz")
    shape = tuple(map(int, arrays["shape"]))
    splits = [
        from_pairs(
            *(torch.from_numpy(arrays[f"{split}_{side}"].astype(np.int64)) for side in "qc"),
            None,
            shape,
        )
        for split in ("train", "val", "test")
    ]
    queries, candidates = map(Vocabulary.numbered, shape)
    return Dataset("interactions", *splits, queries, candidates)


class Judged:
    """The queries of a split, at most ``MAX_QUERIES``, scored by ``METRIC``."""

    def __init__(self, data: Dataset, split: Any) -> None:
        self.data, self.split, self.truth = data, split, data.split(split)
        rows = torch.nonzero(self.truth.counts() > 0).flatten()
        step = -(-len(rows) // MAX_QUERIES)
        self.queries, self.spec = rows[::step], parse(METRIC)
        self.depth = self.spec.k

    def hidden(self, queries: torch.Tensor) -> Interactions:
        return self.data.seen(self.split).select(queries)

    def values(self, queries: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        judged = judge(ids.cpu(), self.truth.select(queries))
        return METRICS[self.spec.name].value(judged, self.spec.k)

    def mean(self, model: Model, device: torch.device) -> float:
        searcher = Searcher(model, self.data.split("train"), 2**28)
        hidden = self.hidden(self.queries).to(device)
        ids = searcher.of_queries(self.queries.to(device), self.depth, Filter(hidden)).ids
        return float(self.values(self.queries, ids).double().mean())


def settings_of(job: dict[str, Any], data: Dataset) -> dict[str, Any]:
    """The settings of a method from a point, some of which are relative to the data's size."""
    settings, train = dict(job["settings"]), data.split("train")
    if job["group"] not in ("ease", "rg2", "blend"):  # these have no width, or choose the rank
        settings["width"] = job["width"]
    size = train.n_queries * train.n_candidates
    if "ratio" in settings:
        background = min(1.0, settings.pop("ratio") * train.n_pairs / size)
        is_ials = job["group"] == "ials"
        settings |= {"background": background} if is_ials else {"alpha": 1 / background}
    if "reg_by_root" in settings:
        settings["reg"] = settings.pop("reg_by_root") * size**0.5
    if "query_decay" in settings:
        settings["weight_decay"] = settings.pop("query_decay") / train.n_queries
    return settings


def fit_and_score(job: dict[str, Any], device_name: str, deadline: float) -> dict[str, Any] | None:
    if time.time() > deadline:
        return None
    torch.set_num_threads(1)
    device, began = torch.device(device_name), time.time()
    method, data = METHODS[job["group"]], load(job["set"])
    judged = Judged(data, "validation")
    run = Run(
        rng=torch.Generator().manual_seed(0),
        device=device,
        comm=SingleProcess(),
        judge=judged,
        validate=lambda model: judged.mean(model, device),
        build_index=Exact,
        memory_budget=2**28,
    )
    history = History()
    for step in method.fit(data, method.config(**settings_of(job, data)), run):
        if step.whole:
            scored = step.model is not None and not method.self_tuning
            history.note(step, run.validate(step.model) if scored else None)
            if history.is_over(step, PATIENCE):
                break
    model = history.model
    assert model is not None
    if method.finalize is not None:
        model = method.finalize(model, data.split("train").to(device), run)
    splits = ("validation", "test")
    figures = {split: round(Judged(data, split).mean(model, device), 5) for split in splits}
    cost = {
        "steps": history.number,
        "seconds": round(time.time() - began, 1),
        "device": device_name,
    }
    return {**job, **figures, **cost}


def table(args: argparse.Namespace, names: list[str]) -> None:
    """Test ndcg@10 of the defaults over that of the point with the best validation figure."""
    lines = []
    print("| method | sets | number | mean | lowest | below .95 |\n|---|---|---|---|---|---|")
    for group in args.groups:
        shares = {}
        for name, points in _measured(args, group).items():
            plain = [one for one in points if not one["settings"]]
            tried = [one for one in points if one["settings"]]
            if name in names and plain and len(tried) >= N_POINTS:
                best = max(tried, key=lambda one: one["validation"])
                shares[name] = plain[-1]["test"] / best["test"]
                cells = f"{plain[-1]['test']:.4f} | {best['test']:.4f} | {shares[name]:.3f}"
                lines.append(f"| {group} | {name} | {cells} | {best['settings']} |")
        for kind in ("development", "judges", "later judges"):
            chosen = {name: share for name, share in shares.items() if kind_of(name) == kind}
            if chosen:
                low = ", ".join(f"{k} {v:.2f}" for k, v in sorted(chosen.items()) if v < GOAL)
                mean, lowest = sum(chosen.values()) / len(chosen), min(chosen.values())
                print(f"| `{group}` | {kind} | {len(chosen)} | {mean:.2f} | {lowest:.2f} | {low} |")
    print("\n| method | set | defaults | tuned | share | best point |\n|---|---|---|---|---|---|")
    print("\n".join(lines))


def kind_of(name: str) -> str:
    kinds = {"judges": JUDGES, "later judges": LATER_JUDGES}
    return next((kind for kind, names in kinds.items() if name in names), "development")


def side_by_side(args: argparse.Namespace, names: list[str]) -> None:
    """Test ndcg@10 of every method's defaults."""
    plain = {
        (group, name): points[-1]["test"]
        for group in args.groups
        for name, measured in _measured(args, group).items()
        if (points := [one for one in measured if not one["settings"]])
    }
    print(f"| set | {' | '.join(args.groups)} |\n{'|---' * (len(args.groups) + 1)}|")
    for name in names:
        cells = [f"{plain.get((group, name), float('nan')):.4f}" for group in args.groups]
        print(f"| {name} | {' | '.join(cells)} |")


def _measured(args: argparse.Namespace, group: str) -> dict[str, list[dict[str, Any]]]:
    """The records of a group by set."""
    path, records = args.out / f"{group}.jsonl", defaultdict(list)
    for line in path.read_text().splitlines() if path.exists() else []:
        record = json.loads(line)
        if record["width"] == args.width:
            records[record["set"]].append(record)
    return records


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
