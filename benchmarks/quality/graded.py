"""Graders with their defaults on many sets, beside libraries called directly.

    python -m benchmarks.quality.graded_sets                      # once
    python -m benchmarks.quality.graded export [--sets ...]       # their rows, as arrays
    python -m benchmarks.quality.graded run [--sets ...] [--methods ...] [--seeds 5] [--jobs 2]
    python -m benchmarks.quality.graded table [--write]

Every method has the same rows to fit and the same rows to choose the number of rounds: at most
``ROWS`` and a fifth as many, drawn once (``MORE`` where positives are rare). It is judged on all
test rows, or 100,000 of them. Nothing is set but the rate, for methods that take one, which are
fitted once per rate. Methods that choose by validation rows choose by a half of them, as ``fit``
does: the other half is kept for cuts. ``lightgbm`` and ``catboost`` have the size of trees and the
rate of learning of ``trees``, and stop after as many rounds without a better loss of their own.
``lightgbm-plain`` is LightGBM with its own defaults, 100 rounds, on train and validation. ``mord``
and LibAUC's losses have the defaults of ``peers/ordinal.py``. A figure is the mean TPR over
thresholds; the intervals are paired, over 400 samples of test rows. ``fars``, ``retinamnist`` and
the sets in ``JUDGES`` chose nothing. CatBoost, mord and LibAUC are read from ``PYTHONPATH`` if they
are there. An interrupted run is resumed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.paths import RESULTS, SCRATCH, SHARED
from benchmarks.quality import ordinal
from rankfold.types import Dataset, Graded

OUT, SCORES = RESULTS / "quality" / "graded.json", SCRATCH / "graded-scores"
ARRAYS = SCRATCH / "graded-arrays"
ROWS, JUDGED = 20_000, 100_000
MORE = {"fraud": 150_000, "flights": 60_000, "drifting": 60_000, "tills": 60_000, "logins": 60_000}
RATES = {
    "loans": (0.01, 0.05), "strikes": (0.01, 0.05), "incomes": (0.01, 0.05),
    "showers": (0.01, 0.05), "logins": (0.001, 0.01), "fars": (0.01, 0.05),
    "retinamnist": (0.05, 0.1),
}  # fmt: skip
METHODS = ("cba-trees", "trees", "cba", "ce", "pauc", "eban", "fh")
LIBRARIES = ("lightgbm", "lightgbm-plain", "catboost", "mord", "libauc-sopas", "libauc-sopa")
SAMPLES = 400
LR, LEAVES, WAIT, MOST = 0.05, 31, 100, 2000  # of ``trees``
Scores = NDArray[np.float64]
Job = tuple[str, str, float | None, int]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("task", choices=["export", "run", "table"])
    parser.add_argument("--sets", nargs="+", default=list(RATES))
    parser.add_argument("--methods", nargs="+", default=[*METHODS, *LIBRARIES])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread")
    parser.add_argument("--seconds", type=float, default=1e9, help="no job begins later")
    parser.add_argument("--data", type=Path, default=SHARED, help="the folder of public sets")
    parser.add_argument("--write", action="store_true", help="write the result file")
    args = parser.parse_args()
    if args.task == "export":
        for name in args.sets:
            export(name, args.data)
        return
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        if args.task == "run":
            end = time.time() + args.seconds
            pool.map(partial(run, end=end), jobs(args), chunksize=1)
            return
        found = [name for name in args.sets if (SCORES / name).exists()]
        result = dict(zip(found, pool.map(summary, found, chunksize=1), strict=True))
    result = {name: one for name, one in result.items() if one["rates"]}
    if args.write:
        OUT.write_text(json.dumps(result, indent=1) + "\n")
    print(show(result))


def jobs(args: argparse.Namespace) -> list[Job]:
    """The first seed of all methods and sets, then the others."""
    return [
        (name, method, rate, seed)
        for seed in range(args.seeds)
        for method in args.methods
        if draws(method) or seed == 0
        for name in args.sets
        for rate in (rates_of(name) if takes_rate(method) else (None,))
    ]


def rates_of(name: str) -> tuple[float, ...]:
    if name in RATES:
        return RATES[name]
    from benchmarks.quality import graded_sets

    return graded_sets.EVERY[name].rates


def export(name: str, shared: Path) -> None:
    """The rows to fit, to choose and to judge, as arrays."""
    from benchmarks.quality import graded_sets

    if name in ordinal.OF_DATA:
        ordinal.export(name, shared)
        data = ordinal.load(name)
    else:
        data = graded_sets.prepare(name)
    most = MORE.get(name, ROWS)
    sizes = {"train": most, "validation": most // 5, "test": JUDGED}
    parts = {split: some(data.graded(split), size) for split, size in sizes.items()}  # type: ignore[arg-type]
    ordinal.write_arrays(replace(data, **parts), ARRAYS / f"{name}.npz")  # type: ignore[arg-type]


def load(name: str) -> Dataset:
    return replace(ordinal.load(name, ARRAYS), fingerprint=name)


def some(rows: Graded, size: int) -> Graded:
    return rows.select(torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:size])


def takes_rate(method: str) -> bool:
    return method in ("cba-trees", "cba", "eban")


def draws(method: str) -> bool:
    return method not in ("lightgbm", "lightgbm-plain", "mord")


def run(job: Job, end: float) -> None:
    """One fit; its scores of the test rows and its CPU seconds are kept."""
    name, method, rate, seed = job
    path = SCORES / name / f"{method}-{rate or 'all'}-{seed}.npz"
    if path.exists() or time.time() > end:
        return
    torch.set_num_threads(1)
    data = load(name)
    began = time.process_time()
    fitted = (FITS.get(method) or ours)(data, method, rate, seed)
    seconds = time.process_time() - began
    scores = fitted(data.graded("test"))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, scores=scores, seconds=seconds)
    partial.replace(path)
    print(name, method, rate, seed, f"{seconds:.1f} s", flush=True)


# ------------------------------------------------------------------------------- the methods

Fitted = Callable[[Graded], Scores]


def ours(data: Dataset, method: str, rate: float | None, seed: int) -> Fitted:
    import rankfold as rf

    settings: dict[str, Any] = {} if rate is None else {"fpr": rate}
    model = rf.fit(method, data, seed=seed, **settings)
    return lambda rows: model.score(rows).double().numpy()


def lightgbm(data: Dataset, _method: str, _rate: float | None, seed: int) -> Fitted:
    import lightgbm as library

    from rankfold.methods.ordinal.boosting import matrix

    n, train = len(data.candidates), data.graded("train")
    first = train.numbers.shape[1]
    settings: dict[str, Any] = {
        "objective": "binary" if n == 2 else "multiclass", "num_class": 1 if n == 2 else n,
        "num_leaves": LEAVES, "learning_rate": LR, "num_threads": 1, "force_row_wise": True,
        "verbosity": -1, "deterministic": True, "seed": seed,
    }  # fmt: skip
    places = [first + c for c in range(train.categories.shape[1])]
    sets: list[Any] = []
    for rows in (train, data.graded("validation")):
        before = sets[0] if sets else None
        sets.append(
            library.Dataset(matrix(rows), rows.grades.numpy(), before, categorical_feature=places)
        )
    stop = library.early_stopping(WAIT, verbose=False)
    model = library.train(settings, sets[0], MOST, valid_sets=sets[1:], callbacks=[stop])

    def score(rows: Graded) -> Scores:
        p = np.asarray(model.predict(matrix(rows), num_threads=1), dtype=np.float64)
        return p if n == 2 else p @ np.arange(n)

    return score


def lightgbm_plain(data: Dataset, _method: str, _rate: float | None, _seed: int) -> Fitted:
    import lightgbm as library

    from rankfold.methods.ordinal.boosting import matrix

    n, rows = len(data.candidates), data.graded("train").join(data.graded("validation"))
    places = [rows.numbers.shape[1] + c for c in range(rows.categories.shape[1])]
    model = library.LGBMClassifier(n_jobs=1, verbosity=-1)
    model.fit(matrix(rows), rows.grades.numpy(), categorical_feature=places)

    def score(rows: Graded) -> Scores:
        p = np.asarray(model.predict_proba(matrix(rows), n_jobs=1), dtype=np.float64)
        return p[:, 1] if n == 2 else p @ np.arange(n)

    return score


def catboost(data: Dataset, _method: str, _rate: float | None, seed: int) -> Fitted:
    import catboost as library
    import pandas as pd

    n = len(data.candidates)
    places = [f"c{c}" for c in range(data.graded("train").categories.shape[1])]

    def frame(rows: Graded) -> Any:
        numbers = rows.numbers if rows.images is None else rows.images.flatten(1).float()
        table = pd.DataFrame(numbers.numpy(), columns=[f"n{i}" for i in range(numbers.shape[1])])
        return table.assign(**{c: rows.categories[:, i].numpy() for i, c in enumerate(places)})

    model = library.CatBoostClassifier(
        iterations=MOST, learning_rate=LR, random_seed=seed, thread_count=1, verbose=False,
        loss_function="Logloss" if n == 2 else "MultiClass", allow_writing_files=False,
        cat_features=places,
    )  # fmt: skip
    train, validation = data.graded("train"), data.graded("validation")
    model.fit(
        frame(train), train.grades.numpy(), early_stopping_rounds=WAIT, use_best_model=True,
        eval_set=(frame(validation), validation.grades.numpy()),
    )  # fmt: skip
    return lambda rows: model.predict_proba(frame(rows)) @ np.arange(n)


def peer(data: Dataset, method: str, _rate: float | None, seed: int) -> Fitted:
    """A peer with the defaults of ``peers/ordinal.py``; its seconds include scoring test."""
    from benchmarks.peers.ordinal import PEERS

    how = PEERS[method]
    more = {"batch_size": 64 if data.graded("train").images is not None else 256, "flips": "none"}
    settings = {**how.start, **(more if how.of_data else {})}
    fit = import_module(f"benchmarks.peers.{how.folder}.fit")
    with TemporaryDirectory() as folder:
        arrays, out = Path(folder) / "rows.npz", Path(folder) / "scores.npy"
        ordinal.write_arrays(data, arrays, {s: data.graded(t) for s, t in _ASKED})  # type: ignore[arg-type]
        job = {"data": str(arrays), "settings": settings, "seed": seed, "device": "cpu"}
        fit.answer({**job, "out": str(out)})
        scores = np.asarray(np.load(out), dtype=np.float64)
    return lambda _rows: scores


_ASKED = (("train", "train"), ("asked", "test"))
FITS: dict[str, Any] = {
    "lightgbm": lightgbm, "lightgbm-plain": lightgbm_plain, "catboost": catboost, "mord": peer,
    "libauc-sopas": peer, "libauc-sopa": peer,
}  # fmt: skip


# ------------------------------------------------------------------------------- the figures


def summary(name: str) -> dict[str, Any]:
    """TPR at each rate, the difference to the best with its interval, CPU seconds of a fit."""
    data = load(name)
    grades, n = data.graded("test").grades.numpy(), len(data.candidates)
    sizes = {split: len(data.graded(split)) for split in ("train", "validation", "test")}  # type: ignore[arg-type]
    every = {str(rate): figures(name, rate, grades, n) for rate in rates_of(name)}
    found = {rate: by_method for rate, by_method in every.items() if len(by_method) > 1}
    return {"grades": n, "rows": sizes, "rates": found}


def figures(name: str, rate: float, grades: NDArray[np.int64], n_grades: int) -> dict[str, Any]:
    """By method: the mean over seeds, its difference to the best one, and the 95% interval."""
    curves: dict[str, list[Curve]] = {}
    kept: dict[str, list[float]] = {}
    for path in sorted((SCORES / name).glob("*.npz")):
        method, of, _ = path.stem.rsplit("-", 2)
        if of in ("all", str(rate)):
            loaded = np.load(path)
            curves.setdefault(method, []).append(Curve(loaded["scores"], grades, n_grades))
            kept.setdefault(method, []).append(float(loaded["seconds"]))
    if not curves:
        return {}

    def tprs(weights: NDArray[np.int64] | None = None) -> dict[str, float]:
        return {
            m: float(np.mean([one.tpr(rate, weights) for one in some]))
            for m, some in curves.items()
        }

    rng, n, whole = np.random.default_rng(0), len(grades), tprs()
    best = max(whole, key=lambda method: whole[method])
    drawn = [tprs(np.bincount(rng.integers(n, size=n), minlength=n)) for _ in range(SAMPLES)]
    result = {}
    for method, value in sorted(whole.items(), key=lambda pair: -pair[1]):
        low, high = np.quantile([one[method] - one[best] for one in drawn], (0.025, 0.975))
        result[method] = {
            "tpr": round(value, 4), "seeds": len(curves[method]),
            "behind": [round(float(one), 4) for one in (value - whole[best], low, high)],
            "seconds": round(float(np.mean(kept[method])), 1),
        }  # fmt: skip
    return result


class Curve:
    """The TPR of each threshold at any rate, for weighted rows: sorted once."""

    def __init__(self, scores: Scores, grades: NDArray[np.int64], n_grades: int) -> None:
        order = np.argsort(-scores, kind="stable")
        self.order, ordered = order, scores[order]
        self.positive = grades[order] > np.arange(n_grades - 1)[:, None]
        self.ends = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)  # of equal scores

    def tpr(self, rate: float, weights: NDArray[np.int64] | None = None) -> float:
        """The mean over thresholds of the largest TPR whose FPR is at most the rate."""
        n = len(self.order)
        weight = np.ones(n, dtype=np.int64) if weights is None else weights[self.order]
        found = []
        for positive in self.positive:
            wrong = np.cumsum(weight * ~positive)[self.ends]
            right = np.cumsum(weight * positive)[self.ends]
            if wrong[-1] and right[-1]:
                last = np.searchsorted(wrong, rate * wrong[-1] * (1 + 1e-12), side="right") - 1
                found.append(right[last] / right[-1] if last >= 0 else 0.0)
        return float(np.mean(found))


def show(result: dict[str, Any]) -> str:
    """A row per set and rate; a star marks the best and ties with it."""
    methods = list(
        dict.fromkeys(m for one in result.values() for rate in one["rates"].values() for m in rate)
    )
    lines = [f"| set | rate | {' | '.join(methods)} |", "|---" * (len(methods) + 2) + "|"]
    for name, one in result.items():
        for rate, by_method in one["rates"].items():
            cells = [f"{by_method[m]['tpr']:.3f}{'*' if by_method[m]['behind'][2] >= 0 else ''}"
                     if m in by_method else "" for m in methods]  # fmt: skip
            lines.append(f"| {name} | {rate} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
