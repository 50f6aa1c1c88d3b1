"""The RG2 loss matches its formula."""

import pytest
import torch
from pools import assert_by_hand

from rankfold.losses.rg2 import rg2_loss


def by_hand(positives: list[tuple[float, float]], negatives: list[float]) -> float:
    if not positives:
        return 0.0
    every = [s for s, _ in positives] + negatives
    own = sum(w * s for s, w in positives) / sum(w for _, w in positives)
    return -own + sum((s + 1) ** 2 for s in every) / (2 * len(every))


@pytest.mark.parametrize("seed", range(5))
def test_value_matches_the_formula(seed: int) -> None:
    assert_by_hand(rg2_loss, by_hand, seed)


def test_minimum_is_the_target_of_the_quadratic_objective() -> None:
    target = torch.tensor([[4 / 2 - 1, -1, 4 / 2 - 1, -1]], requires_grad=True)  # r N / |I| - 1
    loss = rg2_loss(target, torch.tensor([[1, 0, 1, 0]]), torch.ones(1, 4, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(loss.sum(), target)
    torch.testing.assert_close(gradient, torch.zeros(1, 4))
