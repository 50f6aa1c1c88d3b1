"""rg2-newton resumes bit by bit, and stops at the minimum."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from planted import dense, split_groups

from rankfold.distributed.collectives import SingleProcess
from rankfold.methods import METHODS
from rankfold.types import Run


def run(seed: int = 0) -> Run:
    rng = torch.Generator().manual_seed(seed)
    return Run(rng=rng, device=torch.device("cpu"), comm=SingleProcess())


@pytest.mark.parametrize("encoder", ["tables", "towers"])
def test_resumed_fit_equals_an_uninterrupted_one(encoder: str) -> None:
    """Also if it is resumed at the minimum."""
    data = split_groups()
    config = METHODS["rg2-newton"].config(width=3, steps=6, encoder=encoder, reg=1.0)
    steps = list(METHODS["rg2-newton"].fit(data, config, run()))
    final = steps[-1].model
    assert final is not None
    for step in steps[:-1]:
        state = {**step.state(), "number": torch.tensor(step.number)}
        *_, resumed = METHODS["rg2-newton"].fit(data, config, replace(run(), resume=state))
        assert resumed.model is not None
        assert resumed.number == steps[-1].number
        for key, tensor in final.tensors.items():
            assert torch.equal(resumed.model.tensors[key], tensor)


@pytest.mark.parametrize("settings", [{"objective": "rgx"}, {"alpha": 0.5}], ids=str)
def test_settings_choose_the_written_loss(settings: dict[str, Any]) -> None:
    """RGx and the weighted form end at a stationary point of their own dense loss."""
    data, reg = split_groups(), 1.0
    config = METHODS["rg2-newton"].config(width=2, steps=60, products=200, reg=reg, **settings)
    *_, last = METHODS["rg2-newton"].fit(data, config, run())
    assert last.model is not None
    p, q = (last.model.tensors[s].double().requires_grad_() for s in ("queries", "candidates"))
    r, o = dense(data.split("train")), p @ q.T
    n, sizes = r.shape[1], r.sum(dim=1)
    total = (sizes / (2 * n)) @ ((o + 1) ** 2).sum(dim=1) - (r * o).sum()
    if config.objective == "rgx":
        total = total - (sizes / (2 * n**2)) @ o.sum(dim=1) ** 2
    total = total + config.alpha * (r * (o - 1) ** 2).sum()
    squares = (p**2).sum() + (q**2).sum()
    loss = total / r.sum() + reg / (len(p) + len(q)) / 2 * squares
    assert last.loss == pytest.approx(loss.item(), rel=1e-5)
    for gradient, side in zip(torch.autograd.grad(loss, (p, q)), (p, q), strict=True):
        assert gradient.norm() < 1e-3 * reg / (len(p) + len(q)) * side.norm()


def test_fit_ends_at_the_minimum_and_stays_there() -> None:
    data = split_groups()
    config = METHODS["rg2-newton"].config(width=2, steps=300, reg=1e4)  # all vectors are 0 then
    steps = list(METHODS["rg2-newton"].fit(data, config, run()))
    assert steps[-1].final
    assert steps[-1].number < 300
    state = {**steps[-2].state(), "number": torch.tensor(steps[-2].number)}
    *_, resumed = METHODS["rg2-newton"].fit(data, config, replace(run(), resume=state))
    assert steps[-1].model is not None
    assert resumed.model is not None
    for key, tensor in steps[-1].model.tensors.items():
        assert torch.equal(resumed.model.tensors[key], tensor)
