"""Ordinal methods at low false-positive rates, all tuned with the same budget.

    python -m benchmarks.quality.ordinal export [--data DIR]      both sets, prepared, as arrays
    python -m benchmarks.quality.ordinal run [--data-sets ...] [--methods ...] [--jobs N]
    python -m benchmarks.quality.ordinal untuned [--data-sets ...] [--methods ...] [--jobs N]
    python -m benchmarks.quality.ordinal again [--methods ...] [--jobs N]
    python -m benchmarks.quality.ordinal table
    python -m benchmarks.quality.ordinal paired --data-sets retinamnist --methods cba ce [--jobs N]

Every method has the same encoder, loop and batch size, and the same number of random settings
(``TRIALS``), drawn from its space with one seed. The first setting is the default, with the same
dropout for all. A setting is scored after its last epoch by TPR at the rate: on fars on the
validation rows; on retinamnist, whose 120 validation rows are too few, by cross-validation over
train and validation in thirds that are drawn four times. The best setting is fitted on train and
validation with five seeds and scored on test. A method with the rate among its settings is tuned
and fitted per rate. Otherwise the rates share the trials, and the selection is made per rate.

``untuned`` is ``fit`` with nothing but the rate: defaults, and the epoch that validation selects,
or the last one where validation is small. ``run`` requires only torch and numpy. Both write each
figure at once and skip existing ones. ``table`` also shows TPR by threshold at the lowest rate.
``again`` scores the first and the selected settings on fresh thirds of retinamnist's train and
validation, each with its own seed: divisions that selected nothing, although of the same rows, and
more rows than test has. ``paired`` refits the selection for the lowest rate, and compares methods
with the first one named on resampled test rows, the same for all. Where many processes share one
GPU, CUDA's MPS helps (``nvidia-cuda-mps-control -d``): a fit of ``cba`` took 5.7 s among 17 without
it and 2.1 s among 18 with it, on two days.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import multiprocessing
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from functools import cache, reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.paths import RESULTS, SCRATCH, SHARED
from rankfold import config as settings_of
from rankfold.distributed.collectives import SingleProcess
from rankfold.methods import METHODS
from rankfold.metrics.graded import (
    graded_mean,
    graded_values,
    parse_graded,
    passed_by_grade,
    values_of,
)
from rankfold.training.early_stopping import timed
from rankfold.types import Columns, Dataset, Graded, Model, Run, Vocabulary

ARRAYS, OUT = SCRATCH / "graded", RESULTS / "quality" / "ordinal"
FOLDERS = SCRATCH / "data"
SPLITS = ("train", "validation", "test")
RATES = (0.01, 0.05, 0.1)
TRIALS, SEEDS, FOLDS, PARTITIONS, ANEW = 12, 5, 3, 4, 8
SAMPLES = 400  # of the test rows, to measure chance
METRICS = tuple(f"{name}@fpr={rate}" for name in ("tpr", "tpr-closest") for rate in RATES)
METRICS += ("pauc@fpr=0.1", "auc", "order")
Row = dict[str, Any]

FIRST = {"dropout": 0.1}  # for settings without a value: the same for all methods
COMMON = {"lr": (0.0005, 0.001, 0.002, 0.004, 0.008), "dropout": (0.0, 0.1, 0.3, 0.5)}
COMMON |= {"weight_decay": (1e-4, 1e-2)}
OWN: dict[str, dict[str, tuple[Any, ...]]] = {  # settings of single methods
    "cba": {"sigma": (0.02, 0.05, 0.1, 0.35), "classes": (0.3, 1.0, 3.0)},
    "cba-paper": {"sigma": (0.02, 0.05, 0.1, 0.35)},
    "focal": {"focus": (0.5, 1.0, 2.0, 4.0)},
    "pauc": {"temperature": (0.1, 0.3, 1.0, 3.0)},
    "eban": {"dual_lr": (1e-3, 1e-2, 1e-1)},
}
FIXED: dict[str, Row] = {
    "cba-paper": {"ranks": "likeness", "cache_weights": "equal", "classes": 0.0},
}
NAMES = ("cba", "cba-paper", "ce", "focal", "soft-label", "nnrank", "fh", "fh-auc", "ddag", "eban")
NAMES += ("pauc",)
PEERS = ("lightgbm", "mord", "libauc-sopas", "libauc-sopa")  # peers/ordinal.py runs them
TAKES_RATE = ("cba", "cba-paper", "eban")
OF_DATA: dict[str, tuple[Row, dict[str, tuple[Any, ...]]]] = {  # fixed, and to be tuned
    "fars": ({"batch_size": 512}, {"epochs": (6, 12, 24)}),
    "retinamnist": ({"batch_size": 64, "flips": "both"}, {"epochs": (15, 30, 60)}),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("task", choices=["export", "run", "untuned", "again", "table", "paired"])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with fars")
    parser.add_argument("--data-sets", nargs="+", default=list(OF_DATA), choices=list(OF_DATA))
    parser.add_argument("--methods", nargs="+", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    if args.task == "export":
        for name in args.data_sets:
            export(name, args.data)
    elif args.task == "table":
        print(table(args.out))
    elif args.task == "again":
        again(args.methods, args.device, args.out, args.jobs)
    elif args.task == "paired":
        for name in args.data_sets:
            loaded = paired(name, args.methods, args.device, args.out, args.jobs)
            (args.out / f"paired-{name}.md").write_text(loaded)
            print(loaded, flush=True)
    else:
        units = [
            (data, name, rate, args.device, args.out)
            for data in args.data_sets
            for name in args.methods
            if args.task == "run" or name not in FIXED  # which are settings of another method
            for rate in (RATES if name in TAKES_RATE else (None,))
        ]
        with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
            for _ in pool.imap_unordered(unit if args.task == "run" else untuned, units):
                pass


# ---------------------------------------------------------------------------------- data


def export(name: str, shared: Path) -> None:
    """All splits of a set in one file; prepares the set if needed."""
    import rankfold as rf

    folder = FOLDERS / name
    if not folder.exists():
        FOLDERS.mkdir(parents=True, exist_ok=True)
        given = [shared / "fars" / "fars.dat.zst"] if name == "fars" else []  # or it is bundled
        rf.prepare(*given, source=name, out=folder)
    data = rf.load_data(folder)
    write_arrays(data, ARRAYS / f"{name}.npz")


def write_arrays(data: Dataset, path: Path, parts: dict[str, Graded] | None = None) -> None:
    """The rows of all splits, or other ``parts``, in one file."""
    kept: dict[str, Any] = {}
    for split, rows in (parts or {s: data.graded(s) for s in SPLITS}).items():  # type: ignore[arg-type]
        for field in ("numbers", "categories", "images", "grades"):
            value = getattr(rows, field)
            if value is not None:
                kept[f"{split}_{field}"] = value.numpy()
    levels = {} if data.columns is None else data.columns.levels
    kept["levels"] = np.array([len(values) for values in levels.values()], dtype=np.int64)
    kept["n_grades"] = np.array(len(data.candidates))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **kept)


def load(name: str, folder: Path | None = None) -> Dataset:
    loaded = np.load((folder or ARRAYS) / f"{name}.npz", allow_pickle=False)

    def part(split: str) -> Graded:
        get = {n: f"{split}_{n}" for n in ("numbers", "categories", "images", "grades")}
        return Graded(*(torch.from_numpy(loaded[n]) if n in loaded else None for n in get.values()))  # type: ignore[arg-type]

    train, validation, test = map(part, SPLITS)
    n_grades, sizes = int(loaded["n_grades"]), loaded["levels"].tolist()
    levels = {str(place): tuple(map(str, range(size))) for place, size in enumerate(sizes)}
    names = tuple(map(str, range(train.numbers.shape[1])))
    keys, grades = Vocabulary.numbered(0), Vocabulary.numbered(n_grades)
    return Dataset("graded", train, validation, test, keys, grades, columns=Columns(names, levels))


def fingerprint(name: str) -> str:
    """Fingerprint of the rows of all splits."""
    loaded, hashed = np.load(ARRAYS / f"{name}.npz", allow_pickle=False), hashlib.sha256()
    for key in sorted(loaded):
        hashed.update(f"{key} {loaded[key].dtype} {loaded[key].shape}".encode())
        hashed.update(loaded[key].tobytes())
    return hashed.hexdigest()[:16]


def splits_for_tuning(data: Dataset) -> list[Dataset]:
    """The splits for trials: validation, or thirds if that is small."""
    if len(data.graded("validation")) > 2000:
        return [data]
    return thirds(data, range(PARTITIONS))


def splits_anew(data: Dataset) -> list[Dataset]:
    """Thirds of the same rows that selected no setting."""
    return thirds(data, range(PARTITIONS, PARTITIONS + ANEW))


def thirds(data: Dataset, partitions: Iterable[int]) -> list[Dataset]:
    """Train and validation in parts that rotate as validation; drawn several times."""
    rows, loaded = data.graded("train").join(data.graded("validation")), []
    for partition in partitions:
        places = spread(rows.grades, FOLDS, torch.Generator().manual_seed(partition))
        parts = [rows.select((places == fold).nonzero().flatten()) for fold in range(FOLDS)]
        for fold, part in enumerate(parts):
            first, *others = parts[:fold] + parts[fold + 1 :]
            loaded.append(replace(data, train=reduce(Graded.join, others, first), validation=part))
    return loaded


def spread(grades: Tensor, parts: int, rng: torch.Generator) -> Tensor:
    """A part for each row, with each grade spread evenly; [n]."""
    order = torch.randperm(len(grades), generator=rng)
    loaded = torch.zeros_like(order)
    for grade in grades.unique().tolist():
        mine = order[grades[order] == grade]
        loaded[mine] = torch.arange(len(mine)) % parts
    return loaded


# ---------------------------------------------------------------------------------- study


def unit(job: tuple[str, str, float | None, str, Path]) -> None:
    """Tune one method on one set, for one rate or for all, then test."""
    data_name, name, rate, device, out = job
    torch.set_num_threads(1)
    path = result(out, data_name, name, rate)
    loaded = begun(path, data_name)
    data = load(data_name)
    tried = splits_for_tuning(data)
    check_splits(loaded, len(tried), path)
    for trial in trials(data_name, name):
        if any(trial == known["settings"] for known in loaded["trials"]):
            continue
        began = time.perf_counter()
        parts = [fitted(name, part, trial, rate, 0, device, "validation") for part in tried]
        seconds = round(time.perf_counter() - began, 1)
        loaded["trials"].append({"settings": trial, "seconds": seconds, **averaged(parts)})
        keep(path, loaded)
        shown = {m: round(loaded["trials"][-1][m], 4) for m in METRICS[: len(RATES)]}
        print(data_name, name, rate, trial, shown, flush=True)
    whole = replace(data, train=data.graded("train").join(data.graded("validation")))
    for wanted in RATES if rate is None else (rate,):
        best = max(loaded["trials"], key=lambda row: row[at(wanted)])["settings"]
        kept = loaded["tests"].get(str(wanted))
        if kept is None or kept["settings"] != best:
            kept = loaded["tests"][str(wanted)] = {"settings": best, "seeds": []}
        for seed in range(len(kept["seeds"]), SEEDS):
            same = [t for t in loaded["tests"].values() if t["settings"] == best]
            done = next((t["seeds"][seed] for t in same if len(t["seeds"]) > seed), None)
            row = done or fitted(name, whole, best, rate, seed, device, "test")
            kept["seeds"].append(row)
            keep(path, loaded)
        mean = np.mean([row[at(wanted)] for row in kept["seeds"]])
        print(data_name, name, "TEST", wanted, best, round(float(mean), 4), flush=True)


def again(names: list[str], device: str, out: Path, jobs: int) -> None:
    """Score the first and the chosen settings on fresh thirds of retinamnist."""
    data, waiting = "retinamnist", []
    for name in names:
        for rate in RATES if name in TAKES_RATE else (None,):
            for settings in to_judge(begun(result(out, data, name, rate), data)):
                splits = range(ANEW * FOLDS)
                waiting.append([(data, name, settings, rate, n, device) for n in splits])
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        done = pool.imap(judged, itertools.chain(*waiting), chunksize=1)
        for (_, name, settings, rate, *_), *_ in waiting:
            parts = list(itertools.islice(done, ANEW * FOLDS))
            path = result(out, data, name, rate)
            add_judged(path, begun(path, data), settings, parts)


def to_judge(loaded: Row) -> list[Row]:
    """The first and the chosen settings, once each, without those scored before."""
    some, known = [loaded["trials"][0], *loaded["tests"].values()], loaded.get("again", [])
    left: list[Row] = []
    for settings in (row["settings"] for row in some):
        if settings not in left and all(row["settings"] != settings for row in known):
            left.append(settings)
    return left


def add_judged(path: Path, loaded: Row, settings: Row, parts: list[Row]) -> None:
    loaded.setdefault("again", []).append({"settings": settings, **averaged(parts)})
    keep(path, loaded)
    shown = {m: round(loaded["again"][-1][m], 4) for m in METRICS[: len(RATES)]}
    print(path.stem, settings, shown, flush=True)


def judged(job: tuple[str, str, Row, float | None, int, str]) -> Row:
    data, name, settings, rate, number, device = job
    torch.set_num_threads(1)
    part = kept_splits(data)[number]
    return fitted(name, part, settings, rate, number, device, "validation")


@cache
def kept_splits(data_name: str) -> list[Dataset]:
    return splits_anew(load(data_name))


def untuned(job: tuple[str, str, float | None, str, Path]) -> None:
    """Test figures of the defaults, at the epoch that validation chose."""
    import rankfold as rf

    data_name, name, rate, device, out = job
    torch.set_num_threads(1)
    path = result(out, data_name, f"untuned-{name}", rate)
    loaded, data = begun(path, data_name), load(data_name)
    rows = data.graded("test")
    given: Row = {"device": device} if rate is None else {"device": device, "fpr": rate}
    seeds = loaded["tests"].setdefault("untuned", {"seeds": []})["seeds"]
    for seed in range(len(seeds), SEEDS):
        began = time.perf_counter()
        grader = rf.fit(name, data, seed=seed, **given)
        assert isinstance(grader, rf.Grader)
        seconds = round(time.perf_counter() - began, 1)
        figures = tested(grader.score(rows), rows, len(data.candidates))
        chosen = {key: grader.model.notes[key] for key in ("metric", "chosen")}
        seeds.append({**figures, **chosen, "seconds": seconds})
        keep(path, loaded)
        print(data_name, name, rate, seed, figures, chosen, flush=True)


def result(out: Path, data_name: str, name: str, rate: float | None) -> Path:
    return out / f"{name}-{data_name}{'' if rate is None else f'-{rate}'}.json"


def begun(path: Path, data_name: str) -> Row:
    """The figures of an earlier run on the same rows, or an empty result."""
    rows = fingerprint(data_name)
    if not path.exists():
        return {"rows": rows, "trials": [], "tests": {}}
    loaded: Row = json.loads(path.read_text())
    if loaded.get("rows") != rows:
        raise SystemExit(f"the rows of {path} differ from the export: remove it to start again")
    return loaded


def averaged(parts: list[Row]) -> Row:
    """Means over splits; for several splits the TPR of each, by rate and threshold."""
    means: Row = {m: float(np.mean([row[m] for row in parts])) for m in METRICS}
    if len(parts) > 1:
        shown = METRICS[: len(RATES)]
        means["by_split"] = {m: [round(row[m], 4) for row in parts] for m in shown}
        means["thresholds"] = (
            np.mean([row["thresholds"] for row in parts], axis=0).round(4).tolist()
        )
    return means


def check_splits(loaded: Row, n: int, path: Path) -> None:
    """Trials of an earlier run must have the same number of splits."""
    if loaded["trials"] and loaded.get("splits", 1) != n:
        raise SystemExit(f"{path} has trials on other splits: remove it to start again")
    loaded["splits"] = n


def trials(data_name: str, name: str) -> list[Row]:
    """The settings to try, all different; the first is the default."""
    fixed, own = OF_DATA[data_name]
    rng = np.random.default_rng(0)
    loaded = [{**fixed, **FIXED.get(name, {})}]
    number = 0
    while len(loaded) < TRIALS:
        number += 1
        drawn = {
            key: values[rng.integers(len(values))] for key, values in {**COMMON, **own}.items()
        }
        seed = np.random.default_rng([1, number])  # separate, so that the shared draws stay equal
        extra = {
            key: values[seed.integers(len(values))] for key, values in OWN.get(name, {}).items()
        }
        trial = {**loaded[0], **drawn, **extra}
        if trial not in loaded:
            loaded.append(trial)
    return loaded


def fitted(
    name: str, data: Dataset, trial: Row, rate: float | None, seed: int, device: str, split: str
) -> Row:
    """The metrics of the last epoch on a split, and the seconds of training."""
    scores, seconds = scored(name, data, trial, rate, seed, device, split)
    figure, rows = (tested if split == "test" else measured), data.graded(split)  # type: ignore[arg-type]
    return {**figure(scores, rows, len(data.candidates)), "seconds": round(seconds, 1)}


def scored(
    name: str, data: Dataset, trial: Row, rate: float | None, seed: int, device: str, split: str
) -> tuple[Tensor, float]:
    """Scores of a split's rows by the last epoch, and the seconds of training."""
    method = METHODS[name.removesuffix("-paper")]
    given = {**FIRST, **trial} if rate is None else {**FIRST, **trial, "fpr": rate}
    given = {key: value for key, value in given.items() if key in names_of(method.config)}
    run = Run(torch.Generator().manual_seed(seed), torch.device(device), SingleProcess())
    model, seconds = last(method.fit(data, settings_of.build(method.config, given), run))
    score = method.open(model).rows
    assert score is not None
    return score(data.graded(split)), seconds  # type: ignore[arg-type]


def measured(scores: Tensor, rows: Graded, n_grades: int) -> Row:
    """All metrics, and the TPR at each threshold for the lowest rate."""
    given = scores, rows.grades, n_grades
    values: Row = {name: graded_mean(*given, parse_graded(name)) for name in METRICS}
    at = graded_values(*given, parse_graded(METRICS[0]))
    return {**values, "thresholds": [round(float(value), 4) for value in at]}


def tested(scores: Tensor, rows: Graded, n_grades: int) -> Row:
    """The same, with standard errors over test rows."""
    given = scores, rows, n_grades
    return {**measured(*given), "rows_error": errors_of_rows(*given)}


def errors_of_rows(scores: Tensor, rows: Graded, n_grades: int) -> dict[str, float]:
    """Standard errors of TPR over rows, by a bootstrap."""
    names = METRICS[: len(RATES)]
    specs, rng, values = [parse_graded(name) for name in names], torch.Generator(), []
    rng.manual_seed(0)
    for _ in range(SAMPLES):
        some = torch.randint(len(scores), (len(scores),), generator=rng)
        passed = passed_by_grade(scores[some], rows.grades[some], n_grades)
        values.append([float(value.nanmean()) for value in values_of(passed, specs)])
    return dict(zip(names, np.std(values, axis=0, ddof=1).round(4).tolist(), strict=True))


def names_of(config: Any) -> set[str]:
    return {field.name for field in fields(config)}


def last(steps: Iterator[Any]) -> tuple[Model, float]:
    model, seconds = None, 0.0
    for step in timed(lambda: steps):
        if step.whole:
            model, seconds = step.model, seconds + step.seconds
    assert model is not None
    return model, seconds


def keep(path: Path, loaded: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".writing")
    text = json.dumps(loaded, indent=1)
    text = re.sub(r"\[[^][{}]*\]", lambda few: f"[{' '.join(few[0][1:-1].split())}]", text)
    partial.write_text(text + "\n")
    partial.replace(path)


# ---------------------------------------------------------------------------------- table


def table(out: Path) -> str:
    """Means over seeds, best first at the lowest rate; then thresholds and splits.

    After a mean: its 95 % interval over seeds and, in brackets, over test rows if measured.
    """
    lines = []
    for data in OF_DATA:
        rows = []
        for name in (*NAMES, *PEERS, *(f"untuned-{name}" for name in NAMES)):
            kept = [tests(out, data, name, rate) for rate in RATES]
            cells = [interval(seeds, rate) for seeds, rate in zip(kept, RATES, strict=True)]
            if any(cells):
                rows.append((cells[0] or (0.0,), name, cells, by_threshold(kept[0])))
        rows.sort(key=lambda row: row[0][0], reverse=True)
        lines += [f"{data}: TPR at FPR", "", *head("method", RATES)]
        for _, name, cells, _ in rows:
            shown = ["" if cell is None else written(*cell) for cell in cells]
            lines.append(f"| {name} | " + " | ".join(shown) + " |")
        n_thresholds = max((len(means) for *_, means in rows), default=0)
        lines += ["", f"{data}: TPR at an FPR of {RATES[0]}, by threshold", ""]
        lines += head("method", range(1, n_thresholds + 1))
        for _, name, _, means in rows:
            if means:
                lines.append(f"| {name} | " + " | ".join(f"{value:.3f}" for value in means) + " |")
        lines += ["", *by_splits(out, data)]
    return "\n".join(lines)


def by_splits(out: Path, data: str) -> list[str]:
    """Means over fresh splits, for the first setting and the chosen ones.

    A sign marks differences to the first method above two standard errors, split by split.
    """
    lines: list[str] = []
    first: list[Any] = []
    for name in (*NAMES, *PEERS):
        values = [again_at(out, data, name, rate, w) for w in ("first", "chosen") for rate in RATES]
        if all(value is not None for value in values):
            first = first or values
            cells = [compared(*both) for both in zip(values, first, strict=True)]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    columns = [f"{which}, {rate}" for which in ("first", "chosen") for rate in RATES]
    title = f"{data}: TPR at FPR on fresh thirds, for the first setting and the chosen ones"
    return [title, "", *head("method", columns), *lines, ""] if lines else []


def again_at(out: Path, data: str, name: str, rate: float, which: str) -> Any:
    """The TPR of each fresh split; None if not measured."""
    path = result(out, data, name, rate if name in TAKES_RATE else None)
    loaded = json.loads(path.read_text()) if path.exists() else {}
    if "again" not in loaded or str(rate) not in loaded["tests"]:
        return None
    meant = (loaded["trials"][0] if which == "first" else loaded["tests"][str(rate)])["settings"]
    rows = [row for row in loaded["again"] if row["settings"] == meant]
    return np.array(rows[0]["by_split"][at(rate)]) if rows else None


def compared(values: Any, others: Any) -> str:
    def error(of: Any) -> float:
        return float(of.std(ddof=1) / math.sqrt(len(of)))

    apart = values - others
    far = abs(apart.mean()) > 2 * error(apart)
    sign = ("+" if apart.mean() > 0 else "-") if far else ""
    return f"{values.mean():.3f} ({error(values):.3f}) {sign}".strip()


def at(rate: float) -> str:
    return f"tpr@fpr={rate}"


def paired(data_name: str, names: list[str], device: str, out: Path, jobs: int) -> str:
    """Differences to the first method: means over seeds, 95 % intervals over test rows."""
    every = [(data_name, name, seed, device, out) for name in names for seed in range(SEEDS)]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        scores = torch.stack(pool.map(chosen, every, chunksize=1)).unflatten(0, (-1, SEEDS))
    data = load(data_name)
    grades, n_grades = data.graded("test").grades, len(data.candidates)
    spec, rng, loaded = parse_graded(at(RATES[0])), torch.Generator().manual_seed(0), []
    for number in range(SAMPLES + 1):
        some = torch.randint(len(grades), grades.shape, generator=rng)
        some = some if number else torch.arange(len(grades))  # first the rows as they are
        means = [
            np.mean([graded_mean(one[some], grades[some], n_grades, spec) for one in mine])
            for mine in scores
        ]
        loaded.append(means)
    values = np.array(loaded)
    apart = values - values[:, :1]
    low, high = np.nanquantile(apart[1:], (0.025, 0.975), axis=0)
    lines = [f"{data_name}: TPR at an FPR of {RATES[0]}, and less that of {names[0]}", ""]
    lines += head("method", ["", "difference", "95 % of other rows"])
    for place, name in enumerate(names):
        ends = f"{low[place]:+.3f} to {high[place]:+.3f}"
        lines.append(f"| {name} | {values[0, place]:.3f} | {apart[0, place]:+.3f} | {ends} |")
    return "\n".join([*lines, ""])


def chosen(job: tuple[str, str, int, str, Path]) -> Tensor:
    """Scores of the test rows by the setting chosen for the lowest rate."""
    data_name, name, seed, device, out = job
    torch.set_num_threads(1)
    data, rate = load(data_name), RATES[0] if name in TAKES_RATE else None
    settings = begun(result(out, data_name, name, rate), data_name)["tests"][str(RATES[0])]
    whole = replace(data, train=data.graded("train").join(data.graded("validation")))
    return scored(name, whole, settings["settings"], rate, seed, device, "test")[0]


def head(first: str, others: Iterable[Any]) -> list[str]:
    names = [first, *map(str, others)]
    return ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]


def tests(out: Path, data: str, name: str, rate: float) -> list[Row]:
    """Test figures of a method's fits, if all seeds are done."""
    takes_rate = name.removeprefix("untuned-") in TAKES_RATE
    path = result(out, data, name, rate if takes_rate else None)
    kept = json.loads(path.read_text())["tests"] if path.exists() else {}
    loaded = kept.get("untuned" if name.startswith("untuned-") else str(rate), {"seeds": []})
    return loaded["seeds"] if len(loaded["seeds"]) == SEEDS else []


def written(mean: float, over_seeds: float, over_rows: float | None) -> str:
    brackets = "" if over_rows is None else f" ({over_rows:.3f})"
    return f"{mean:.3f} ± {over_seeds:.3f}{brackets}"


def interval(rows: list[Row], rate: float) -> tuple[float, float, float | None] | None:
    """The mean, and half of its intervals: over seeds, and over test rows of a single fit."""
    if not rows:
        return None
    name = at(rate)
    values = np.array([row[name] for row in rows])
    over_seeds = float(STUDENT * values.std(ddof=1) / math.sqrt(len(values)))
    errors = [row["rows_error"][name] for row in rows if "rows_error" in row]
    over_rows = NORMAL * float(np.mean(errors)) if len(errors) == len(rows) else None
    return float(values.mean()), over_seeds, over_rows


def by_threshold(rows: list[Row]) -> list[float]:
    known = [row["thresholds"] for row in rows if "thresholds" in row]
    return np.mean(known, axis=0).tolist() if known else []


NORMAL = 1.960  # 97.5 % of a normal distribution
STUDENT = 2.776  # 97.5 % of Student's t with 4 degrees of freedom

if __name__ == "__main__":
    main()
