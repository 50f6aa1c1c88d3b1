"""The conditions of Theorem 1 by loops over pairs, and the risks by the library's references."""

import math

import pytest
import torch
from linear_grades import data_of

import rankfold as rf
from rankfold.errors import UserError
from rankfold.losses.low_fpr import exact_risk, surrogate_risk
from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.conditions import _EXPONENTS, check_threshold


@pytest.mark.parametrize(("rate", "sigma"), [(0.1, 0.05), (0.25, 0.3), (0.01, 0.02)])
def test_both_sides_equal_loops(rate: float, sigma: float) -> None:
    rng = torch.Generator().manual_seed(0)
    scores = torch.randn(50, generator=rng, dtype=torch.float64)
    positive = torch.rand(50, generator=rng) < 0.4
    scores[positive] += 1
    measured = check_threshold(scores, positive, rate, sigma)
    own, negatives = scores[positive].tolist(), sorted(scores[~positive].tolist(), reverse=True)
    n = len(negatives)
    cut = math.ceil(rate * n - 1e-9) - 1
    raw = [math.exp(-((j / n - rate) ** 2) / (2 * sigma**2)) for j in range(n)]
    p = [one / sum(raw) for one in raw]
    assert measured.mean_score == pytest.approx(
        sum(a * b for a, b in zip(p, negatives, strict=True)) - negatives[cut]
    )
    others = [j for j in range(n) if j != cut]

    def loss(i: float, j: int) -> float:
        return math.log1p(math.exp(negatives[j] - i))

    sides = []
    for u in _EXPONENTS:
        pairs = [loss(i, j) ** (1 / u) for i in own for j in others]
        weights = [p[j] ** (1 / (1 - u)) for j in others]
        sides.append(
            (n - 1) * (sum(pairs) / len(pairs)) ** u * (sum(weights) / len(weights)) ** (1 - u)
        )
    assert measured.left == pytest.approx(min(sides), rel=1e-9)
    exact = [loss(i, cut) for i in own]
    assert measured.right == pytest.approx((1 - p[cut]) * sum(exact) / len(exact))
    grades = positive.long()
    risk = surrogate_risk(scores, grades, 2, rate, sigma)
    assert float(measured.surrogate.mean()) == pytest.approx(float(risk))
    assert float(measured.exact.mean()) == pytest.approx(float(exact_risk(scores, positive, rate)))


def test_condition_c_implies_the_inequality() -> None:
    """Where (c) holds, the surrogate is at most the exact risk."""
    rng = torch.Generator().manual_seed(1)
    held = 0
    for _ in range(60):
        positive = torch.arange(40) < 15
        scores = torch.where(positive, 0.7, 0.3) + 0.3 * torch.rand(1, generator=rng) * torch.randn(
            40, generator=rng
        )
        one = check_threshold(scores.double(), positive, 0.1, 1.0)
        if one.left <= one.right:
            held += 1
            assert one.surrogate.mean() <= one.exact.mean() + 1e-9
    assert held > 0


def test_a_fitted_grader_is_measured_and_pairs_are_refused() -> None:
    data = data_of()
    model = rf.fit("ce", data, epochs=2, width=4)
    result = diagnose("conditions", data, {"sigmas": 4, "rate": 0.05}, model=model)
    assert result.details["method"] == "ce"
    assert result.details["split"] == "test"
    assert len(result.details["holder_left_over_right"]) == 4
    with pytest.raises(UserError, match="ranks does not take a model"):
        diagnose("ranks", data, model=model)
