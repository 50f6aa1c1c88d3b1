"""The softmax loss matches its formula."""

from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankfold.losses.softmax import softmax_loss

ALL = torch.ones(1, 3, dtype=torch.bool)


def test_value_matches_the_formula() -> None:
    scores, grades = torch.tensor([[2.0, 1.0, 3.0]]), torch.tensor([[1, 0, 0]])
    expected = -log(exp(2) / (exp(2) + exp(1) + exp(3)))
    assert softmax_loss(scores, grades, ALL).item() == pytest.approx(expected)


def test_weights_weigh_the_positives() -> None:
    scores, grades = torch.tensor([[2.0, 1.0, 3.0]]), torch.tensor([[1, 1, 0]])
    log_z = log(exp(2) + exp(1) + exp(3))
    expected = -(0.5 * (2 - log_z) + 1.5 * (1 - log_z)) / 2.0
    weights = torch.tensor([[0.5, 1.5, 9.0]])  # the negative's weight is not read
    assert softmax_loss(scores, grades, ALL, weights).item() == pytest.approx(expected)


@given(shift=st.floats(-1e4, 1e4), seed=st.integers(0, 99))
def test_adding_a_constant_to_a_query_changes_nothing(shift: float, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, 7, generator=rng, dtype=torch.float64)
    grades, valid = (scores > 0.5).long(), torch.ones_like(scores, dtype=torch.bool)
    torch.testing.assert_close(
        softmax_loss(scores + shift, grades, valid), softmax_loss(scores, grades, valid)
    )


def test_gradient_is_that_of_the_formula() -> None:
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    grades = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
    valid = torch.ones(3, 5, dtype=torch.bool)
    assert torch.autograd.gradcheck(lambda s: softmax_loss(s, grades, valid), (scores,))
