"""Ranking quality and training time of every method under the same budget.

    python -m benchmarks.quality.quadratic export                    prepared data as plain arrays
    python -m benchmarks.quality.gradient run [--data-sets ...] [--methods ...] [--seconds 500]
    python -m benchmarks.quality.gradient sweep [--data-sets ...]    over batch sizes
    python -m benchmarks.quality.gradient table

Each method has eight trials, drawn from its space with a fixed seed, of at most 15 epochs (sweeps,
steps) with early stopping. After 3, 6 and 10 of them a trial continues only if it is no worse than
the median of the earlier trials. The best by validation ndcg@10 is fitted on train and validation
for as long, with three seeds, and scored on test. The width is 64. ``run`` requires only torch and
numpy. It writes each trial to results/quality/gradient/METHOD-DATA.json, resumes an interrupted
run, and stops after ``--seconds``.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from benchmarks.paths import RESULTS
from benchmarks.quality.quadratic import DEVICE, Judged, load, start
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.training.early_stopping import History
from rankfold.types import Dataset, Model

OUT = RESULTS / "quality" / "gradient"
DATA_SETS = ("amazon-electronics-10core", "gowalla", "pinterest")
SHOWN = ("ndcg@10", "mrr@10", "recall@20")
SELECTED_BY = "ndcg@10"
WIDTH, TRIALS, LENGTH, PATIENCE = 64, 8, 15, 3
HURDLES = (3, 6, 10)
SEEDS = (0, 1, 2)
BATCHES = (256, 512, 1024, 2048, 4096, 8192)
SWEPT = ("ssl-pop", "bir", "xir")

LR = {"lr": (0.001, 0.003, 0.01, 0.03)}
DECAY = {"weight_decay": (3e-6, 1e-5, 3e-5, 1e-4)}
SAMPLED = {**LR, **DECAY, "batch_size": (512, 2048)}
IN_BATCH = {**SAMPLED, "popularity": ("count", "power")}
WEIGHTED = {"alpha": (0.005, 0.01, 0.02, 0.04), "reg": (0.003, 0.01, 0.03, 0.1)}
SPACES: dict[str, dict[str, tuple[Any, ...]]] = {
    "bpr": {**SAMPLED, "negatives": (1, 10)},
    "bce": {**SAMPLED, "negatives": (4, 20)},
    "sampled-softmax": {**SAMPLED, "negatives": (200, 1000)},
    "softmax": {**LR, **DECAY, "batch_size": (128, 512)},
    "sparsemax": {**LR, **DECAY, "batch_size": (128, 512)},
    "uib": {**SAMPLED, "negatives": (1, 10)},
    "sml": {
        **LR,
        "batch_size": (512, 2048),
        "negatives": (1, 10),
        "candidate_weight": (0.01, 0.1),
        "margin_weight": (0.1, 1.0),
    },
    "ssl": SAMPLED,
    "ssl-pop": IN_BATCH,
    "mns": IN_BATCH,
    "g-tower": SAMPLED,
    "bir": IN_BATCH,
    "xir": {**IN_BATCH, "cache_share": (0.2, 0.5)},
    "rg2-newton": {"reg": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)},
    "rg2": {},
    "rg2-weighted": WEIGHTED,
    "rgx": WEIGHTED,
    "ials": {"background": (0.003, 0.01, 0.03, 0.1), "reg": (0.0003, 0.001, 0.003, 0.01)},
    "wrmf": {"alpha": (10.0, 40.0, 160.0), "reg": (1.0, 10.0, 50.0)},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["run", "sweep", "table"])
    parser.add_argument("--data-sets", nargs="+", default=DATA_SETS)
    parser.add_argument("--methods", nargs="+", default=list(SPACES))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    args = parser.parse_args()
    if args.task == "table":
        table(args.data_sets, args.out)
        return
    until = time.monotonic() + args.seconds
    for name in args.data_sets:
        data = load(name)
        for method in args.methods:
            if args.task == "run":
                study(name, method, data, args.out, until)
            elif method in SWEPT:
                sweep(name, method, data, args.out, until)


# ---------------------------------------------------------------------------------- trials


def study(name: str, method: str, data: Dataset, out: Path, until: float) -> None:
    """Eight trials, then three fits of the best; existing figures are kept."""
    path = out / f"{method}-{name}.json"
    about = {"method": method, "data": name, "device": str(DEVICE), "trials": [], "test": []}
    result = json.loads(path.read_text()) if path.exists() else about
    for point in points(method)[len(result["trials"]) :]:
        if time.monotonic() > until:
            return
        result["trials"].append(trial(method, data, point, result["trials"]))
        keep(path, result)
    best = max(result["trials"], key=lambda one: one.get("score", 0.0))
    result["chosen"] = best
    whole = replace(
        data, train=data.split("train").union(data.split("validation")), validation=None
    )
    for seed in SEEDS[len(result["test"]) :]:
        if time.monotonic() > until:
            return
        history = fit(method, whole, best["chosen"], seed, best["step"], [])
        result["test"].append(means(whole, history.model))
        keep(path, result)
    score = f"{mean(one[SELECTED_BY] for one in result['test']):.4f}"
    print(path.stem, best["settings"], f"validation {best['score']:.4f} test {score}", flush=True)


def points(method: str) -> list[dict[str, Any]]:
    """Eight different points of a method's space, or all if there are fewer."""
    space = SPACES[method]
    every = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    rng = random.Random(f"{method}")
    return rng.sample(every, min(TRIALS, len(every)))


def trial(
    method: str, data: Dataset, point: dict[str, Any], before: list[dict[str, Any]]
) -> dict[str, Any]:
    """One fit, ended at a hurdle if it is too poor."""
    began = time.time()
    settings = {"width": WIDTH, **LENGTHS.get(method, {"epochs": LENGTH}), **point}
    try:
        history = fit(method, data, settings, 0, None, [one.get("scores", []) for one in before])
    except UserError as error:  # it diverged
        return {"settings": point, "failed": str(error), "score": 0.0, "scores": []}
    scores = [entry["score"] for entry in history.entries if "score" in entry]
    spent = [entry["seconds"] for entry in history.entries]
    assert history.model is not None
    return {
        "settings": point,
        "chosen": dict(history.model.config),
        "step": history.number,
        "score": means(data, history.model, "validation")[SELECTED_BY],
        "scores": scores,
        "seconds_to_best": sum(spent[: history.number]),
        "seconds": time.time() - began,
    }


SWEEPS, STEPS = {"sweeps": LENGTH}, {"steps": LENGTH}
LENGTHS: dict[str, dict[str, int]] = {
    "rg2": {},
    "rg2-newton": STEPS,
    **dict.fromkeys(("rg2-weighted", "rgx", "ials", "wrmf"), SWEEPS),
}


def fit(
    method: str,
    data: Dataset,
    settings: dict[str, Any],
    seed: int,
    steps: int | None,
    before: list[list[float]],
) -> History:
    """A fit that stops by validation, at a hurdle, or after a number of steps."""
    recipe, run = METHODS[method], start(data, seed)
    known = {field.name for field in fields(recipe.config)}
    config = recipe.config(**{key: value for key, value in settings.items() if key in known})
    history = History(steps=None if recipe.self_tuning else steps)
    for step in recipe.fit(data, config, run):
        if not step.whole:
            continue
        scored = run.judge is not None and step.model is not None and not recipe.self_tuning
        score = means(data, step.model, "validation")[SELECTED_BY] if scored else None
        history.note(step, score)
        if history.is_over(step, PATIENCE) or is_behind(step.number, history.score, before):
            break
    assert history.model is not None
    if recipe.finalize is not None:
        history.model = recipe.finalize(history.model, data.split("train").to(DEVICE), run)
    return history


def is_behind(number: int, score: float | None, before: list[list[float]]) -> bool:
    """Whether a trial is below the median of the earlier ones at a hurdle."""
    others = [max(scores[:number]) for scores in before if len(scores) >= min(HURDLES)]
    return number in HURDLES and len(others) >= 2 and (score or 0.0) < median(others)


def means(data: Dataset, model: Model | None, split: str = "test") -> dict[str, float]:
    """Mean metrics over all queries of a split."""
    assert model is not None
    return Judged(data, split).means(model, SHOWN)


def keep(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


# ---------------------------------------------------------------------------------- Figure 7


def sweep(name: str, method: str, data: Dataset, out: Path, until: float) -> None:
    """Test figures over batch sizes: 20 epochs, width 32, three seeds, the method's defaults."""
    path = out / f"sweep-{method}-{name}.json"
    result = json.loads(path.read_text()) if path.exists() else []
    done = {(row["batch_size"], row["seed"]) for row in result}
    whole = replace(
        data, train=data.split("train").union(data.split("validation")), validation=None
    )
    for seed, batch_size in product(SEEDS, reversed(BATCHES)):
        if (batch_size, seed) in done or time.monotonic() > until:
            continue
        settings = {"width": 32, "epochs": 20, "batch_size": batch_size}
        began = time.time()
        history = fit(method, whole, settings, seed, None, [])
        row = {"batch_size": batch_size, "seed": seed}
        result.append({**row, **means(whole, history.model), "seconds": time.time() - began})
        keep(path, result)
        print(name, method, result[-1], flush=True)


# ---------------------------------------------------------------------------------- table


def table(names: list[str], out: Path) -> None:
    """Test figures, mean and deviation over seeds, and seconds of training to the best step."""
    for name in names:
        print(f"\n{name}\n| method | ndcg@10 | mrr@10 | seconds to the best step | trials |")
        print("|---|---|---|---|---|")
        rows = [json.loads(path.read_text()) for path in sorted(out.glob(f"*-{name}.json"))]
        rows = [row for row in rows if isinstance(row, dict) and len(row["test"]) == len(SEEDS)]
        for row in sorted(rows, key=lambda row: -mean(one[SELECTED_BY] for one in row["test"])):
            cells = [spread([one[metric] for one in row["test"]]) for metric in SHOWN[:2]]
            seconds = row["chosen"]["seconds_to_best"]
            print(
                f"| {row['method']} | {' | '.join(cells)} | {seconds:.1f} | {len(row['trials'])} |"
            )
        swept = [path for m in SWEPT if (path := out / f"sweep-{m}-{name}.json").exists()]
        if swept:
            sizes = " | ".join(map(str, BATCHES))
            print(f"\n{name}, {SELECTED_BY} by batch size\n| method | {sizes} |")
            print("|---" * (len(BATCHES) + 1) + "|")
        for path in swept:
            print(f"| {path.stem.removeprefix('sweep-').removesuffix(f'-{name}')} |", end="")
            print("".join(f" {cell} |" for cell in by_batch(json.loads(path.read_text()))))


def by_batch(rows: list[dict[str, Any]]) -> list[str]:
    result = [[r[SELECTED_BY] for r in rows if r["batch_size"] == size] for size in BATCHES]
    return [spread(values) if len(values) == len(SEEDS) else "" for values in result]


def spread(values: list[float]) -> str:
    return f"{mean(values):.4f} ± {stdev(values):.4f}"


if __name__ == "__main__":
    main()
