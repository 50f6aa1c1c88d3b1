"""BPR against implicit's BPR on gowalla: samples per second, and seconds to a given quality.

    python -m benchmarks.speed.bpr [--rounds 3] [--epochs-only] [--write]

Both have width 64 and two threads. The first part measures the seconds of an epoch with one
negative per pair: the difference between fits of 3 and 13 epochs. Sampled softmax, which implicit
does not have, is measured as well. In the second part both are tuned on validation ndcg@10:
implicit over its learning rate and regularisation at 100 epochs, then over the number of epochs;
rankfold over learning rate and weight decay, with ten negatives and early stopping. The result is
the best score of each, and the seconds of training (implicit: of the fit) to reach it and to reach
the other's best score.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import rankfold as rf
from benchmarks.paths import RESULTS, SCRATCH, SHARED
from benchmarks.peers.quadratic import Fit, prepared, save_csr, start
from rankfold.metrics import parse
from rankfold.tasks.metric_totals import score
from rankfold.types import Dataset, Model

WIDTH, METRIC = 64, "ndcg@10"
RESULT = RESULTS / "speed" / "bpr.json"
RATES, REGULARISATIONS, LENGTHS = (0.01, 0.05, 0.1), (0.001, 0.01), (10, 25, 50, 100, 200)
OURS = {"lr": (0.003, 0.01), "weight_decay": (1e-6, 1e-5, 3e-5)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--epochs-only", action="store_true", help="keep the earlier quality figures"
    )
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    data, fit = prepared("gowalla", args.data), start("implicit")
    assert fit is not None, "the environment of implicit could not be installed"
    result: dict[str, Any] = {
        "data": "gowalla",
        "width": WIDTH,
        "pairs": data.split("train").n_pairs,
    }
    rounds = [epochs(data, fit) for _ in range(args.rounds)]
    result["seconds of an epoch"] = {k: median(one[k] for one in rounds) for k in rounds[0]}
    print(json.dumps(result["seconds of an epoch"], indent=1), flush=True)
    if args.epochs_only:
        write({**json.loads(RESULT.read_text()), **result} if args.write else {})
        return
    result["implicit"] = tuned_implicit(data, fit)
    result["rankfold"] = tuned_rankfold(data)
    for one, other in (("implicit", "rankfold"), ("rankfold", "implicit")):
        wanted = max(point[METRIC] for point in result[other])
        reached = [point["seconds"] for point in result[one] if point[METRIC] >= wanted]
        best = max(result[one], key=lambda point: point[METRIC])
        result[f"{one} best"] = best
        result[f"{one} seconds to the best of {other}"] = min(reached, default=None)
        print(one, best, "to the other's best:", min(reached, default=None), flush=True)
    write(result if args.write else {})


def write(result: dict[str, Any]) -> None:
    if result:
        RESULT.write_text(json.dumps(result, indent=1) + "\n")


def epochs(data: Dataset, fit: Fit) -> dict[str, float]:
    """Seconds of an epoch with one negative per pair."""
    job = job_of(data, {"learning_rate": 0.01, "regularization": 0.01})
    few, many = (fit({**job, "iterations": n})["wall_seconds"] for n in (3, 13))
    seconds = {"implicit": (many - few) / 10}
    for size in (2048, 8192, 32768):
        epochs = history(data, {"negatives": 1, "batch_size": size, "epochs": 4})
        seconds[f"rankfold, batches of {size}"] = median(e["seconds"] for e in epochs[1:])
    for negatives, size in ((1, 8192), (200, 2048)):
        settings = {"negatives": negatives, "batch_size": size, "epochs": 4}
        epochs = history(data, settings, "sampled-softmax")
        name = f"sampled-softmax, {negatives} negatives, batches of {size}"
        seconds[name] = median(e["seconds"] for e in epochs[1:])
    return seconds


def tuned_implicit(data: Dataset, fit: Fit) -> list[dict[str, Any]]:
    """Seconds and score of every point."""
    result = []
    for rate, regularisation in product(RATES, REGULARISATIONS):
        settings = {"learning_rate": rate, "regularization": regularisation}
        result.append(implicit_point(data, fit, settings, 100))
    best = max(result, key=lambda point: point[METRIC])["settings"]
    return result + [implicit_point(data, fit, best, n) for n in LENGTHS if n != 100]


def implicit_point(
    data: Dataset, fit: Fit, settings: dict[str, float], iterations: int
) -> dict[str, Any]:
    job = job_of(data, settings)
    seconds = fit({**job, "iterations": iterations})["wall_seconds"]
    names = ("queries", "candidates")
    vectors = {n: torch.from_numpy(np.load(Path(job["out"]) / f"{n}.npy")) for n in names}
    return point(settings, iterations, seconds, validated(data, Model("implicit", {}, vectors)))


def tuned_rankfold(data: Dataset) -> list[dict[str, Any]]:
    """Every epoch of every fit: seconds of training so far, and its score."""
    result = []
    for values in product(*OURS.values()):
        settings = dict(zip(OURS, values, strict=True))
        seconds = 0.0
        for entry in history(data, {"batch_size": 2048, "negatives": 10, **settings}):
            seconds += entry["seconds"]
            result.append(point(settings, entry["step"], seconds, entry["score"]))
        print(result[-1], flush=True)
    return result


def history(data: Dataset, settings: dict[str, Any], method: str = "bpr") -> list[dict[str, Any]]:
    ranker = rf.fit(method, data, width=WIDTH, metric=METRIC, **settings)
    notes: list[dict[str, Any]] = list(ranker.model.notes["history"])
    return notes


def validated(data: Dataset, model: Model) -> float:
    """The score that stops ``rf.fit``, on the same queries."""
    truth = data.split("validation")
    rows = torch.nonzero(truth.counts() > 0).flatten()
    if len(rows) > 10_000:
        chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:10_000]
        rows = rows[chosen.sort().values]
    result, _ = score(model, truth, data.seen("validation"), rows, [parse(METRIC)])
    return float(result[METRIC].mean())


def point(settings: dict[str, float], epoch: int, seconds: float, value: float) -> dict[str, Any]:
    return {"settings": settings, "epoch": epoch, "seconds": seconds, METRIC: value}


def job_of(data: Dataset, settings: dict[str, float]) -> dict[str, Any]:
    train = SCRATCH / "quality" / f"gowalla-train-{data.fingerprint[:12]}.npz"
    out = SCRATCH / "quality" / "implicit"
    out.mkdir(parents=True, exist_ok=True)
    if not train.exists():
        save_csr(train, data.split("train"))
    job: dict[str, Any] = {"model": "bpr", "width": WIDTH, "seed": 0, "settings": settings}
    return job | {"train": str(train.resolve()), "out": str(out.resolve())}


if __name__ == "__main__":
    main()
