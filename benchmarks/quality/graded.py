"""Graders with their defaults on many sets, beside libraries called directly.

    python -m benchmarks.quality.graded_prepare                   # once
    python -m benchmarks.quality.graded export [--sets ...]       # their rows, as arrays
    python -m benchmarks.quality.graded run [--sets ...] [--methods ...] [--seeds 5] [--jobs 2]
    python -m benchmarks.quality.graded table [--write]

Every method has the same rows to fit and the same rows to choose the number of rounds: at most
``ROWS`` and a fifth as many, drawn once (``MORE`` where positives are rare). It is judged on as
many test rows, at most ``JUDGED``. Nothing is set but the rate, for methods that take one, which
are fitted once for each rate of a set. Methods that choose by validation rows choose by a half of
them, as ``fit`` does: the other half is kept for cuts. ``lightgbm`` and ``catboost`` have the size
of trees and the rate of learning of ``trees``, and stop after as many rounds without a better loss
of their own. ``lightgbm-plain`` is LightGBM with its own defaults, 100 rounds, on train and
validation. ``mord`` and LibAUC's losses have the defaults of ``peers/ordinal.py``.

A fit writes a line: its TPR at ``RATES``, the mean over thresholds, on all test rows and on 200
samples of them, the same for all methods, and its CPU seconds. The intervals of differences follow
from the samples. ``run`` needs only torch, numpy and lightgbm; CatBoost, mord and LibAUC are read
from ``PYTHONPATH`` if they are there. An interrupted run is resumed.
"""

from __future__ import annotations

import argparse
import base64
import json
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.paths import RESULTS, SCRATCH, SHARED
from benchmarks.quality import graded_libraries
from rankfold.types import Columns, Dataset, Graded, Run, Vocabulary

OUT, LINES = RESULTS / "quality" / "graded.json", SCRATCH / "graded-lines"
ARRAYS = SCRATCH / "graded-arrays"
ROWS, JUDGED = 20_000, 30_000
MORE = {"fraud": 50_000, "flights": 40_000, "drifting": 40_000, "tills": 40_000,
        "logins": 40_000, "clicks": 40_000, "repairs": 30_000}  # fmt: skip
RATES = (0.001, 0.01, 0.05, 0.1)
MAIN = ("trees", "cba-trees", "cba", "ce")  # the others have two seeds
METHODS = (*MAIN, "fh", "pauc", "eban", "fh-auc", "focal", "soft-label", "nnrank", "ddag")
SAMPLES, TOP, SPLITS = 200, 0.2, ("train", "validation", "test")
Scores = NDArray[np.float64]
Job = tuple[str, str, float | None, int]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("task", choices=["export", "run", "table"])
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--methods", nargs="+", default=[*graded_libraries.FITS, *METHODS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread")
    parser.add_argument("--seconds", type=float, default=1e9, help="no job begins later")
    parser.add_argument("--data", type=Path, default=SHARED, help="the folder of public sets")
    parser.add_argument("--out", type=Path, default=LINES)
    parser.add_argument("--write", action="store_true", help="write the result file")
    args = parser.parse_args()
    if args.task == "export":
        export(args.sets, args.data)
    elif args.task == "run":
        run(args)
    else:
        result = summary(args.out)
        print(show(result))
        if args.write:
            OUT.write_text(written(result))


# ------------------------------------------------------------------------------- the rows


def export(names: list[str] | None, shared: Path) -> None:
    """The rows to fit, to choose and to judge, as arrays."""
    from benchmarks.quality import graded_prepare, ordinal
    from rankfold.tasks.fit.calibration_rows import SHARE, apart_rows

    for name in names or [*graded_prepare.EVERY, *ordinal.OF_DATA]:
        if name in ordinal.OF_DATA:
            ordinal.export(name, shared)
            data, rates = ordinal.load(name), (0.01, 0.05)
        else:
            data, rates = graded_prepare.prepare(name), graded_prepare.EVERY[name].rates
        kept: dict[str, Any] = {"n_grades": len(data.candidates), "rates": rates}
        most = MORE.get(name, ROWS)
        for split, size in zip(SPLITS, (most, most // 5, min(most, JUDGED)), strict=True):
            rows = some(data.graded(split), size)  # type: ignore[arg-type]
            for field in ("numbers", "images", "grades"):
                if (value := getattr(rows, field)) is not None:
                    kept[f"{split}_{field}"] = value.numpy()
            kept[f"{split}_categories"] = rows.categories.numpy().astype(np.int32)
            if split == "validation":
                kept["apart"] = apart_rows(rows.grades, SHARE).numpy()
        assert data.columns is not None
        kept["levels"] = [len(values) for values in data.columns.levels.values()]
        ARRAYS.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(ARRAYS / f"{name}.npz", **kept)


def some(rows: Graded, size: int) -> Graded:
    return rows.select(torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:size])


def load(name: str) -> Dataset:
    loaded = np.load(ARRAYS / f"{name}.npz")

    def part(split: str) -> Graded:
        fields = (f"{split}_{field}" for field in ("numbers", "categories", "images", "grades"))
        return Graded(*(torch.from_numpy(loaded[f]) if f in loaded else None for f in fields))  # type: ignore[arg-type]

    levels = {str(k): tuple(map(str, range(n))) for k, n in enumerate(loaded["levels"].tolist())}
    train, validation, test = map(part, SPLITS)
    columns = Columns(tuple(map(str, range(train.numbers.shape[1]))), levels)
    keys, grades = Vocabulary.numbered(0), Vocabulary.numbered(int(loaded["n_grades"]))
    return Dataset("graded", train, validation, test, keys, grades, columns=columns)


# ------------------------------------------------------------------------------- the fits


def run(args: argparse.Namespace) -> None:
    """The first seed of all methods and sets, then the others of ``MAIN``; larger sets first."""
    names = args.sets or [path.stem for path in ARRAYS.glob("*.npz")]
    names.sort(key=lambda name: -(ARRAYS / f"{name}.npz").stat().st_size)
    rates = {name: np.load(ARRAYS / f"{name}.npz")["rates"].tolist() for name in names}
    done = {(one["set"], one["method"], one["aim"], one["seed"]) for one in lines_of(LINES)}
    jobs: list[Job] = [
        (name, method, aim, seed)
        for seed in range(args.seeds)
        for method in args.methods
        if seed < seeds_of(method)
        for name in names
        for aim in (rates[name] if takes_rate(method) else (None,))
    ]
    jobs.sort(key=lambda job: job[3] > 0 and job[1] not in MAIN)
    args.out.mkdir(parents=True, exist_ok=True)
    end = time.time() + args.seconds
    tasks = [(job, end) for job in jobs if job not in done]
    with (
        multiprocessing.get_context("spawn").Pool(args.jobs) as pool,
        (args.out / "lines.jsonl").open("a") as file,
    ):
        for line in pool.imap_unordered(fitted, tasks):
            if line is not None:
                file.write(json.dumps(line) + "\n")
                file.flush()


def takes_rate(method: str) -> bool:
    return method in ("cba-trees", "cba", "eban")


def seeds_of(method: str) -> int:
    if method in ("lightgbm", "lightgbm-plain", "mord"):  # nothing is drawn
        return 1
    return 5 if method in MAIN else 2


def fitted(task: tuple[Job, float]) -> dict[str, Any] | None:
    """One fit: its figures on the test rows and its CPU seconds."""
    (name, method, aim, seed), end = task
    if time.time() > end:
        return None
    torch.set_num_threads(1)
    data, job = load(name), {"set": name, "method": method, "aim": aim, "seed": seed}
    began = time.process_time()
    try:
        if method in graded_libraries.FITS:
            score = graded_libraries.FITS[method](data, method, seed)
        else:
            score = ours(data, name, method, aim, seed)
        seconds = time.process_time() - began
        scores = score(data.graded("test"))
    except Exception as error:  # the others go on
        return {**job, "error": repr(error)}
    every = curves(scores, data.graded("test").grades.numpy(), len(data.candidates))
    codes = base64.b64encode((every[1:] * 65535).round().astype(np.uint16).tobytes()).decode()
    whole = [round(float(one), 5) for one in every[0]]
    return {**job, "seconds": round(seconds, 1), "tpr": whole, "samples": codes}


def ours(
    data: Dataset, name: str, method: str, aim: float | None, seed: int
) -> Callable[[Graded], Scores]:
    """As ``rankfold.fit`` does it, without its checks and its notes."""
    from rankfold.distributed.collectives import SINGLE_PROCESS
    from rankfold.methods import METHODS as EVERY

    chooses = np.flatnonzero(~np.load(ARRAYS / f"{name}.npz")["apart"])
    data = replace(data, validation=data.graded("validation").select(torch.from_numpy(chooses)))
    one, settings = EVERY[method], {} if aim is None else {"fpr": aim}
    context = Run(torch.Generator().manual_seed(seed), torch.device("cpu"), SINGLE_PROCESS)
    model = None
    for step in one.fit(data, one.config(**settings), context):
        model = step.model or model
    assert model is not None
    rows = one.open(model).rows
    assert rows is not None
    return lambda asked: rows(asked).double().numpy()


def curves(scores: Scores, grades: NDArray[np.int64], n_grades: int) -> NDArray[np.float64]:
    """TPR at ``RATES``: for all rows, then for samples of them; [1 + SAMPLES, rates].

    Of each threshold the largest TPR whose FPR is at most the rate; the mean over thresholds. Only
    the rows above ``TOP`` of the negatives are added up: no rate is near it.
    """
    rng, n = np.random.default_rng(0), len(grades)
    drawn = [np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(SAMPLES)]
    weights = np.stack([np.ones(n, dtype=np.int64), *drawn]).astype(np.float32)
    order = np.argsort(-scores, kind="stable")
    found = []
    for k in range(n_grades - 1):
        positive = grades > k
        totals = weights @ np.stack([~positive, positive], axis=1).astype(np.float32)
        if not positive.any() or positive.all():
            continue
        above = np.cumsum(~positive[order])
        last = min(n, int(np.searchsorted(above, TOP * above[-1])) + 1)
        top = order[:last]
        ends = np.append(np.flatnonzero(np.diff(scores[top])), last - 1)  # of equal scores
        mine = weights[:, top]
        wrong = np.cumsum(mine * ~positive[top], axis=1, dtype=np.float64)[:, ends]
        right = np.cumsum(mine * positive[top], axis=1, dtype=np.float64)[:, ends]
        rows = []
        for w, r, total in zip(wrong, right, totals, strict=True):
            at = np.searchsorted(w, np.array(RATES) * total[0] * (1 + 1e-12), side="right") - 1
            rows.append(np.where(at >= 0, r[at] / max(total[1], 1.0), 0.0))
        found.append(rows)
    return np.asarray(np.mean(found, axis=0))


# ------------------------------------------------------------------------------- the figures


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """One line a fit; a failed one is no line."""
    lines = [json.loads(line) for path in sorted(folder.glob("**/*.jsonl"))
             for line in path.read_text().splitlines()]  # fmt: skip
    return [line for line in lines if "tpr" in line]


def summary(folder: Path) -> dict[str, Any]:
    """By set and method: TPR at the rates, and the difference to the best with its interval."""
    from benchmarks.quality import graded_prepare

    result: dict[str, Any] = {}
    lines = lines_of(folder)
    for name in dict.fromkeys(line["set"] for line in sorted(lines, key=lambda one: one["set"])):
        loaded = np.load(ARRAYS / f"{name}.npz")
        sizes = {split: len(loaded[f"{split}_grades"]) for split in SPLITS}
        mine = [line for line in lines if line["set"] == name]
        known = dict.fromkeys(line["method"] for line in mine)
        at = {rate: {m: of_rate([line for line in mine if line["method"] == m], place, rate)
                     for m in known} for place, rate in enumerate(RATES)}  # fmt: skip
        methods = {}
        for method in known:
            every = [line for line in mine if line["method"] == method]
            best = [max(at[rate].values(), key=lambda one: float(one[0])) for rate in RATES]
            methods[method] = {
                "seeds": len({line["seed"] for line in every}),
                "seconds": round(float(np.mean([line["seconds"] for line in every])), 1),
                "tpr": [round(float(at[rate][method][0]), 4) for rate in RATES],
                "to_best": [away(at[rate][method], b) for rate, b in zip(RATES, best, strict=True)],
            }
            if "lightgbm" in known:
                its = [away(at[rate][method], at[rate]["lightgbm"]) for rate in RATES]
                methods[method]["to_lightgbm"] = its
        grades, rates = int(loaded["n_grades"]), loaded["rates"].tolist()
        group = "judge" if name in graded_prepare.JUDGES else "development"
        group = group if name in graded_prepare.EVERY else "table"
        result[name] = {"group": group, "grades": grades, "rows": sizes, "rates": rates,
                        "methods": methods}  # fmt: skip
    return result


def away(values: NDArray[np.float64], others: NDArray[np.float64]) -> list[float]:
    """A difference and its 95 % interval; the first value is of all rows."""
    difference = values - others
    low, high = np.quantile(difference[1:], (0.025, 0.975))
    return [round(float(one), 4) for one in (difference[0], low, high)]


def of_rate(lines: list[dict[str, Any]], place: int, rate: float) -> NDArray[np.float64]:
    """The mean over seeds, for all rows and for the samples; of the fits that aimed nearest."""
    aims = {line["aim"] for line in lines}
    nearest = min(aims, key=lambda aim: 0.0 if aim is None else abs(np.log(aim / rate)))
    found = []
    for line in lines:
        if line["aim"] == nearest:
            codes = np.frombuffer(base64.b64decode(line["samples"]), dtype=np.uint16)
            drawn = codes.reshape(SAMPLES, len(RATES))[:, place] / 65535
            found.append(np.append(line["tpr"][place], drawn))
    return np.asarray(np.mean(found, axis=0))


def show(result: dict[str, Any]) -> str:
    """A row per set and rate; a star marks the best and ties with it."""
    methods = list(dict.fromkeys(m for one in result.values() for m in one["methods"]))
    lines = [f"| set | rate | {' | '.join(methods)} |", "|---" * (len(methods) + 2) + "|"]
    for name, one in result.items():
        for place, rate in enumerate(RATES):
            cells = []
            for method in methods:
                found = one["methods"].get(method)
                star = "*" if found and found["to_best"][place][2] >= 0 else ""
                cells.append(f"{found['tpr'][place]:.3f}{star}" if found else "")
            lines.append(f"| {name} | {rate} | {' | '.join(cells)} |")
    return "\n".join(lines)


def written(result: dict[str, Any]) -> str:
    """JSON with a line per set and method."""
    blocks = []
    for name, one in result.items():
        head = {key: value for key, value in one.items() if key != "methods"}
        rows = [f"   {json.dumps(m)}: {json.dumps(row)}" for m, row in one["methods"].items()]
        start = json.dumps(head)[:-1]
        blocks.append(f' {json.dumps(name)}: {start}, "methods": {{\n' + ",\n".join(rows) + "\n }}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


if __name__ == "__main__":
    main()
