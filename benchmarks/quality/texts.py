"""Text labelling by rankfold, and the contribution of each part of SiameseXML.

    python -m benchmarks.quality.texts prepare [--data DIR]       the four sets, as folders
    python -m benchmarks.quality.texts run [--data-sets ...] [--recipes ...] [--seeds N]
    python -m benchmarks.quality.texts table [--data-sets ...]    with those of peers/texts.py

A recipe is a method with settings. It selects its mix on validation, then it is fitted on train and
validation. Each fit is its own process with one thread: CPU seconds are those of the second fit,
with the total beside them. ``text_scores.scores`` computes the figures, as for the peers. Each seed
is written to results/quality/texts/rankfold-RECIPE-DATA.json at once.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

import rankfold as rf
from benchmarks.paths import RESULTS, SCRATCH, SHARED
from benchmarks.quality import text_data
from benchmarks.quality.text_scores import METRICS, Counts, Truth, scores
from rankfold.models.search import Filter
from rankfold.training.early_stopping import History
from rankfold.types import Dataset, Interactions, Step, from_pairs

OUT = RESULTS / "quality" / "texts"
FOLDERS = SCRATCH / "data"
NAMES = tuple(text_data.SETS)
MODULES = {"popularity_weight": 0.0}  # modules are compared without it
WITHOUT_CLASSIFIERS = {
    **MODULES,
    "classifier_epochs": 0,
    "joint_epochs": 0,
    "classifier_share": 0.0,
}
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "siamesexml": ("siamesexml", {}),
    "siamesexml-3": ("siamesexml-3", {}),
    "I": ("siamesexml", {**WITHOUT_CLASSIFIERS, "encoder_epochs": 5, "centroid_weight": 0.0}),
    "I-II": ("siamesexml", {**WITHOUT_CLASSIFIERS, "encoder_epochs": 5}),
    "I-III": (
        "siamesexml",
        {**MODULES, "encoder_epochs": 3, "classifier_epochs": 2, "joint_epochs": 0},
    ),
    "I-IV": (
        "siamesexml",
        {**MODULES, "encoder_epochs": 2, "classifier_epochs": 1, "joint_epochs": 2},
    ),
    "without-popularity": ("siamesexml", MODULES),
    "siamesexml-paper": ("siamesexml-paper", {}),
    "near-documents": ("text-neighbours", {"label_weight": 0.0}),
    "near-labels": ("text-neighbours", {"neighbours": 0}),
    "text-neighbours": ("text-neighbours", {"label_weight": None}),
    "text-linear": ("text-linear", {"label_weight": None}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["prepare", "run", "table", "one"])
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--data-sets", nargs="+", default=NAMES)
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.task == "prepare":
        prepare(args.data_sets, args.data)
    elif args.task == "table":
        table(args.data_sets)
    elif args.task == "one":
        print(json.dumps(one(args.data_sets[0], args.recipes[0], args.seed)))
    else:
        for name in args.data_sets:
            for recipe in args.recipes:
                study(name, recipe, args.seeds)


def prepare(names: list[str], data: Path) -> None:
    FOLDERS.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name == "mdn-one-way":
            continue  # made from mdn-seealso
        out, source = FOLDERS / f"text-{name}", text_data.SETS[name][1]
        if name == "debian-seealso":
            rf.prepare(source=name, format="texts", out=out)
        else:
            rf.prepare(data / source, source=name, out=out)


def study(name: str, recipe: str, seeds: int) -> None:
    """A fit for each missing seed."""
    path = OUT / f"rankfold-{recipe}-{name}.json"
    result = json.loads(path.read_text()) if path.exists() else {"recipe": recipe, "data": name}
    result.setdefault("test", [])
    for seed in range(len(result["test"]), seeds):
        command = [
            sys.executable,
            "-m",
            "benchmarks.quality.texts",
            "one",
            "--data-sets",
            name,
            "--recipes",
            recipe,
        ]
        done = subprocess.run(
            [*command, "--seed", str(seed)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        result["test"].append(json.loads(done.stdout))
        OUT.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(path.stem, {key: result["test"][-1][key] for key in (*METRICS, "fit_cpu_seconds")})


def one(name: str, recipe: str, seed: int) -> dict[str, Any]:
    """Fit, refit on train and validation, score on test."""
    data = load(name)
    method, settings = RECIPES[recipe]
    began, ends = time.process_time(), [0.0]

    def note(history: History, _step: Step) -> None:
        if history.phase == "fit":
            ends.append(time.process_time())  # the last of them is where the second fit begins

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "model"
        how = {"out": out, "refit": True, "seed": seed, "metric": "ndcg@5", "report": note}
        ranker = rf.fit(method, data, **how, **settings)
        size = sum(file.stat().st_size for file in out.iterdir())
    both, again = time.process_time() - began, time.process_time() - ends[-1]
    rows = torch.nonzero(data.split("test").counts() > 0).flatten()
    hidden = data.seen("test").select(rows)
    began, wall = time.process_time(), time.perf_counter()
    ids = ranker.searcher.of_queries(rows, 10, Filter(hidden)).ids
    spent_searching = time.process_time() - began, time.perf_counter() - wall
    known = data.split("train").union(data.split("validation"))
    return {
        "seed": seed,
        "settings": dict(ranker.model.config),
        "both_fits_cpu_seconds": both,
        "fit_cpu_seconds": again,
        "predict_cpu_ms": 1e3 * spent_searching[0] / len(rows),
        "predict_ms": 1e3 * spent_searching[1] / len(rows),
        "model_bytes": size,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        **scores(ids.numpy(), truth_of(data, rows), counts_of(known)),
    }


def load(name: str) -> Dataset:
    if name != "mdn-one-way":
        return rf.load_data(FOLDERS / f"text-{name}")
    return one_way(rf.load_data(FOLDERS / "text-mdn-seealso"))


def one_way(data: Dataset) -> Dataset:
    """As ``text_data.one_way`` does for the peers."""
    assert data.excluded is not None
    known, test = data.seen("test"), data.split("test")
    own = torch.full((len(data.queries),), -1)
    own[data.excluded.query_of_pair().long()] = data.excluded.candidates.long()
    document = torch.full((len(data.candidates),), -1)
    document[data.excluded.candidates.long()] = data.excluded.query_of_pair().long()
    left, right = document[test.candidates.long()], own[test.query_of_pair().long()]
    keys = known.query_of_pair().long() * known.n_candidates + known.candidates
    away = (left >= 0) & (right >= 0) & torch.isin(left * known.n_candidates + right, keys)
    parts = [
        from_pairs(
            test.query_of_pair()[chosen], test.candidates[chosen], None, (len(own), len(document))
        )
        for chosen in (~away, away)
    ]
    return replace(data, test=parts[0], excluded=data.excluded.union(parts[1]))


def truth_of(data: Dataset, rows: torch.Tensor) -> Truth:
    chosen = data.split("test").select(rows)
    return Truth(chosen.offsets.numpy(), chosen.candidates.long().numpy())


def counts_of(known: Interactions) -> Counts:
    return Counts(known.candidate_counts().numpy(), int((known.counts() > 0).sum()))


def table(names: list[str]) -> None:
    """Means over seeds; peers from their own files."""
    for name in names:
        print(f"\n{name}\n| | {' | '.join(METRICS)} | fit CPU s | ms | MB | peak MB |")
        print("|---" * (len(METRICS) + 5) + "|")
        for path in sorted(OUT.glob(f"*-{name}.json")):
            runs = json.loads(path.read_text()).get("test", [])
            if runs:
                print(row(path.stem.removesuffix(f"-{name}"), runs))


def row(label: str, runs: list[dict[str, Any]]) -> str:
    def average(key: str) -> float:
        return mean(run.get(key, float("nan")) for run in runs)

    quality = " | ".join(f"{average(metric):.2f}" for metric in METRICS)
    fit = average("fit_cpu_seconds") + np.nan_to_num(average("words_cpu_seconds"))
    size = average("model_bytes") + np.nan_to_num(average("vocabulary_bytes"))
    rest = f"{fit:.0f} | {average('predict_ms'):.2f} | {size / 1e6:.0f}"
    return f"| {label} ({len(runs)}) | {quality} | {rest} | {average('peak_bytes') / 1e6:.0f} |"


if __name__ == "__main__":
    main()
