"""Fit LibAUC's partial-AUC losses: one JSON job per line in, one JSON answer per line out.

    PYTHONPATH=src python benchmarks/peers/libauc/fit.py < jobs

A job has ``data`` (arrays ``train_*`` and ``asked_*``), ``settings``, ``seed``, ``device`` (CUDA if
there is one: their losses move there by themselves) and ``out``, a file for the scores of the asked
rows. The encoder, its initial weights, the flips and the learning-rate schedule are rankfold's. One
output per threshold is a task of LibAUC's ``MultiLabelpAUCLoss``; the score is the sum of the
sigmoids. Each loss has its optimiser: ``mode`` SOPAs (KL, ``Lambda`` and ``gamma``) or SOPA (CVaR,
``beta`` and ``eta``). As in their examples, the losses receive sigmoids.

``batches`` is ``tri`` for their TriSampler, half of a task's rows positive, or ``rows`` for a
permutation. With fewer than three tasks ``tri`` is their DualSampler by the first one. A task with
only positives or only negatives in a batch is skipped, since their losses refuse it.
``libauc.sampler`` imports torchvision for a type check that is not reached here: an empty module
replaces it. The answer has the CPU seconds of the fit.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.modules["torchvision"] = ModuleType("torchvision")

from libauc.losses.auc import MultiLabelpAUCLoss  # noqa: E402
from libauc.optimizers.sopa import SOPA  # noqa: E402
from libauc.optimizers.sopa_s import SOPAs  # noqa: E402
from libauc.sampler import DualSampler, TriSampler  # noqa: E402

from rankfold.encoders.row_inputs import RowShape  # noqa: E402
from rankfold.encoders.rows import find_encoder  # noqa: E402
from rankfold.encoders.towers import small_linear  # noqa: E402
from rankfold.losses.low_fpr import above  # noqa: E402
from rankfold.methods.ordinal.classifiers import by_thresholds  # noqa: E402
from rankfold.methods.ordinal.module import GradingModule  # noqa: E402
from rankfold.methods.ordinal.training import MAX_BLOCK_ROWS, GradedConfig  # noqa: E402
from rankfold.training.schedules import SCHEDULES, rate  # noqa: E402
from rankfold.types import Graded  # noqa: E402

OPTIMISERS = {"SOPAs": SOPAs, "SOPA": SOPA}
OF_LOSS = ("margin", "Lambda", "gamma", "beta", "eta")


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def answer(job: dict[str, Any]) -> dict[str, float]:
    result = np.load(job["data"], allow_pickle=False)
    rows, asked, n_grades = part(result, "train"), part(result, "asked"), int(result["n_grades"])
    device = torch.device(job["device"])
    levels = tuple(result["levels"].tolist())
    image = None if rows.images is None else tuple(rows.images.shape[1:])
    shape = RowShape(rows.numbers.shape[1], levels, image)
    began = process_time()
    module = fitted(rows.to(device), n_grades, shape, job["settings"], job["seed"])
    seconds = process_time() - began
    with torch.no_grad():
        parts = [
            asked.select(some).to(device) for some in torch.arange(len(asked)).split(MAX_BLOCK_ROWS)
        ]
        outputs = torch.cat([module.head(module.vectors(some)) for some in parts])
    np.save(Path(job["out"]), by_thresholds(outputs, n_grades).cpu().numpy())
    return {"cpu_seconds": seconds}


def part(result: Any, name: str) -> Graded:
    keys = [f"{name}_{field}" for field in ("numbers", "categories", "images", "grades")]
    return Graded(*(torch.from_numpy(result[key]) if key in result else None for key in keys))


def fitted(
    rows: Graded, n_grades: int, shape: RowShape, settings: dict[str, Any], seed: int
) -> GradingModule:
    """The module after the last epoch."""
    own = GradedConfig(dropout=settings["dropout"], flips=settings["flips"])
    rng, tasks, device = torch.Generator().manual_seed(seed), n_grades - 1, rows.grades.device
    draws = rng if device.type == "cpu" else torch.Generator(device).manual_seed(seed)
    np.random.seed(seed)  # what their sampler draws from
    encoder, _ = find_encoder("auto", shape)
    options = {"width": own.width, "dropout": own.dropout, "flips": own.flips}
    module = GradingModule(shape, encoder, small_linear(own.width, tasks, rng), rng, **options)
    module.to(device).scaling.fit(rows)
    labels = above(rows.grades, n_grades).T.long()
    given = {key: settings[key] for key in OF_LOSS if key in settings}
    if settings["mode"] == "SOPA":
        given["pos_len"] = int(labels.sum())
    loss = MultiLabelpAUCLoss(settings["mode"], tasks, device, data_len=len(rows), **given)
    optimiser = OPTIMISERS[settings["mode"]](
        module.parameters(),
        lr=settings["lr"],
        mode="adam",
        weight_decay=settings["weight_decay"],
        device=device,
    )
    done, epochs = 0.0, settings["epochs"]
    drawn = batches(labels, settings, seed, rng)
    for _ in range(epochs):
        epoch = next(drawn)
        for some in epoch:
            factor = rate(SCHEDULES["cosine"], done, epochs, own.warmup)
            optimiser.param_groups[0]["lr"] = settings["lr"] * factor
            done += 1 / len(epoch)
            some = some.to(device)
            sides = labels[some].float().mean(dim=0)
            both = ((sides > 0) & (sides < 1)).nonzero().flatten()
            if not len(both):
                continue
            chances = module.head(module.vectors(rows.select(some), draws)).sigmoid()
            value = loss(chances, labels[some], some, both)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
    return module


def batches(
    labels: Tensor, settings: dict[str, Any], seed: int, rng: torch.Generator
) -> Iterator[list[Tensor]]:
    """The batches of all epochs; all but the last of an epoch have one size."""
    size = settings["batch_size"]
    if settings["batches"] == "rows":
        while True:
            yield list(torch.randperm(len(labels), generator=rng).split(size))
    if labels.shape[1] < 3:  # fewer than their TriSampler takes
        dual = DualSampler(
            None, size, labels=labels[:, 0].cpu().numpy(), sampling_rate=0.5, random_seed=seed
        )
        while True:
            yield list(torch.tensor(list(dual)).split(size))
    each = size // labels.shape[1]
    sampler = TriSampler(
        None, each, sampling_rate=0.5, labels=labels.cpu().numpy(), random_seed=seed
    )
    while True:
        drawn = torch.tensor([row for row, _ in sampler])
        yield list(drawn.split(each * labels.shape[1]))


if __name__ == "__main__":
    main()
