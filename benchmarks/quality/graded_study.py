"""What the parts of graders are worth, on rows that chose nothing.

    python -m benchmarks.quality.graded export
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
from benchmarks.quality import graded

OUT = SCRATCH / "graded-study"
DEVELOPMENT = (
    "attrition caravan lending visits stops diamonds claims lectures flights fraud crashes taxis "
    "accidents wines drifting tests skills forests moods tills churn strokes endgames words"
)
ROWS, MORE = 14_000, {"fraud": 60_000, "flights": 40_000, "drifting": 40_000, "tills": 40_000}
RATES, AIM = (0.001, 0.01, 0.05, 0.1), 0.01
WAIT, MOST = 100, 1000
KEPT = ("lightgbm", "trees 4", "trees 1", "fh mixed, mean", "cba, 0", "cba, 1", "ce, 0", "ce, 1")
Outputs = NDArray[np.float32]


class Division(NamedTuple):
    """The rows of a draw."""

    fit: Any
    choose: Any
    judge: Any
    n_grades: int
    levels: tuple[int, ...]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("task", choices=["run", "table"])
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--kinds", nargs="+")
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    if args.task == "table":
        table(args.out)
    else:
        run(args)


def run(args: argparse.Namespace) -> None:
    """Jobs in the order of their draws, the larger sets first; those done are left out."""
    names = args.sets or DEVELOPMENT.split()
    names.sort(key=lambda name: -(graded.ARRAYS / f"{name}.npz").stat().st_size)
    args.out.mkdir(parents=True, exist_ok=True)
    done = {tuple(one["job"]) for one in lines_of(OUT) if "job" in one}
    jobs = [(kind, name, draw) for draw in range(args.draws)
            for kind in args.kinds or kinds() for name in names]  # fmt: skip
    jobs.sort(key=lambda job: job[0] != "base")  # the longest ones begin first
    jobs = [job for job in jobs if job not in done]
    end, kept = time.time() + args.seconds, {}
    with (
        multiprocessing.get_context("spawn").Pool(args.jobs) as pool,
        (args.out / "lines.jsonl").open("a") as file,
    ):
        for lines, outputs in pool.imap_unordered(work, [(job, end) for job in jobs]):
            kept |= outputs
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
    for number, part in enumerate(np.array_split(sorted(kept), 4)):
        np.savez_compressed(args.out / f"kept-{number}.npz", **{key: kept[key] for key in part})


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("**/*.jsonl"))
            for line in path.read_text().splitlines()]  # fmt: skip


Kept = dict[str, Outputs]


def work(task: tuple[tuple[str, str, int], float]) -> tuple[list[dict[str, Any]], Kept]:
    (kind, name, draw), end = task
    lines: list[dict[str, Any]] = []
    kept: Kept = {}
    if time.time() > end:
        return lines, kept
    torch.set_num_threads(1)
    began = last = time.process_time()
    data = division(name, draw)
    try:
        every = list(variants(kind, data, draw))
    except Exception as error:  # the others go on
        return [{"failed": [kind, name, draw], "error": repr(error)}], kept
    for variant, grown in every:
        now = time.process_time()
        seconds, last = round(now - last, 2), now
        found = figures(expected(grown.judged), data.judge.grades.numpy(), data.n_grades)
        one = {"kind": kind.split()[0], "set": name, "draw": draw, "variant": variant}
        lines.append({**one, "seconds": seconds, **found})
        if variant in KEPT:
            kept[f"{name}/{draw}/{variant}/choose"] = grown.chosen
            kept[f"{name}/{draw}/{variant}/judge"] = grown.judged
    lines.append({"job": [kind, name, draw], "seconds": round(time.process_time() - began, 1)})
    return lines, kept


def kinds() -> list[str]:
    """What a job computes: several variants for the same division."""
    return ["base", *(f"nets {name}" for name in NETS), *(f"side {name}" for name in CHANGED)]


def variants(kind: str, data: Division, draw: int) -> Variants:
    room, _, name = kind.partition(" ")
    if room == "base":
        return of_base(data, draw)
    return of_side(name, data, draw) if room == "side" else of_nets(name, data, draw)


def division(name: str, draw: int) -> Division:
    """Rows of train and validation; the first ones of an order that the draw gives."""
    data = graded.load(name)
    rows = data.graded("train").join(data.graded("validation"))
    n = min(len(rows), MORE.get(name, ROWS))
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(100 + draw))[:n]
    first, second = int(0.64 * n), int(0.73 * n)
    some = [rows.select(one) for one in (order[:first], order[first:second], order[second:])]
    assert data.columns is not None
    return Division(*some, len(data.candidates), tuple(map(len, data.columns.levels.values())))


def dataset(data: Division) -> Any:
    """What methods read of a data set without validation rows."""
    return SimpleNamespace(
        graded=lambda _split: data.fit, validation=None, candidates=range(data.n_grades),
        columns=SimpleNamespace(levels={str(k): range(n) for k, n in enumerate(data.levels)}),
    )  # fmt: skip


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


# ------------------------------------------------------------------------------- trees


class Grown(NamedTuple):
    """Outputs of rows to choose by and rows to judge."""

    chosen: Outputs  # [rounds, n, K]
    judged: Outputs


def grow(
    data: Division, seed: int, *, low: float = 0.0, most: int = MOST, wait: int = WAIT,
    **parameters: Any,
) -> Grown:  # fmt: skip
    """Rounds until the likelihood of ``choose`` has not risen for ``wait`` rounds."""
    from rankfold.methods.ordinal import cba_trees, trees
    from rankfold.methods.ordinal.boosting import Booster

    config = cba_trees.CbaTreesConfig(low=low, members=1)
    settings = {**trees._parameters(config), **parameters}
    loss = cba_trees.low_fpr_logistic(dataset(data), config)
    one = Booster(data.fit, data.choose.join(data.judge), settings, loss.start)
    derivatives, n, rounds, best, at = loss.derivatives(0), len(data.choose), [], -np.inf, 0
    for number in range(most):
        one.grow(derivatives, 1000 * seed + number)
        values = one.outputs(validation=True).float().numpy()
        rounds.append(values)
        fit_now = float(fit_of(values[None, :n], data.choose.grades)[0])
        if fit_now > best:
            best, at = fit_now, number
        if number - at >= wait:
            break
    every = np.stack(rounds)
    return Grown(every[:, :n], every[:, n:])


def average(members: list[Grown]) -> Grown:
    rounds = min(len(one.chosen) for one in members)
    parts = zip(*((one.chosen[:rounds], one.judged[:rounds]) for one in members), strict=True)
    return Grown(*(np.mean(part, axis=0) for part in parts))


def at_best(members: list[Grown], grades: Tensor, n: int) -> Grown:
    """At the round of the best likelihood on the first n rows to choose by; [n, K] each."""
    mean = average(members)
    best = int(fit_of(mean.chosen[:, :n], grades[:n]).argmax())
    return Grown(mean.chosen[best], mean.judged[best])


Variants = Iterator[tuple[str, Grown]]

CHANGED: dict[str, dict[str, Any]] = {
    "as it is": {},
    "lr .02": {"learning_rate": 0.02, "most": 2500, "wait": 200},
    "15 leaves": {"num_leaves": 15},
    "63 leaves": {"num_leaves": 63},
    "leaves of 5": {"min_data_in_leaf": 5},
    "leaves of 60": {"min_data_in_leaf": 60},
    "reg 10": {"lambda_l2": 10.0},
    "bins 1000": {"max_bin": 1000},
    "extra": {"extra_trees": True},
    "rows .6": {"bagging_fraction": 0.6, "bagging_freq": 1},
    "columns .4": {"feature_fraction_bynode": 0.4},
    "levels 50": {"cat_smooth": 50.0, "cat_l2": 50.0},
    "levels 100 each": {"min_data_per_group": 20, "cat_smooth": 30.0},
    "smooth 10": {"path_smooth": 10.0},
    "low 1": {"low": 1.0},
}


def of_base(data: Division, draw: int) -> Variants:
    grades, n = data.choose.grades, len(data.choose)
    yield "lightgbm", directly(data, stops=True)
    members = [grow(data, 8 * draw + number) for number in range(8)]
    for k in (1, 2, 4, 8):
        yield f"trees {k}, half", at_best(members[:k], grades, n // 2)
        yield f"trees {k}", at_best(members[:k], grades, n)


def of_side(name: str, data: Division, draw: int) -> Variants:
    """A change of the trees in two fits."""
    parameters = CHANGED[name]
    if "cat_smooth" in parameters and data.fit.categories.shape[1] == 0:
        return
    two = [grow(data, 8 * draw + k, **parameters) for k in range(2)]
    yield name, at_best(two, data.choose.grades, len(data.choose))


def directly(data: Division, *, stops: bool) -> Grown:
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

    def odds(rows: Any) -> Outputs:
        p = np.asarray(model.predict(matrix(rows), num_threads=1), dtype=np.float64)
        classes = np.stack([1 - p, p], axis=1) if n == 2 else p
        higher = classes[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
        lower = classes.cumsum(axis=1)[:, :-1]
        return np.asarray(np.log(higher.clip(1e-12) / lower.clip(1e-12)), dtype=np.float32)

    return Grown(odds(data.choose), odds(data.judge))


# ------------------------------------------------------------------------------- networks

NETS: dict[str, tuple[str, dict[str, Any]]] = {
    "ce": ("ce", {}),
    "ce mixed": ("ce", {"encoder": "mixed"}),
    "ce mixed, dropout .3": ("ce", {"encoder": "mixed", "dropout": 0.3}),
    "fh mixed": ("fh", {"encoder": "mixed", "dropout": 0.3}),
    "cba": ("cba", {}),
    "cba, dropout .1": ("cba", {"dropout": 0.1}),
    "cba at .05": ("cba", {"fpr": 0.05}),
    "cba 3 at .05": ("cba", {"fpr": 0.05, "classes": 3.0}),
    "cba 3": ("cba", {"classes": 3.0}),
    "cba 10": ("cba", {"classes": 10.0}),
    "cba 1000": ("cba", {"classes": 1000.0}),
    "cba of classes": ("cba", {"likelihood": "classes"}),
    "fh mixed, dropout .1": ("fh", {"encoder": "mixed", "dropout": 0.1}),
    "heads .1": ("heads", {"classes": 10.0}),
    "heads 1": ("heads", {"classes": 1.0}),
    "heads .3": ("heads", {"classes": 3.0}),
}


def of_nets(name: str, data: Division, draw: int) -> Variants:
    method, settings = NETS[name]
    each = [network(data, method, settings, 10 * draw + number) for number in range(2)]
    for number, one in enumerate(each):
        yield f"{name}, {number}", one
    yield f"{name}, mean", Grown(*(np.mean(part, axis=0) for part in zip(*each, strict=True)))


def network(data: Division, method: str, settings: dict[str, Any], seed: int) -> Grown:
    """Outputs of a network: log-odds of each threshold, or one score."""
    from rankfold.distributed.collectives import SINGLE_PROCESS
    from rankfold.methods import METHODS
    from rankfold.methods.ordinal import cba, training
    from rankfold.types import Run

    context = Run(torch.Generator().manual_seed(seed), torch.device("cpu"), SINGLE_PROCESS)
    recipe = training.Recipe(lambda n: n - 1, heads_loss, lambda out, _: out, columns="mixed")
    if method == "fh":
        recipe = training.Recipe(lambda n: n - 1, fh_loss, lambda out, _: out, columns="mixed")
    of_config = cba.CbaConfig if method == "heads" else METHODS[method].config
    fit = (
        training.fit(method, recipe, dataset(data), of_config(**settings), context)
        if method in ("heads", "fh")
        else METHODS[method].fit(dataset(data), of_config(**settings), context)
    )
    model = None
    for step in fit:
        model = step.model or model
    assert model is not None
    opened = (
        training.open_model(recipe, model)
        if method in ("heads", "fh")
        else METHODS[method].open(model)
    )
    parts = [opened.rows(rows).numpy() for rows in (data.choose, data.judge)]
    return Grown(*(part.reshape(len(part), -1) for part in parts))


def fh_loss(context: Any) -> Any:
    from rankfold.methods.ordinal import classifiers, training

    return training.BatchLoss(
        lambda batch: classifiers._binary_losses(batch.outputs, batch.grades, context.config)
    )


def heads_loss(context: Any) -> Any:
    """An output per threshold with its low-FPR risk and its likelihood."""
    from torch.nn import functional as F

    from rankfold.losses.low_fpr import above, default_sigma, low_fpr_loss, rank_weights
    from rankfold.methods.ordinal import cba, training

    config = context.config
    lowest = int((context.rows.grades == context.rows.grades.min()).sum())
    cache, sigma = cba.fill_cache(context), config.sigma or default_sigma(lowest, config.fpr)

    def losses(batch: Any) -> Tensor:
        cache.push(batch.vectors, batch.rows)
        positive = above(batch.grades, context.n_grades)
        with torch.no_grad():
            weights = context.module.head.weight.detach()
            ranks = torch.stack([
                cache.ranks(batch.vectors, one, by_likeness=False)[k]
                for k, one in enumerate(weights)
            ])  # fmt: skip
            shares = rank_weights(ranks, ~positive, config.fpr, sigma)
        risk = low_fpr_loss(batch.outputs.T, positive, torch.ones_like(positive), shares)
        odds = F.binary_cross_entropy_with_logits(
            batch.outputs, positive.T.float(), reduction="none"
        )
        return risk + config.classes * odds.sum(1).mean()

    return training.BatchLoss(losses, cache)


# ------------------------------------------------------------------------------- the table


def table(out: Path) -> None:
    """Means over sets and draws of the differences to one variant."""
    lines = [one for one in lines_of(out) if "variant" in one]
    for kind, first in (("base", "lightgbm"), ("side", "as it is"), ("nets", "ce")):
        found: dict[str, dict[tuple[str, int], list[list[float]]]] = {}
        for one in lines:
            variant = one["variant"]
            if kind == "nets" and variant[-3:] in (", 0", ", 1"):
                variant = variant[:-3]
            if one["kind"] == kind or variant == first:
                both = found.setdefault(variant, {}).setdefault((one["set"], one["draw"]), [])
                both.append(one["tpr"] + one["pauc"])
        if first not in found:
            continue
        of_first = {key: np.mean(each, axis=0) for key, each in found[first].items()}
        print(f"\n{kind}: differences to {first} {np.mean(list(of_first.values()), 0).round(3)}")
        for variant, values in found.items():
            both_keys = sorted(set(values) & set(of_first))
            away = np.array([np.mean(values[key], axis=0) - of_first[key] for key in both_keys])
            sets = sorted({key[0] for key in both_keys})
            each = np.array(
                [away[[key[0] == name for key in both_keys]].mean(axis=0) for name in sets]
            )
            error = each.std(axis=0) / max(1, len(sets) - 1) ** 0.5
            text = " ".join(f"{m:+.4f}({e:.3f})" for m, e in zip(each.mean(0), error, strict=True))
            print(f"{variant:24} {len(both_keys):4} {text}")


if __name__ == "__main__":
    main()
