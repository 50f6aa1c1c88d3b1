"""The ranking loss over all candidates: its value, gradient and products with its curvature."""

from typing import Any

import pytest
import torch
from dense import random_rows
from encoded_sides import (
    ENCODERS,
    FORMS,
    REG,
    dense_value,
    hessian,
    planted,
    problem_of,
    random,
    tables,
)
from torch import Tensor
from torch.func import jacrev

from rankfold.solvers.newton_cg import (
    flatten,
)
from rankfold.solvers.ranking_loss import (
    LossForm,
    gauss_newton_product,
    hessian_product,
    loss_and_gradient,
    loss_at,
    rg2_value_and_gradient,
)

each_form = pytest.mark.parametrize("form", FORMS, ids=str)


@pytest.mark.parametrize("shape", [(9, 7), (5, 12), (2, 1)])
def test_value_and_gradient_are_the_definitions(shape: tuple[int, int]) -> None:
    rows, dense = random_rows(shape[1], *shape)
    queries, candidates = tables(*shape).values()
    value, *gradients = rg2_value_and_gradient(rows, queries, candidates)
    torch.testing.assert_close(value, dense_value(dense, queries, candidates))
    expected = torch.func.grad(lambda pair: dense_value(dense, *pair))((queries, candidates))
    torch.testing.assert_close(tuple(gradients), expected)


def test_float32_is_near_float64() -> None:
    rows = planted()
    exact = rg2_value_and_gradient(rows, *tables(60, 50).values())
    iterates = rg2_value_and_gradient(rows, *(t.float() for t in tables(60, 50).values()))
    assert iterates[0].dtype == torch.float64
    assert iterates[0].item() == pytest.approx(exact[0].item(), rel=1e-6)
    for a, b in zip(iterates[1:], exact[1:], strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-6)


@each_form
@pytest.mark.parametrize(("make", "encode"), ENCODERS)
def test_loss_and_gradient_go_through_the_encoder(make: Any, encode: Any, form: LossForm) -> None:
    rows, dense = random_rows(1)
    params = make(9, 7)
    problem, at = problem_of(encode, params, rows, form=form), flatten(params)

    def naive(vector: Tensor) -> Tensor:
        return dense_value(dense, *problem.encode(vector), form) + REG / 2 * (vector**2).sum()

    loss, gradient = loss_and_gradient(problem, at)
    torch.testing.assert_close(loss, naive(at))
    torch.testing.assert_close(gradient, torch.func.grad(naive)(at))
    assert loss_at(problem, at) == pytest.approx(loss.item(), rel=1e-12)


@each_form
@pytest.mark.parametrize(("make", "encode"), ENCODERS)
def test_gauss_newton_product_is_the_explicit_matrix(
    make: Any, encode: Any, form: LossForm
) -> None:
    """The Hessian by the scores is that of the definition."""
    rows, dense = random_rows(2, 5, 4)
    params = make(5, 4, 2)
    problem, at = problem_of(encode, params, rows, form=form), flatten(params)

    def scores(vector: Tensor) -> Tensor:
        queries, candidates = problem.encode(vector)
        return (queries @ candidates.T).flatten()

    jacobian = jacrev(scores)(at)
    eye = torch.eye(4, dtype=torch.float64)
    of_scores = hessian(lambda o: dense_value(dense, o.view(5, 4), eye, form), scores(at))
    matrix = jacobian.T @ of_scores @ jacobian
    product = gauss_newton_product(problem, at)
    for seed in range(3):
        vector = random(seed, len(at))
        torch.testing.assert_close(product(vector), matrix @ vector)


@each_form
@pytest.mark.parametrize(("make", "encode"), ENCODERS)
def test_hessian_product_is_the_explicit_matrix(make: Any, encode: Any, form: LossForm) -> None:
    rows, dense = random_rows(2, 5, 4)
    params = make(5, 4, 2)
    problem, at = problem_of(encode, params, rows, form=form), flatten(params)
    matrix = hessian(lambda vector: dense_value(dense, *problem.encode(vector), form), at)
    vector = random(9, len(at))
    torch.testing.assert_close(hessian_product(problem, at)(vector), matrix @ vector)
