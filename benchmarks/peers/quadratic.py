"""Ranking quality of other libraries' matrix factorisations, each tuned on validation.

    python -m benchmarks.peers.quadratic [--data DIR] [--data-sets ...] [--widths ...] [--peers ...]

For each width, data set and peer, every point of the peer's grid is fitted on train and scored on
all validation queries. The point with the best ndcg@20 is fitted on train and validation with three
seeds and scored on test, without the pairs it was fitted on. Each figure is written to
``results/quality/quadratic/PEER-DATA-WIDTH.json`` at once, and an interrupted run is resumed. The
peers run in their own environments (``peers/environment.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import torch

import rankfold as rf
from benchmarks.paths import HOME, RESULTS, SCRATCH, SHARED
from benchmarks.peers.environment import environment
from rankfold import storage
from rankfold.metrics import parse
from rankfold.tasks.metric_totals import score
from rankfold.types import Dataset, Interactions, Model, SplitName

OUT = RESULTS / "quality" / "quadratic"
METRICS = ("recall@20", "ndcg@20", "ndcg@10")
SELECTED_BY = "ndcg@20"
SEEDS = (0, 1, 2)
WIDTHS = (256, 64)

DATA_SETS = {
    "gowalla": {
        "train": "train.txt.zst",
        "validation": "valid.txt.zst",
        "test": "test.txt.zst",
    },
    "amazon-electronics-10core": {
        "train": "train.txt.zst",
        "validation": "val.txt",
        "test": "test.txt.zst",
    },
    "amazon-book-kgat": {"train": "train.txt.zst", "test": "test.txt.zst"},
    "pinterest": {"train": "train.txt.zst", "test": "test.txt.zst"},
}


class Peer(NamedTuple):
    iterations: int
    grid: dict[str, tuple[float, ...]]

    def points(self) -> list[dict[str, float]]:
        return [
            dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())
        ]


PEERS = {
    "irspack": Peer(16, {"alpha0": (0.003, 0.01, 0.03, 0.1), "reg": (0.0003, 0.001, 0.003, 0.01)}),
    "implicit": Peer(15, {"alpha": (10, 40, 160), "regularization": (1, 10, 50)}),
}

Fit = Callable[[dict[str, Any]], dict[str, float]]


def main() -> None:
    args = _arguments()
    fits = {name: start(name) for name in args.peers}
    for width, name in product(args.widths, args.data_sets):
        if not (args.data / name).is_dir():
            print(f"skipped: {args.data / name} does not exist", flush=True)
            continue
        data = prepared(name, args.data)
        for peer in args.peers:
            fit = fits[peer]
            if fit is None:
                print(f"skipped: the environment of {peer} could not be installed", flush=True)
            else:
                compare(peer, name, data, width, fit)


def compare(peer: str, name: str, data: Dataset, width: int, fit: Fit) -> dict[str, Any]:
    """Tune one peer on one data set, refit it, write the figures."""
    path = OUT / f"{peer}-{name}-{width}.json"
    result = _begun(path, peer, name, data, width)
    job = {"width": width, "iterations": PEERS[peer].iterations}
    for settings in PEERS[peer].points():
        if any(point["settings"] == settings for point in result["grid"]):
            continue
        one = {**job, "settings": settings, "seed": 0}
        result["grid"].append(measure(fit, one, peer, name, data, "validation"))
        storage.write_text(path, json.dumps(result, indent=1) + "\n")
        print(path.stem, json.dumps(result["grid"][-1]), flush=True)
    best = max(result["grid"], key=lambda point: point.get(SELECTED_BY, -1.0))
    result |= {"chosen": best["settings"], "on_edge": on_edge(peer, best["settings"])}
    result["test"] = [one for one in result["test"] if one["settings"] == best["settings"]]
    for seed in SEEDS:
        if any(one["seed"] == seed for one in result["test"]):
            continue
        one = {**job, "settings": best["settings"], "seed": seed}
        result["test"].append(measure(fit, one, peer, name, data, "test"))
        storage.write_text(path, json.dumps(result, indent=1) + "\n")
        print(path.stem, "test", json.dumps(result["test"][-1]), flush=True)
    result["test_mean"] = {
        metric: round(mean(one[metric] for one in result["test"]), 5) for metric in METRICS
    }
    storage.write_text(path, json.dumps(result, indent=1) + "\n")
    print(
        path.stem, "mean", json.dumps(result["test_mean"]), "edge:", result["on_edge"], flush=True
    )
    return result


def measure(
    fit: Fit, job: dict[str, Any], peer: str, name: str, data: Dataset, split: SplitName
) -> dict[str, Any]:
    """Fit on the splits before ``split`` and score on it; no metrics if the vectors overflowed."""
    out = SCRATCH / "quality" / peer
    out.mkdir(parents=True, exist_ok=True)
    known = data.seen(split)
    train = SCRATCH / "quality" / f"{name}-before-{split}-{data.fingerprint[:12]}.npz"
    if not train.exists():
        save_csr(train, known)
    seconds = fit({**job, "train": str(train.resolve()), "out": str(out.resolve())})
    names = ("queries", "candidates")
    vectors = {name: torch.from_numpy(np.load(out / f"{name}.npy")) for name in names}
    entry = {"settings": job["settings"], "seed": job["seed"]}
    entry |= {name: round(value, 2) for name, value in seconds.items()}
    if not all(bool(part.isfinite().all()) for part in vectors.values()):
        return {**entry, "overflowed": True}
    truth = data.split(split)
    rows = torch.nonzero(truth.counts() > 0).flatten()
    specs = [parse(metric) for metric in METRICS]
    values, _ = score(Model(peer, job["settings"], vectors), truth, known, rows, specs)
    return entry | {m: round(float(values[m].mean(dtype=np.float64)), 5) for m in METRICS}


def on_edge(peer: str, settings: dict[str, float]) -> list[str]:
    """The settings whose best value is the first or the last of the grid."""
    grid = PEERS[peer].grid
    return [name for name, value in settings.items() if value in (grid[name][0], grid[name][-1])]


def prepared(name: str, root: Path) -> Dataset:
    folder = SCRATCH / "data" / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        files = {split: root / name / file for split, file in DATA_SETS[name].items()}
        rf.prepare(out=folder, **files)
    return rf.load_data(folder)


def save_csr(path: Path, pairs: Interactions) -> None:
    """The pairs as ``scipy.sparse.load_npz`` reads them, all with the value 1."""
    part = path.with_suffix(".part.npz")
    np.savez(
        part,
        indices=pairs.candidates.numpy().astype(np.int32),
        indptr=pairs.offsets.numpy().astype(np.int32),
        format=np.array(b"csr"),
        shape=np.array([pairs.n_queries, pairs.n_candidates]),
        data=np.ones(pairs.n_pairs, dtype=np.float32),
    )
    part.replace(path)


def start(peer: str) -> Fit | None:
    """A process in the peer's environment that fits the jobs it receives."""
    python = environment(peer)
    if python is None:
        return None
    process = subprocess.Popen(
        [str(python), str(HOME / "peers" / peer / "fit.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )

    def fit(job: dict[str, Any]) -> dict[str, float]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{peer} ended while it fitted {job}")
        answer: dict[str, float] = json.loads(line)
        return answer

    return fit


def _begun(path: Path, peer: str, name: str, data: Dataset, width: int) -> dict[str, Any]:
    """The figures of an earlier run of the same comparison, or an empty result."""
    requirements = (HOME / "peers" / peer / "requirements.txt").read_text().split()
    head = {
        "peer": peer,
        "data": name,
        "width": width,
        "iterations": PEERS[peer].iterations,
        "versions": requirements,
        "fingerprint": data.fingerprint,
        "selected_by": f"validation {SELECTED_BY}",
    }
    if path.exists():
        figures: dict[str, Any] = json.loads(path.read_text())
        if all(figures.get(key) == value for key, value in head.items()):
            return figures
        print(f"{path.name} belongs to another comparison: starting again", flush=True)
    return {**head, "grid": [], "chosen": None, "on_edge": [], "test": []}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=SHARED, metavar="DIR")
    parser.add_argument("--data-sets", nargs="+", choices=[*DATA_SETS], default=[*DATA_SETS])
    parser.add_argument("--widths", nargs="+", type=int, default=[*WIDTHS])
    parser.add_argument("--peers", nargs="+", choices=[*PEERS], default=[*PEERS])
    return parser.parse_args()


if __name__ == "__main__":
    main()
