"""Optimisers by name."""

import pytest
import torch

from rankfold.training import optimisers


def test_momentum_of_sgd() -> None:
    """The gradient of a step also moves the parameter in the next."""
    parameter = torch.nn.Linear(1, 1, bias=False)
    (optimiser,) = optimisers.make("sgd", parameter, 0.1, 0.0)
    places = [parameter.weight.item()]
    for pull in (1.0, 0.0):
        parameter.weight.grad = torch.tensor([[pull]])
        optimiser.step()
        places.append(parameter.weight.item())
    assert places[1] - places[0] == pytest.approx(-0.1)
    assert places[2] - places[1] == pytest.approx(-0.09)


def test_large_tables_have_sparse_gradients() -> None:
    assert not optimisers.is_sparse("auto", optimisers.MAX_DENSE_NUMBERS)
    assert optimisers.is_sparse("auto", optimisers.MAX_DENSE_NUMBERS + 1)
    assert not optimisers.is_sparse("adam", 10 * optimisers.MAX_DENSE_NUMBERS)
