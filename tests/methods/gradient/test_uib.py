"""The loss of uib by hand."""

import math

import pytest
import torch
from planted import split_groups

from rankfold.distributed.collectives import SingleProcess
from rankfold.methods.gradient import uib
from rankfold.training import loop
from rankfold.types import Batch, Run

BATCH = Batch(torch.tensor([0, 3, 3]), torch.tensor([1, 1, 5]))


def run() -> Run:
    rng = torch.Generator().manual_seed(0)
    return Run(rng=rng, device=torch.device("cpu"), comm=SingleProcess())


@pytest.mark.parametrize("margin", [None, 0.0, 0.05])
def test_uib_matches_its_formula(margin: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of a batch with random boundaries, which have gradients."""
    seen = []

    def spy(task: loop.Task, *_rest: object) -> list[object]:
        seen.append(task)
        return []

    monkeypatch.setattr(uib, "train", spy)
    data = split_groups()
    uib.fit(data, uib.UibConfig(width=3, negatives=4, mask="none", margin=margin), run())
    (task,) = seen
    boundary = task.module.boundary
    with torch.no_grad():
        rng = torch.Generator().manual_seed(1)
        boundary.weight.copy_(torch.randn(boundary.weight.shape, generator=rng) * 0.1)
    values = task.losses(BATCH, torch.Generator().manual_seed(5))
    draws = torch.Generator().manual_seed(5)
    ids = torch.randint(len(data.candidates), (3, 4), generator=draws)
    tables = task.module.encoder.encoder
    scores = (tables.queries.weight @ tables.candidates.weight.T - boundary.weight).detach()

    def phi(z: float) -> float:
        return math.log1p(math.exp(z)) if margin is None else max(0.0, z + margin)

    expected = [
        phi(-float(scores[x, y])) + sum(phi(float(scores[x, j])) for j in ids[row]) / 4
        for row, (x, y) in enumerate(zip(*(t.tolist() for t in BATCH[:2]), strict=True))
    ]
    assert values.tolist() == pytest.approx(expected, abs=1e-5)
    values.sum().backward()
    assert boundary.weight.grad.abs().sum() > 0
