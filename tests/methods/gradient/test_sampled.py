"""``sampled`` and ``full`` accept every registered part, including parts registered later."""

import math
from typing import Any

import pytest
import torch
from planted import groups, split_groups
from torch import Tensor

import rankfold as rf
from rankfold.distributed.collectives import SingleProcess
from rankfold.errors import UserError
from rankfold.kernels.single_positive import SINGLE_POSITIVE
from rankfold.losses import LOSSES
from rankfold.losses.full import FULL_LOSSES
from rankfold.methods import METHODS
from rankfold.samplers import SAMPLERS, SamplerContext
from rankfold.samplers.mixins import WholePool
from rankfold.types import Interactions, Run

RESAMPLERS = [
    name
    for name, make in SAMPLERS.items()
    if not isinstance(make(SamplerContext(torch.ones(3), 2)), WholePool)
]


def square_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The mean over the pool of (s - [grade > 0])^2."""
    assert weights is None
    errors = torch.where(valid, (scores - (grades > 0).to(scores)) ** 2, 0.0)
    return errors.sum(dim=1) / valid.sum(dim=1)


def square_full_loss(queries: Tensor, candidates: Tensor, positives: Interactions) -> Tensor:
    scores = queries @ candidates.T
    target = torch.zeros_like(scores)
    target[positives.query_of_pair().long(), positives.candidates.long()] = 1
    return ((scores - target) ** 2).mean(dim=1)


def test_every_loss_works_with_every_sampler() -> None:
    data = rf.prepare(groups(m=30, n=40))  # two batches
    for loss in LOSSES:
        for sampler in SAMPLERS:
            settings = {"loss": loss, "sampler": sampler, "epochs": 1, "negatives": 5}
            if sampler in RESAMPLERS and loss not in SINGLE_POSITIVE:
                with pytest.raises(UserError, match="repeats negatives"):
                    rf.fit("sampled", data, **settings)
                continue
            config = METHODS["sampled"].config(**settings, batch_size=128)
            run = Run(
                rng=torch.Generator().manual_seed(0),
                device=torch.device("cpu"),
                comm=SingleProcess(),
            )
            *_, step = METHODS["sampled"].fit(data, config, run)
            assert math.isfinite(step.loss), (loss, sampler)


@pytest.mark.parametrize(
    ("name", "registry", "loss", "parts"),
    [
        ("sampled", LOSSES, square_loss, {"sampler": "uniform", "proposed": "none"}),
        ("full", FULL_LOSSES, square_full_loss, {"weight_decay": 0.0}),
    ],
)
def test_registered_loss_can_be_named(
    name: str, registry: Any, loss: Any, parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name in the registry. Before it is registered, it is refused."""
    options = {"loss": "mine", "epochs": 8, "lr": 0.05, "width": 8, **parts}
    with pytest.raises(UserError, match=r"`loss` must be one of softmax, .*, got 'mine'"):
        rf.fit(name, split_groups(), **options)
    monkeypatch.setitem(registry, "mine", loss)
    model = rf.fit(name, split_groups(), **options).model
    losses = [entry["loss"] for entry in model.notes["history"]]
    assert model.config["loss"] == "mine"
    assert losses[-1] < 0.95 * losses[0]


def test_registered_sampler_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SAMPLERS, "mine", SAMPLERS["uniform"])
    model = rf.fit("sampled", split_groups(), sampler="mine", proposed="none", epochs=1).model
    assert model.config["sampler"] == "mine"
