"""Solvers against a dense optimum of RG2, the fitted rate against a planted one."""

import pytest
import torch
from scored_models import model_of_scores, random_pairs
from torch import Tensor

from rankfold.objectives.quadratic import value
from rankfold.objectives.rg import rg2
from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.convergence import (
    ConvergenceConfig,
    by_adam,
    by_newton,
    curvatures,
    optimum,
    ratios_of,
)
from rankfold.tasks.diagnose.negatives import starting_vectors
from rankfold.types import Interactions


def marks(rows: Interactions) -> Tensor:
    matrix = torch.zeros(rows.n_queries, rows.n_candidates, dtype=torch.float64)
    matrix[rows.query_of_pair().long(), rows.candidates.long()] = 1.0
    return matrix


def dense_minimum(rows: Interactions, reg: float, width: int) -> float:
    """|T'|^2 - sum of (sigma - tau)_+^2 over the largest ``width``, from a dense SVD."""
    sizes, n = rows.counts().double(), rows.n_candidates
    targets = marks(rows) * n / sizes[:, None] - 1
    weighted = sizes.sqrt()[:, None] * targets
    tau = reg * (sizes.sum() * n).sqrt()
    values = torch.linalg.svdvals(weighted)[:width]
    return float((weighted**2).sum() - ((values - tau).clamp(min=0) ** 2).sum())


def test_the_optimum_is_the_dense_one() -> None:
    rows = random_pairs(30, 12)
    best = optimum(rg2(rows, 0.05), 3, 0)
    assert value(rg2(rows, 0.05), *best) == pytest.approx(dense_minimum(rows, 0.05, 3), rel=1e-9)


def test_every_solver_descends_to_it() -> None:
    data, _ = model_of_scores(1.0)
    options = {"width": 3, "sweeps": 30, "newton": 20, "adam": 300, "lr": 0.3, "reg": 0.05}
    result = diagnose("convergence", data, options)
    assert result.details["least"] == pytest.approx(
        dense_minimum(data.split("train"), 0.05, 3), rel=1e-5
    )
    for name, limit in (("als", 1e-3), ("newton-cg", 1e-5), ("adam", 0.05)):
        assert result.details["gaps"][name][-1] < limit, name
        assert result.details["gaps"][name][0] == pytest.approx(1), name
    rate = result.figures["contraction of ALS per sweep"]
    assert 0 < rate.value < result.details["promised"] < 1


def test_the_first_steps_of_newton_and_adam_start_at_the_same_value() -> None:
    rows = random_pairs(30, 12)
    objective, start = rg2(rows, 0.1), starting_vectors(rows, 3, 0)
    config = ConvergenceConfig(newton=2, adam=2)
    expected = value(objective, *start)
    newton = list(by_newton(objective, 0.1, start, config))
    adam = list(by_adam(objective, 0.1, start, config))
    assert newton[0].value == pytest.approx(expected)
    assert newton[-1].value < newton[0].value
    assert adam[1].value < adam[0].value


def test_curvatures_are_eigenvalues_of_the_blocks_of_the_hessian() -> None:
    rows = random_pairs(6, 5)
    objective = rg2(rows, 0.1)
    queries, candidates = (one.double() for one in starting_vectors(rows, 2, 0))
    eigenvalues = []
    for x in range(6):

        def of_query(p, x=x):
            moved = queries.clone()
            moved = torch.cat([moved[:x], p[None], moved[x + 1 :]])
            return dense_value(rows, moved, candidates, 0.1)

        hessian = torch.autograd.functional.hessian(of_query, queries[x])
        eigenvalues += torch.linalg.eigvalsh(hessian).tolist()
    for y in range(5):

        def of_candidate(q, y=y):
            moved = torch.cat([candidates[:y], q[None], candidates[y + 1 :]])
            return dense_value(rows, queries, moved, 0.1)

        hessian = torch.autograd.functional.hessian(of_candidate, candidates[y])
        eigenvalues += torch.linalg.eigvalsh(hessian).tolist()
    low, high = curvatures(objective, (queries, candidates))
    assert low == pytest.approx(min(eigenvalues))
    assert high == pytest.approx(max(eigenvalues))


def dense_value(rows: Interactions, queries: Tensor, candidates: Tensor, reg: float) -> Tensor:
    sizes, n = rows.counts().double(), rows.n_candidates
    gaps = queries @ candidates.T - (marks(rows) * n / sizes[:, None] - 1)
    penalty = n * (sizes * (queries**2).sum(dim=1)).sum() + sizes.sum() * (candidates**2).sum()
    return (sizes[:, None] * gaps**2).sum() + reg * penalty


def test_the_rate_of_a_planted_sequence_is_found() -> None:
    assert ratios_of([0.5**i for i in range(20)]) == pytest.approx([0.5] * 9)
