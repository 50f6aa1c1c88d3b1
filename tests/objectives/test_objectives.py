"""Every named objective is the sum that its definition writes out, over all pairs."""

import pytest
import torch
from dense import OBJECTIVES, Case, random_rows
from torch import Tensor

from rankfold.objectives.quadratic import value
from rankfold.objectives.rg import rg2, rg2_sampled, rg2_weighted, rgx, rgx_sampled


@pytest.mark.parametrize("case", OBJECTIVES, ids=lambda case: case.name)
@pytest.mark.parametrize("seed", range(3))
def test_value_is_the_dense_sum(case: Case, seed: int) -> None:
    rows, r = random_rows(seed, graded=case.graded)
    rng = torch.Generator().manual_seed(seed + 100)
    p = torch.randn(9, 3, generator=rng, dtype=torch.float64)
    q = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    assert value(case.build(rows), p, q) == pytest.approx(float(case.dense(r, p, q)), rel=1e-9)


def scores_only(r: Tensor, scores: Tensor, n: int, *, centred: bool) -> float:
    """Twice the expected loss of every pair to second order, pools enumerated.

    A pool is the positive and n uniform draws (with replacement, positives included).
    """
    total, count = 0.0, r.shape[1]
    draws = torch.cartesian_prod(*[torch.arange(count)] * n).view(-1, n)
    for x, y in r.nonzero():
        pool = torch.cat([scores[x, y].expand(len(draws), 1), scores[x][draws]], dim=1)
        loss = -2 * scores[x, y] + ((pool + 1) ** 2).mean(dim=1)
        if centred:
            loss = loss - pool.mean(dim=1) ** 2
        total += float(loss.mean())
    return total


@pytest.mark.parametrize("negatives", [1, 2, 4])
@pytest.mark.parametrize("centred", [False, True])
def test_sampled_objectives_are_the_expectation_over_pools(
    negatives: int, *, centred: bool
) -> None:
    """Differences of values, so that constants do not count."""
    rows, r = random_rows(0, m=4, n=5)
    build = rgx_sampled if centred else rg2_sampled
    objective = build(rows, 0.0, negatives)
    rng = torch.Generator().manual_seed(1)
    actual, expected = [], []
    for _ in range(3):
        p = torch.randn(4, 2, generator=rng, dtype=torch.float64)
        q = torch.randn(5, 2, generator=rng, dtype=torch.float64)
        actual.append(value(objective, p, q))
        expected.append(scores_only(r, p @ q.T, negatives, centred=centred))
    gaps = [f - e for f, e in zip(actual, expected, strict=True)]
    assert gaps == pytest.approx([gaps[0]] * 3, abs=1e-9)


def test_many_negatives_give_the_full_softmax() -> None:
    """RG2 and RGx over N, up to terms of order 1/n."""
    rows, _ = random_rows(3)
    rng = torch.Generator().manual_seed(1)
    p = torch.randn(9, 3, generator=rng, dtype=torch.float64)
    q = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    for sampled, whole in (
        (rg2_sampled(rows, 0.1, 10**7), rg2(rows, 0.1)),
        (rgx_sampled(rows, 0.1, 10**7), rgx(rg2(rows, 0.1))),
    ):
        zero = torch.zeros_like
        actual = value(sampled, p, q) - value(sampled, zero(p), zero(q))
        expected = (value(whole, p, q) - value(whole, zero(p), zero(q))) / 7
        assert actual == pytest.approx(expected, rel=1e-5)


def test_rgx_ignores_a_constant_added_to_the_scores_of_a_query() -> None:
    rows, _ = random_rows(2)
    objective = rgx(rg2_weighted(rows, 0.0, 0.0))
    rng = torch.Generator().manual_seed(4)
    p = torch.randn(9, 3, generator=rng, dtype=torch.float64)
    q = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    p[:, 2], q[:, 2] = 0, 1  # the last component is a constant
    moved = p.clone()
    moved[:, 2] = torch.randn(9, generator=rng, dtype=torch.float64)
    assert value(objective, moved, q) == pytest.approx(value(objective, p, q), rel=1e-9)


def test_weighted_rg2_without_extra_weight_is_rg2_over_2n() -> None:
    rows, _ = random_rows(5)
    rng = torch.Generator().manual_seed(4)
    p = torch.randn(9, 3, generator=rng, dtype=torch.float64)
    q = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    assert value(rg2_weighted(rows, 0.2, 0.0), p, q) == pytest.approx(
        value(rg2(rows, 0.2), p, q) / 14, rel=1e-9
    )
