"""rg2-newton resumes bit by bit, and stops at the minimum."""

from dataclasses import replace

import pytest
import torch
from planted import split_groups

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
