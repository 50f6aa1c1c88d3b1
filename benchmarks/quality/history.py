"""Histories as queries against vectors of queries, at equal width and seconds.

    python -m benchmarks.quality.history make                        generated sets with times
    python -m benchmarks.quality.history run [FOLDER ...] [--width 64] [--seconds 60] [--seeds 3]
    python -m benchmarks.quality.history table [--width 64] [--seconds 60]

``run`` takes folders of prepared data with times, split by ``last`` or by time; without any, the
generated sets. A fit has ``--seconds`` on the device, validation included; the number of epochs
that is best by ndcg@10 is fitted again on train and validation, and scored on test: all methods see
the same choices before the test. ``rg2`` selects its own settings, and is not cut short. Every
fit is a line of ``--lines``; those that are there are left out, so an interrupted run resumes. The
table has means over seeds, and the paired difference to ``ssl-pop`` with tables in units of its
standard error.

The generated sets: in ``walks`` the next candidate follows from the last, in ``drifts`` the taste
of a query moves on, in ``tastes`` the order says nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import polars as pl

import rankfold as rf
from benchmarks.paths import RESULTS, SCRATCH
from rankfold.training.early_stopping import validation_score

LINES = RESULTS / "quality" / "history.jsonl"
METRICS = ("ndcg@10", "recall@20")
HISTORY = {"encoder": "history"}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "rg2": ("rg2", {}),
    "ials": ("ials", {}),
    "softmax, tables": ("softmax", {}),
    "softmax, mean": ("softmax", {**HISTORY, "pooling": "mean"}),
    "softmax, recent": ("softmax", {**HISTORY, "pooling": "recent"}),
    "softmax, attention": ("softmax", {**HISTORY, "pooling": "attention"}),
    "sampled-softmax, attention": ("sampled-softmax", {**HISTORY, "pooling": "attention"}),
    "ssl-pop, tables": ("ssl-pop", {}),
    "ssl-pop, attention": ("ssl-pop", {**HISTORY, "pooling": "attention"}),
    "bir, tables": ("bir", {}),
    "bir, attention": ("bir", {**HISTORY, "pooling": "attention"}),
    "xir, tables": ("xir", {}),
    "xir, attention": ("xir", {**HISTORY, "pooling": "attention"}),
}
BASE = "ssl-pop, tables"
SETS = ("walks", "drifts", "tastes")
N_QUERIES, N_CANDIDATES, N_GROUPS = 2000, 600, 20


def make(name: str, folder: Path, seed: int = 0) -> None:
    """Write a generated set: queries with 6 to 30 choices, mostly in groups of candidates."""
    rng = np.random.default_rng([seed, SETS.index(name)])
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
    rf.prepare(table, split="last", out=folder)


def run(folders: list[Path], options: argparse.Namespace) -> None:
    lines: Path = options.lines
    lines.parent.mkdir(parents=True, exist_ok=True)
    done = {_key(line) for line in read(lines)}
    for folder in folders:
        data = rf.load_data(folder)
        for seed in range(options.seeds):
            for name in options.only or RUNS:
                about = {"data": folder.name, "run": name, "width": options.width}
                about |= {"seconds": options.seconds, "seed": seed}
                if _key(about) in done:
                    continue
                with lines.open("a") as file:
                    file.write(json.dumps({**about, **_fit(data, name, seed, options)}) + "\n")


def _fit(data: Any, name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    method, settings = RUNS[name]
    known = {"epochs": 10_000} if method not in ("rg2", "ials") else {}
    given = {"width": options.width, **known, **settings}
    began = time.perf_counter()
    limits = {"seconds": options.seconds, "device": options.device, "refit": True}
    model = rf.fit(method, data, seed=seed, **limits, **given)
    took = time.perf_counter() - began
    values = rf.evaluate(model, data, split="test", metrics=list(METRICS)).metrics
    tuned, steps = validation_score(model.model.notes), model.model.notes["chosen"]
    print(f"{name}: {values['ndcg@10']:.4f} in {took:.0f} s, step {steps}", flush=True)
    return {**values, "validation": tuned, "took": took, "step": steps}


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("data", "run", "width", "seconds", "seed"))


def read(lines: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []


def table(options: argparse.Namespace) -> str:
    """Test ndcg@10 by data and run, and the paired difference to ``BASE``."""
    lines = [line for line in read(options.lines) if line["width"] == options.width]
    lines = [line for line in lines if line["seconds"] == options.seconds]
    out = [
        "| data | run | ndcg@10 | recall@20 | difference | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for data in dict.fromkeys(line["data"] for line in lines):
        by_run: dict[str, dict[int, dict[str, Any]]] = {}
        for line in lines:
            if line["data"] == data:
                by_run.setdefault(line["run"], {})[line["seed"]] = line
        for name, own in by_run.items():
            base = by_run.get(BASE, {})
            gaps = [own[s]["ndcg@10"] - base[s]["ndcg@10"] for s in own if s in base]
            gap = f"{mean(gaps):+.4f}" if gaps else ""
            if len(gaps) > 1 and stdev(gaps) > 0:
                gap += f" ({abs(mean(gaps)) / (stdev(gaps) / len(gaps) ** 0.5):.1f} se)"
            one = [mean(line[metric] for line in own.values()) for metric in (*METRICS, "took")]
            out.append(f"| {data} | {name} | {one[0]:.4f} | {one[1]:.4f} | {gap} | {one[2]:.0f} |")
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("command", choices=("make", "run", "table"))
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", nargs="*", choices=tuple(RUNS))
    parser.add_argument("--lines", type=Path, default=LINES)
    options = parser.parse_args()
    own = [SCRATCH / "history" / name for name in SETS]
    if options.command == "table":
        print(table(options))
        return
    for name, folder in zip(SETS, own, strict=True):
        if not folder.exists() and not options.folders:
            folder.parent.mkdir(parents=True, exist_ok=True)
            make(name, folder)
    if options.command == "run":
        run(options.folders or own, options)


if __name__ == "__main__":
    main()
