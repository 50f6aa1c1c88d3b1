"""What the parts of graders are worth, on rows that chose nothing.

    python -m benchmarks.quality.graded_study export          # arrays, from the prepared sets
    python -m benchmarks.quality.graded_study run --jobs 14   # torch, numpy and lightgbm suffice
    python -m benchmarks.quality.graded_study table

The rows are those of train and validation of the development sets: no test row is read. A draw
divides them anew into rows to fit (64 %), to choose by (9 %) and to judge. A figure is the mean TPR
over thresholds at .001, .01, .05 and .1; nothing is set, so methods with a rate aim at .01. Trees
of all variants are grown round by round, and their outputs kept, so that averages and choices of
rounds cost nothing more.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.paths import SCRATCH

ARRAYS, OUT = SCRATCH / "grades-device" / "arrays", SCRATCH / "grades-device" / "out"
ROWS, MORE = 14_000, {"fraud": 60_000, "flights": 40_000, "drifting": 40_000, "tills": 40_000}
RATES, AIM = (0.001, 0.01, 0.05, 0.1), 0.01
WAIT, MOST = 100, 1000
KINDS = ("trees", "nets", "side")
Outputs = NDArray[np.float32]


class Division(NamedTuple):
    """The rows of a draw."""

    fit: Any
    choose: Any
    judge: Any
    n_grades: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("task", choices=["export", "run", "table"])
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    if args.task == "export":
        export(args.sets)
    elif args.task == "table":
        table(args.out)
    else:
        run(args)


def export(names: list[str] | None) -> None:
    from benchmarks.quality import graded_sets

    ARRAYS.mkdir(parents=True, exist_ok=True)
    for name in names or [*graded_sets.SETS, *graded_sets.LATER]:
        data = graded_sets.prepare(name)
        rows = data.graded("train").join(data.graded("validation"))
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        rows = rows.select(order[: MORE.get(name, ROWS)])
        levels = [len(one) for one in data.columns.levels.values()]
        np.savez_compressed(
            ARRAYS / f"{name}.npz", numbers=rows.numbers.numpy(), grades=rows.grades.numpy(),
            categories=rows.categories.numpy().astype(np.int32), levels=levels,
        )  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Jobs in the order of their draws, the larger sets first; those done are left out."""
    names = args.sets or [path.stem for path in ARRAYS.glob("*.npz")]
    names.sort(key=lambda name: -(ARRAYS / f"{name}.npz").stat().st_size)
    args.out.mkdir(parents=True, exist_ok=True)
    done = {json.loads(line).get("job") for path in SCRATCH.glob("grades-device/**/*.jsonl")
            for line in path.read_text().splitlines()}  # fmt: skip
    jobs = [
        (kind, name, draw) for draw in range(args.draws) for kind in args.kinds for name in names
    ]
    jobs = [job for job in jobs if "-".join(map(str, job)) not in done]
    end = time.time() + args.seconds
    if args.jobs == 1:
        for job in jobs:
            work((job, args.out, end))
        return
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for _ in pool.imap_unordered(work, [(job, args.out, end) for job in jobs]):
            pass


def work(task: tuple[tuple[str, str, int], Path, float]) -> None:
    (kind, name, draw), out, end = task
    if time.time() > end:
        return
    torch.set_num_threads(1)
    of = {"trees": of_trees, "nets": of_nets, "side": of_side}[kind]
    with (out / f"{os.getpid()}.jsonl").open("a") as file:

        def write(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        began = time.process_time()
        data = division(name, draw)
        last = began
        for variant, scores in of(data, draw):
            now = time.process_time()
            seconds, last = round(now - last, 2), now
            found = figures(scores, data.judge.grades.numpy(), data.n_grades)
            write({"kind": kind, "set": name, "draw": draw, "variant": variant,
                   "seconds": seconds, **found})  # fmt: skip
        write({"job": f"{kind}-{name}-{draw}", "seconds": round(time.process_time() - began, 1)})


def division(name: str, draw: int) -> Division:
    from rankfold.types import Graded

    arrays = np.load(ARRAYS / f"{name}.npz")
    parts = [torch.from_numpy(arrays[key]) for key in ("numbers", "categories", "grades")]
    rows = Graded(parts[0], parts[1], None, parts[2].long())
    n = len(rows)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(100 + draw))
    first, second = int(0.64 * n), int(0.73 * n)
    some = [rows.select(one) for one in (order[:first], order[first:second], order[second:])]
    return Division(*some, int(rows.grades.max()) + 1)


def dataset(data: Division, fit: Any, choose: Any | None) -> Any:
    """What methods read of a data set."""
    return SimpleNamespace(
        graded=lambda split: fit if split == "train" else choose,
        validation=choose, candidates=range(data.n_grades), columns=None,
    )  # fmt: skip


def halves(rows: Any) -> tuple[Any, Any]:
    half = len(rows) // 2
    return rows.part(0, half), rows.part(half, len(rows))


# ------------------------------------------------------------------------------- figures


def figures(scores: NDArray[np.float64], grades: NDArray[np.int64], n: int) -> dict[str, Any]:
    """TPR at the rates, and its mean up to twice each rate; means over thresholds."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    tprs, means = [], []
    for k in range(n - 1):
        positive = grades[order] > k
        wrong, right = np.cumsum(~positive)[ends], np.cumsum(positive)[ends]
        if not wrong[-1] or not right[-1]:
            continue
        fpr, tpr = np.append(0, wrong / wrong[-1]), np.append(0, right / right[-1])
        tprs.append([tpr[np.searchsorted(fpr, r * (1 + 1e-12), side="right") - 1] for r in RATES])
        grid = np.linspace(0, 1, 201)[1:]
        means.append([np.interp(2 * r * grid, fpr, tpr).mean() for r in RATES])
    return {"tpr": np.mean(tprs, axis=0).round(5).tolist(),
            "pauc": np.mean(means, axis=0).round(5).tolist()}  # fmt: skip


def expected(outputs: Any) -> NDArray[np.float64]:
    values = np.asarray(outputs, dtype=np.float64)
    if values.shape[1] == 1:
        return values[:, 0]
    return np.asarray((1 / (1 + np.exp(-values))).sum(axis=1))


def fit_of(outputs: Any, grades: Tensor) -> NDArray[np.float64]:
    """The likelihood of each round; outputs [rounds, n, K]."""
    side = (grades[:, None] > torch.arange(outputs.shape[2])).numpy()
    signed = np.where(side, -outputs, outputs)
    return np.asarray(-np.logaddexp(0, signed).sum(axis=2).mean(axis=1))


def quality_of(outputs: Any, grades: Tensor, n_grades: int) -> NDArray[np.float64]:
    """``pauc`` of each round, as cba-trees choose by it."""
    from rankfold.metrics.graded import GradedSpec, graded_mean

    negatives = int((grades == grades.min()).sum())
    spec = GradedSpec("pauc", min(1.0, max(2 * AIM, 10 / negatives)))
    return np.array(
        [graded_mean(torch.from_numpy(expected(one)), grades, n_grades, spec) for one in outputs]
    )


# ------------------------------------------------------------------------------- trees

Grown = tuple[Outputs, Outputs]  # of rows to choose by and rows to judge, [rounds, n, K]


def grow(
    data: Division, fit: Any, choose: Any, seed: int, *, low: float = 0.0, most: int = MOST,
    wait: int = WAIT, **parameters: Any,
) -> Grown:  # fmt: skip
    """Rounds until the likelihood of ``choose`` has not risen for ``wait`` rounds."""
    from rankfold.methods.ordinal import cba_trees, trees
    from rankfold.methods.ordinal.boosting import Booster

    config = cba_trees.CbaTreesConfig(low=low, members=1)
    settings = {**trees._parameters(config), **parameters}
    loss = cba_trees.low_fpr_logistic(dataset(data, fit, choose), config)
    one = Booster(fit, choose.join(data.judge), settings, loss.start)
    derivatives, n, rounds, best, at = loss.derivatives(0), len(choose), [], -np.inf, 0
    for number in range(most):
        one.grow(derivatives, 1000 * seed + number)
        values = one.outputs(validation=True).float().numpy()
        rounds.append(values)
        fit_now = float(fit_of(values[None, :n], choose.grades)[0])
        if fit_now > best:
            best, at = fit_now, number
        if number - at >= wait:
            break
    every = np.stack(rounds)
    return every[:, :n], every[:, n:]


def average(members: list[Grown]) -> Grown:
    rounds = min(len(one[0]) for one in members)
    chosen = np.mean([one[0][:rounds] for one in members], axis=0)
    return chosen, np.mean([one[1][:rounds] for one in members], axis=0)


def by_loss(members: list[Grown], grades: Tensor, n: int) -> NDArray[np.float64]:
    """The judged scores at the round of the best likelihood on the first n rows to choose by."""
    chosen, judged = average(members)
    return expected(judged[int(fit_of(chosen[:, :n], grades[:n]).argmax())])


def by_rate(members: list[Grown], grades: Tensor, n: int, n_grades: int) -> NDArray[np.float64]:
    from rankfold.methods.ordinal.trees import best_round

    chosen, judged = average(members)
    fits = fit_of(chosen[:, :n], grades[:n])
    best = int(fits.argmax()) + 1
    few = np.full(len(fits), -1.0)
    span = slice((best + 1) // 2 - 1, 2 * best)
    few[span] = quality_of(chosen[span, :n], grades[:n], n_grades)
    return expected(judged[best_round(np.stack([fits, few], axis=1)) - 1])


Variants = Iterator[tuple[str, NDArray[np.float64]]]


def of_trees(data: Division, draw: int) -> Variants:
    fit, choose = data.fit, data.choose
    half, grades = len(choose) // 2, data.choose.grades
    yield "lightgbm", directly(data, stops=True)
    yield "lightgbm as it is", directly(data, stops=False)
    seeds = [8 * draw + number for number in range(8)]
    a = [grow(data, fit, choose, seed) for seed in seeds]
    yield "trees, half", by_loss(a[:1], grades, half)
    yield "trees", by_loss(a[:1], grades, len(choose))
    for n in (2, 4, 8):
        yield f"trees {n}, half", by_loss(a[:n], grades, half)
        yield f"trees {n}", by_loss(a[:n], grades, len(choose))
    yield "trees 4 by rate, half", by_rate(a[:4], grades, half, data.n_grades)
    for folds in (4, 8):
        yield from of_folds(data, folds, draw)
    lows = {low: [grow(data, fit, choose, seeds[k], low=low)]
            for k, low in ((1, 0.1), (2, 0.2), (3, 0.3))}  # fmt: skip
    d = [a[0], *(one for some in lows.values() for one in some)]
    yield "cba-trees, half", by_rate(d, grades, half, data.n_grades)
    yield "cba-trees, half, by loss", by_loss(d, grades, half)
    yield "cba-trees", by_rate(d, grades, len(choose), data.n_grades)
    e = [grow(data, fit, choose, seed, low=1.0) for seed in seeds[:2]]
    yield "low 0 0 1 1", by_loss([*a[2:4], *e], grades, len(choose))
    yield "low 1 1", by_loss(e, grades, len(choose))
    yield "low .3", by_loss(lows[0.3], grades, len(choose))


def of_folds(data: Division, folds: int, draw: int) -> Variants:
    """Each member lacks a fold, on which its rounds are judged; all rows are fitted."""
    n = len(data.fit)
    fold = torch.randperm(n, generator=torch.Generator().manual_seed(draw)) % folds
    members = []
    for k in range(folds):
        mine, others = (fold == k).nonzero().flatten(), (fold != k).nonzero().flatten()
        out, judged = grow(data, data.fit.select(others), data.fit.select(mine), 50 + 8 * draw + k)
        members.append((mine, out, judged))
    rounds = min(len(out) for _, out, _ in members)
    whole = np.zeros((rounds, n, members[0][1].shape[2]), dtype=np.float32)
    for mine, out, _ in members:
        whole[:, mine.numpy()] = out[:rounds]
    judged = np.mean([one[:rounds] for _, _, one in members], axis=0)
    grades = data.fit.grades
    yield f"folds {folds}", by_loss([(whole, judged)], grades, n)
    if folds == 4:
        yield "folds 4 by rate", by_rate([(whole, judged)], grades, n, data.n_grades)


def directly(data: Division, *, stops: bool) -> NDArray[np.float64]:
    """LightGBM: with early stopping, or as a classifier with its defaults."""
    import lightgbm as library

    from rankfold.methods.ordinal.boosting import matrix

    n, first = data.n_grades, data.fit.numbers.shape[1]
    settings: dict[str, Any] = {
        "objective": "binary" if n == 2 else "multiclass", "num_class": 1 if n == 2 else n,
        "num_leaves": 31, "learning_rate": 0.05 if stops else 0.1, "num_threads": 1,
        "force_row_wise": True, "verbosity": -1, "deterministic": True,
    }  # fmt: skip
    places = [first + c for c in range(data.fit.categories.shape[1])]
    rows = data.fit if stops else data.fit.join(data.choose)
    train = library.Dataset(matrix(rows), rows.grades.numpy(), categorical_feature=places)
    if stops:
        other = library.Dataset(matrix(data.choose), data.choose.grades.numpy(), train,
                                categorical_feature=places)  # fmt: skip
        stop = [library.early_stopping(WAIT, verbose=False)]
        model = library.train(settings, train, 2000, valid_sets=[other], callbacks=stop)
    else:
        model = library.train(settings, train, 100)
    p = np.asarray(model.predict(matrix(data.judge), num_threads=1), dtype=np.float64)
    return p if n == 2 else p @ np.arange(n)


SIDE: dict[str, dict[str, Any]] = {
    "as it is": {},
    "columns 1": {"feature_fraction": 1.0},
    "nodes .7": {"feature_fraction": 1.0, "feature_fraction_bynode": 0.7},
    "nodes .4": {"feature_fraction": 1.0, "feature_fraction_bynode": 0.4},
    "extra": {"feature_fraction": 1.0, "extra_trees": True},
    "min 5": {"min_data_in_leaf": 5},
    "bag": {"bagging_fraction": 0.7, "bagging_freq": 1},
}


def of_side(data: Division, draw: int) -> Variants:
    """Settings of the trees, in two fits each."""
    grades, n = data.choose.grades, len(data.choose)
    for name, parameters in SIDE.items():
        two = [grow(data, data.fit, data.choose, 900 + 8 * draw + k, wait=60, most=400,
                    **parameters) for k in range(2)]  # fmt: skip
        yield f"{name}, first", by_loss(two[:1], grades, n)
        yield f"{name}, second", by_loss(two[1:], grades, n)
        yield f"{name}, both", by_loss(two, grades, n)


# ------------------------------------------------------------------------------- networks

NETS: dict[str, tuple[str, dict[str, Any], int]] = {
    "cba": ("cba", {"epochs": 10}, 4),
    "cba mixed": ("cba", {"epochs": 10, "encoder": "mixed"}, 4),
    "cba mixed 30": ("cba", {"epochs": 30, "encoder": "mixed"}, 4),
    "ce mixed": ("ce", {"epochs": 10, "encoder": "mixed"}, 2),
    "cba 30": ("cba", {"epochs": 30}, 4),
    "ce": ("ce", {"epochs": 10}, 2),
    "ce piecewise": ("ce", {"epochs": 10, "encoder": "piecewise"}, 4),
    "ce piecewise 30": ("ce", {"epochs": 30, "encoder": "piecewise"}, 4),
    "ce 30": ("ce", {"epochs": 30}, 2),
    "cba 60": ("cba", {"epochs": 60}, 4),
    "cba 60 lr .004": ("cba", {"epochs": 60, "lr": 0.004}, 2),
    "ce piecewise 60": ("ce", {"epochs": 60, "encoder": "piecewise"}, 2),
    "cba 60 dropout .5": ("cba", {"epochs": 60, "dropout": 0.5}, 2),
    "cba 120": ("cba", {"epochs": 120}, 2),
}
LARGE = 20_000  # rows to fit, above which longer fits are left out


def of_nets(data: Division, draw: int) -> Variants:
    for name, (method, settings, members) in NETS.items():
        scores: list[NDArray[np.float64]] = []
        if settings["epochs"] > 10 and len(data.fit) > LARGE:
            continue
        for number in range(members):
            scores.append(network(data, method, settings, 10 * draw + number))
            yield f"{name}, {number}", scores[-1]
        for n in (2, 4):
            if n <= members:
                yield f"{name}, mean of {n}", np.mean(scores[:n], axis=0)


def network(
    data: Division, method: str, settings: dict[str, Any], seed: int
) -> NDArray[np.float64]:
    from rankfold.distributed.collectives import SINGLE_PROCESS
    from rankfold.methods import METHODS
    from rankfold.types import Run

    one = METHODS[method]
    rng = torch.Generator().manual_seed(seed)
    context = Run(rng, torch.device("cpu"), SINGLE_PROCESS)
    model = None
    for step in one.fit(dataset(data, data.fit, None), one.config(**settings), context):
        model = step.model or model
    assert model is not None
    rows = one.open(model).rows
    assert rows is not None
    return rows(data.judge).double().numpy()


# ------------------------------------------------------------------------------- the table


def table(out: Path) -> None:
    """Means over sets and draws of the differences to the first variant of each kind."""
    lines = [json.loads(line) for path in sorted(out.glob("**/*.jsonl"))
             for line in path.read_text().splitlines()]  # fmt: skip
    for kind in KINDS:
        found: dict[str, dict[tuple[str, int], list[float]]] = {}
        for one in lines:
            if one.get("kind") == kind:
                found.setdefault(one["variant"], {})[one["set"], one["draw"]] = (
                    one["tpr"] + one["pauc"]
                )
        if not found:
            continue
        first = next(iter(found))
        print(
            f"\n{kind}: differences to {first} {np.mean(list(found[first].values()), 0).round(3)}"
        )
        for variant, values in found.items():
            both = sorted(set(values) & set(found[first]))
            away = np.array([np.subtract(values[key], found[first][key]) for key in both])
            sets = sorted({key[0] for key in both})
            each = np.array([away[[key[0] == name for key in both]].mean(axis=0) for name in sets])
            error = each.std(axis=0) / max(1, len(sets) - 1) ** 0.5
            text = " ".join(f"{m:+.4f}({e:.3f})" for m, e in zip(each.mean(0), error, strict=True))
            print(f"{variant:28} {len(both):4} {text}")


if __name__ == "__main__":
    main()
