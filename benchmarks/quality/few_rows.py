"""Settings of a grader on few rows, scored on rows that are in no test split.

    python -m benchmarks.quality.few_rows retinamnist --methods cba ce --set batch_size=64
    python -m benchmarks.quality.few_rows fars --rows 1000 --methods cba --set batch_size=64

Each fit uses ``--rows`` rows (0: all), a tenth of them for validation. On retinamnist it is scored
on a third of train and validation; the thirds rotate, and are redrawn after three fits. On fars it
is scored on the validation rows, and the fit's own validation comes from the training rows. The
output has means over ``--fits`` with standard errors, for the epoch that validation selects by the
default metric of ``rankfold fit`` and for the last epoch. ``quality/ordinal.py export`` writes the
arrays. Requires only torch and numpy.
"""

from __future__ import annotations

import argparse
import multiprocessing
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.quality import ordinal as ours
from rankfold import config as settings_of
from rankfold.distributed.collectives import SingleProcess
from rankfold.methods import METHODS
from rankfold.metrics.graded import graded_mean, parse_graded
from rankfold.types import Dataset, Graded, Run

JUDGED = ("tpr@fpr=0.01", "tpr@fpr=0.05", "tpr@fpr=0.1", "pauc@fpr=0.1", "auc")
TENTH = 10  # of the rows are a fit's own validation: one of so many parts
ENOUGH, WIDEST = (
    10,
    0.1,
)  # of the default metric: rankfold.tasks.fit.plan, which needs more than torch
Job = tuple[str, int, str, dict[str, Any], str, int]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data_set", choices=list(ours.OF_DATA))
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--methods", nargs="+", default=["cba"])
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    parser.add_argument("--fits", type=int, default=9)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    args = parser.parse_args()
    given = settings_of.parse_words(args.set)
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for name in args.methods:
            jobs = [
                (args.data_set, args.rows, name, given, args.device, number)
                for number in range(args.fits)
            ]
            figures = np.array(pool.map(fitted, jobs, chunksize=1))  # [fits, 2, metrics]
            for place, epoch in enumerate(("chosen", "last")):
                print(args.data_set, args.rows, name, args.set, epoch, shown(figures[:, place]))


def shown(figures: Any) -> str:
    means, errors = figures.mean(axis=0), figures.std(axis=0, ddof=1) / len(figures) ** 0.5
    pairs = zip(JUDGED, means, errors, strict=True)
    return ", ".join(f"{name} {mean:.3f} ({error:.3f})" for name, mean, error in pairs)


def fitted(job: Job) -> list[list[float]]:
    """Scores of the chosen epoch and of the last one."""
    data_set, rows, name, given, device, number = job
    torch.set_num_threads(1)
    data, method = divided(data_set, rows, number), METHODS[name]
    config = settings_of.build(method.config, given)
    run = Run(torch.Generator().manual_seed(number), torch.device(device), SingleProcess())
    validation, best, chosen = data.graded("validation"), -1.0, []
    metric = usual_metric(config, validation.grades)
    for step in method.fit(data, config, run):
        if not step.whole:
            continue
        assert step.model is not None
        scores = method.open(step.model).rows
        assert scores is not None
        score = judged(scores(validation), validation, data, (metric,))[0]
        if score > best or step.final:
            last = judged(scores(data.graded("test")), data.graded("test"), data)
            best, chosen = (score, last) if score > best else (best, chosen)
    return [chosen, last]


def judged(
    scores: Tensor, rows: Graded, data: Dataset, metrics: tuple[str, ...] = JUDGED
) -> list[float]:
    n_grades = len(data.candidates)
    return [graded_mean(scores, rows.grades, n_grades, parse_graded(name)) for name in metrics]


def usual_metric(config: Any, grades: Tensor) -> str:
    """The default metric of ``rankfold fit``."""
    aim = getattr(config, "fpr", None)
    negatives = int((grades == grades.min()).sum())
    rate = WIDEST if aim is None else max(2 * aim, min(WIDEST, ENOUGH / negatives))
    return f"pauc@fpr={rate:.3g}"


def divided(data_set: str, rows: int, number: int) -> Dataset:
    """Rows to fit with their own validation; test has the rows to score."""
    data, partition = ours.load(data_set), 1000 + number
    if data_set == "fars":
        known, judges = data.graded("train"), data.graded("validation")
        rng = torch.Generator().manual_seed(partition)
    else:
        every = data.graded("train").join(data.graded("validation"))
        rng = torch.Generator().manual_seed(1000 + number // ours.FOLDS)
        thirds = ours.spread(every.grades, ours.FOLDS, rng)
        judges = every.select((thirds == number % ours.FOLDS).nonzero().flatten())
        known = every.select((thirds != number % ours.FOLDS).nonzero().flatten())
    if 0 < rows < len(known):
        known = known.select(torch.randperm(len(known), generator=rng)[:rows])
    tenths = ours.spread(known.grades, TENTH, rng)
    parts = (known.select(some.nonzero().flatten()) for some in (tenths > 0, tenths == 0))
    train, validation = parts
    return replace(data, train=train, validation=validation, test=judges)


if __name__ == "__main__":
    main()
