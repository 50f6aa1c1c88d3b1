"""Which batch size SSL-Pop and BIR need on a user's data: Figure 7 of [chen2022].

Both are trained with every batch size for the same number of epochs, and judged on the same
validation queries. A smaller batch takes more steps of the same epochs, so the best batch need not
be the largest. The recommendation is the smallest batch whose difference to the best is within its
95% interval, by a bootstrap over queries.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.errors import UserError
from rankfold.models.ranker import Ranker
from rankfold.tasks.diagnose.figures import mean_of
from rankfold.tasks.diagnose.result import CHEN2022, Chart, Diagnosis, DiagnosisResult, Line
from rankfold.tasks.diagnose.settings import sizes_of
from rankfold.tasks.diagnose.subject import DiagnosedData
from rankfold.tasks.evaluate_ranking import evaluate_ranking
from rankfold.tasks.fit import fit
from rankfold.types import Progress

_METHODS = ("ssl-pop", "bir")


class BatchSizeConfig(Settings):
    batches: str = setting("256,512,1024,2048", help="batch sizes, ascending", check=sizes_of)
    epochs: int = setting(4, at_least=1, help="epochs of every fit")
    width: int = setting(32, at_least=1, help="length of the vectors")
    lr: float = setting(0.01, above=0, help="initial learning rate")
    scaled: bool = setting(False, help="let the rate grow with the root of the batch, from 2048")
    metric: str = setting("ndcg@10", help="the metric on validation")


def measure(config: BatchSizeConfig, subject: DiagnosedData, progress: Progress) -> DiagnosisResult:
    """The metric per validation query of every method and batch size."""
    if subject.data.validation is None:
        raise UserError(
            "batch-size needs validation pairs, and the data has none",
            hint="prepare it with --validation-share .1",
        )
    sizes = sizes_of(config.batches)
    values: dict[str, dict[int, Tensor]] = {name: {} for name in _METHODS}
    for i, name in enumerate(_METHODS):
        for j, size in enumerate(sizes):
            share = (i * len(sizes) + j) / (len(sizes) * len(_METHODS))
            progress(f"batch-size: {name}, {size}", share)
            values[name][size] = judged(config, subject, name, size)
    return _result(config.metric, sizes, values)


def judged(config: BatchSizeConfig, subject: DiagnosedData, name: str, size: int) -> Tensor:
    """The metric of each validation query after a fit with this batch size; [n]."""
    lr = config.lr * ((size / 2048) ** 0.5 if config.scaled else 1.0)
    options = {"width": config.width, "epochs": config.epochs, "batch_size": size, "lr": lr}
    model = fit(name, subject.data, seed=subject.seed, **options)
    assert isinstance(model, Ranker)
    done = evaluate_ranking(model, subject.data, split="validation", metrics=config.metric)
    return torch.as_tensor(np.asarray(done.per_query[config.metric])).double()


def enough(values: dict[int, Tensor]) -> int:
    """The smallest batch that is not worse than the best beyond the interval of the difference."""
    best = max(values, key=lambda size: float(values[size].mean()))
    for size in sorted(values):
        if size == best:
            break
        difference = mean_of(values[best] - values[size])
        if difference.low is None or difference.low <= 0:
            return size
    return best


def _result(metric: str, sizes: list[int], values: dict[str, dict[int, Tensor]]) -> DiagnosisResult:
    recommended = {name: enough(by) for name, by in values.items()}
    best = {name: max(by, key=lambda size: float(by[size].mean())) for name, by in values.items()}
    winner = max(_METHODS, key=lambda name: float(values[name][best[name]].mean()))
    figures: dict[str, Any] = {
        f"recommended batch of {name}": float(n) for name, n in recommended.items()
    }
    for name, by in values.items():
        figures[f"{metric} of {name} at its recommended batch"] = by[recommended[name]]
    for size in (sizes[0], sizes[-1]):
        gain = f"bir less ssl-pop at batches of {size:,}"
        figures[gain] = values["bir"][size] - values["ssl-pop"][size]
    chosen, top = recommended[winner], best[winner]
    listed = ", ".join(f"{size:,} for {name}" for name, size in recommended.items())
    follows = (
        f"Fit {winner} with batch_size={chosen}: "
        + (
            "no other batch is better."
            if chosen == top
            else f"the best batch, {top:,}, is not better beyond chance."
        )
        + f" Recommended: {listed}."
    )
    details = {
        "batches": sizes,
        "metric": metric,
        "values": {name: [by[size].mean() for size in sizes] for name, by in values.items()},
        "recommended": recommended,
    }
    lines = [Line.of_means(name, by, by.values()) for name, by in values.items()]
    title = f"{metric} on validation by batch size"
    charts = {"batch-size": Chart(title, "batch size", metric, lines, log="x")}
    return DiagnosisResult.of(figures, follows, details, charts)


DIAGNOSIS = Diagnosis("Which batch size do ssl-pop and bir need on this data?", CHEN2022, measure)
