"""The sparsemax loss and its gradient match their formulas."""

import pytest
import torch
from pools import assert_by_hand, random_pool, sparsemax_threshold

from rankfold.losses.sparsemax import sparsemax_loss


def by_hand(positives: list[tuple[float, float]], negatives: list[float]) -> float:
    if not positives:
        return 0.0
    every = [s for s, _ in positives] + negatives
    tau = sparsemax_threshold(every)
    half = sum(s**2 - tau**2 for s in every if s > tau) / 2 + 1 / 2
    return sum(w * (half - s) for s, w in positives) / sum(w for _, w in positives)


@pytest.mark.parametrize("seed", range(5))
def test_value_matches_the_formula(seed: int) -> None:
    assert_by_hand(sparsemax_loss, by_hand, seed)


@pytest.mark.parametrize("seed", range(5))
def test_gradient_is_sparsemax_minus_the_positive(seed: int) -> None:
    scores, _, valid, _ = random_pool(seed)
    valid[:, 3] = True
    scores = scores.nan_to_num().requires_grad_()
    grades = torch.zeros(6, 8).long()
    grades[:, 3] = 1
    (gradient,) = torch.autograd.grad(sparsemax_loss(scores, grades, valid).sum(), scores)
    for b in range(6):
        row, tau = scores[b].tolist(), sparsemax_threshold(scores[b][valid[b]].tolist())
        expected = [max(0.0, row[c] - tau) if valid[b, c] else 0.0 for c in range(8)]
        expected[3] -= 1
        assert gradient[b].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("spread", [0.01, 1.0, 100.0])
def test_value_is_never_negative(spread: float) -> None:
    rng = torch.Generator().manual_seed(0)
    scores = spread * torch.randn(50, 9, generator=rng, dtype=torch.float64)
    grades = torch.zeros(50, 9).long()
    grades[:, 0] = 1
    valid = torch.ones(50, 9, dtype=torch.bool)
    assert (sparsemax_loss(scores, grades, valid) >= 0).all()


def test_a_margin_of_1_is_enough() -> None:
    scores, grades = torch.tensor([[2.0, 1.0, -3.0]]), torch.tensor([[1, 0, 0]])
    valid = torch.ones(1, 3, dtype=torch.bool)
    assert sparsemax_loss(scores, grades, valid).item() == pytest.approx(0)
    scores = torch.tensor([[2.0, 1.5, -3.0]])
    assert sparsemax_loss(scores, grades, valid).item() == pytest.approx(1 / 16)


def test_adding_a_constant_to_a_query_changes_nothing() -> None:
    scores, grades = torch.randint(-8, 8, (4, 7)) / 8, torch.ones(4, 7).tril().long()
    valid = torch.ones(4, 7, dtype=torch.bool)
    torch.testing.assert_close(
        sparsemax_loss(scores + 4096, grades, valid), sparsemax_loss(scores, grades, valid)
    )
