import math
from decimal import Decimal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import softplus

from rankfold.losses.bpr import bpr_loss
from rankfold.losses.low_fpr import (
    above,
    exact_ranks,
    exact_risk,
    low_fpr_loss,
    rank_weights,
    surrogate_risk,
)


def test_value_matches_the_formula() -> None:
    scores = torch.tensor([[2.0, 1.0, 3.0, 0.5]])
    weights = torch.tensor([[9.0, 1.0, 3.0, 9.0]])  # those of the positives do not count
    result = low_fpr_loss(scores, torch.tensor([[1, 0, 0, 1]]), torch.ones(1, 4).bool(), weights)

    def cost(positive: float) -> float:
        near, far = math.log1p(math.exp(1 - positive)), math.log1p(math.exp(3 - positive))
        return 0.25 * near + 0.75 * far

    assert result.item() == pytest.approx((cost(2.0) + cost(0.5)) / 2)


def test_without_weights_it_is_bpr() -> None:
    scores, grades = torch.randn(6, 11), torch.randint(0, 2, (6, 11))
    valid = torch.rand(6, 11) > 0.3
    torch.testing.assert_close(low_fpr_loss(scores, grades, valid), bpr_loss(scores, grades, valid))


def test_an_empty_side_costs_nothing() -> None:
    scores = torch.randn(2, 5, requires_grad=True)
    grades = torch.tensor([[1] * 5, [0] * 5])
    loss = low_fpr_loss(scores, grades, torch.ones(2, 5).bool(), torch.rand(2, 5))
    loss.sum().backward()
    assert torch.equal(loss, torch.zeros(2))
    assert scores.grad is not None
    assert torch.equal(scores.grad, torch.zeros(2, 5))


scores_and_sides = st.lists(
    st.tuples(st.integers(-5, 5), st.booleans()), min_size=1, max_size=30
).map(lambda rows: (torch.tensor([float(s) for s, _ in rows]), torch.tensor([p for _, p in rows])))


@given(scores_and_sides)
def test_ranks_count_the_negatives_above(given_: tuple[Tensor, Tensor]) -> None:
    scores, positive = given_
    negatives = scores[~positive].tolist()
    expected = [sum(n > s for n in negatives) / max(len(negatives), 1) for s in scores.tolist()]
    assert exact_ranks(scores, ~positive).tolist() == pytest.approx(expected)


@given(scores_and_sides, st.sampled_from([0.01, 0.1, 0.3, 0.5]))
def test_the_exact_risk_is_against_one_negative(given_: tuple[Tensor, Tensor], fpr: float) -> None:
    scores, positive = given_
    negatives = sorted(scores[~positive].tolist(), reverse=True)
    expected = 0.0
    if negatives and bool(positive.any()):
        cut = negatives[max(1, math.ceil(fpr * len(negatives) - 1e-9)) - 1]
        costs = [math.log1p(math.exp(cut - s)) for s in scores[positive].tolist()]
        expected = sum(costs) / len(costs)
    assert exact_risk(scores, positive, fpr).item() == pytest.approx(expected, rel=1e-5)


def test_weights_are_the_gaussian_of_ranks() -> None:
    ranks, negative = torch.tensor([[0.0, 0.1, 0.5]]), torch.tensor([[True, True, False]])
    result = rank_weights(ranks, negative, 0.1, 0.05)
    far = math.exp(-(0.1**2) / (2 * 0.05**2))
    assert result.tolist()[0] == pytest.approx([far / (1 + far), 1 / (1 + far), 0.0])


@given(st.floats(0.01, 0.99), st.integers(2, 60))
def test_small_sigma_puts_all_weight_on_the_negatives_at_the_rate(fpr: float, n: int) -> None:
    ranks = torch.arange(n).double()[None] / n
    for sigma in (1e-4, 1e-20, 1e-30):  # also where its square is 0 in single precision
        narrow = rank_weights(ranks.float(), torch.ones(1, n).bool(), fpr, sigma)
        assert float(narrow.sum()) == pytest.approx(1)
    weights = rank_weights(ranks, torch.ones(1, n).bool(), fpr, 1e-4)
    nearest = (ranks - fpr).abs() <= (ranks - fpr).abs().min() + 1e-3
    assert float(weights[nearest].sum()) == pytest.approx(1.0, abs=1e-6)
    wide = rank_weights(ranks, torch.ones(1, n).bool(), fpr, 1e4)
    torch.testing.assert_close(wide, torch.full_like(wide, 1 / n))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [5e-324, 1e-300, 1e-45, 1e-20, 1e-3, 1, 1e20, 1e38, 1e300, 1e308])
def test_every_sigma_has_weights(sigma: float, dtype: torch.dtype) -> None:
    """Even one that is 0 or infinity as a float: the reference uses decimals."""
    ranks = torch.tensor([[0.0, 0.25, 0.75, 0.5, 0.5, 1.0], [0.0] * 6], dtype=dtype)
    negative = torch.tensor([[True, True, True, True, True, False], [False] * 6])
    result = rank_weights(ranks, negative, 0.5, sigma)
    wide = Decimal(sigma)
    parts = [
        (-((Decimal(r) - Decimal("0.5")) ** 2) / wide / wide / 2).exp()
        for r in ranks[0, :5].tolist()
    ]
    expected = [float(part / sum(parts)) for part in parts]
    assert result.dtype == dtype
    assert result[0].tolist() == pytest.approx([*expected, 0.0], rel=1e-6)
    assert result[1].tolist() == [0.0] * 6


def test_without_negatives_weights_are_zero() -> None:
    assert rank_weights(torch.zeros(1, 3), torch.zeros(1, 3).bool(), 0.1, 0.1).tolist() == [[0] * 3]


def test_the_surrogate_tends_to_the_exact_risk() -> None:
    """With beta n not whole there is one negative at the rate."""
    rng = torch.Generator().manual_seed(0)
    scores = torch.randn(300, generator=rng, dtype=torch.float64)
    grades = torch.randint(0, 2, (300,), generator=rng)
    n = int((grades == 0).sum())
    fpr = 7 / n  # the ranks are 0/n, 1/n, ...: the 8th highest has rank 7/n
    expected = exact_risk(scores, grades > 0, 7.5 / n)
    result = [surrogate_risk(scores, grades, 2, fpr, sigma) for sigma in (0.3, 1e-5)]
    assert float(result[1]) == pytest.approx(float(expected))
    assert abs(float(result[0] - expected)) > 0.01


def test_the_surrogate_is_the_mean_over_thresholds() -> None:
    rng = torch.Generator().manual_seed(1)
    scores = torch.randn(40, generator=rng, dtype=torch.float64)
    grades = torch.randint(0, 4, (40,), generator=rng)
    fpr, sigma, values = 0.1, 0.2, []
    for k in range(3):
        up, down = scores[grades > k], scores[grades <= k]
        ranks = (down[None] > down[:, None]).double().mean(dim=1)
        p = torch.exp(-((ranks - fpr) ** 2) / (2 * sigma**2))
        costs = softplus(down[None] - up[:, None]) @ (p / p.sum())
        values.append(costs.mean())
    result = surrogate_risk(scores, grades, 4, fpr, sigma)
    assert float(result) == pytest.approx(float(torch.stack(values).mean()))
    assert above(grades, 4).shape == (3, 40)


def test_the_gradient_holds_the_weights_fixed() -> None:
    rng = torch.Generator().manual_seed(2)
    scores = torch.randn(30, generator=rng, dtype=torch.float64, requires_grad=True)
    grades = torch.randint(0, 3, (30,), generator=rng)
    positive = above(grades, 3)
    ranks = torch.stack([exact_ranks(scores.detach(), ~side) for side in positive])
    fixed = rank_weights(ranks, ~positive, 0.1, 0.1)

    def formula(values: Tensor) -> Tensor:
        pool = values.expand(2, -1)
        return low_fpr_loss(pool, positive, torch.ones_like(positive), fixed).mean()

    assert torch.autograd.gradcheck(formula, scores)
    surrogate_risk(scores, grades, 3, 0.1, 0.1).backward()
    (expected,) = torch.autograd.grad(formula(scores), scores)
    torch.testing.assert_close(scores.grad, expected)
