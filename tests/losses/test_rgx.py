"""The RGx loss matches its formula."""

import pytest
import torch
from pools import assert_by_hand
from torch import Tensor
from torch.autograd.functional import hessian, jacobian

from rankfold.losses.rgx import rgx_loss
from rankfold.losses.softmax import softmax_loss


def by_hand(positives: list[tuple[float, float]], negatives: list[float]) -> float:
    if not positives:
        return 0.0
    every = [s for s, _ in positives] + negatives
    own = sum(w * s for s, w in positives) / sum(w for _, w in positives)
    squares = sum((s + 1) ** 2 for s in every) / (2 * len(every))
    return -own + squares - sum(every) ** 2 / (2 * len(every) ** 2)


@pytest.mark.parametrize("seed", range(5))
def test_value_matches_the_formula(seed: int) -> None:
    assert_by_hand(rgx_loss, by_hand, seed)


def test_equals_softmax_to_second_order() -> None:
    zeros = torch.zeros(1, 4, dtype=torch.float64)
    grades, valid = torch.tensor([[1, 0, 1, 0]]), torch.tensor([[True, True, True, False]])

    def ours(scores: Tensor) -> Tensor:
        return rgx_loss(scores, grades, valid).sum()

    def softmax(scores: Tensor) -> Tensor:
        return softmax_loss(scores, grades, valid).sum()

    torch.testing.assert_close(jacobian(ours, zeros), jacobian(softmax, zeros))
    torch.testing.assert_close(hessian(ours, zeros), hessian(softmax, zeros))


def test_adding_a_constant_to_a_query_changes_nothing() -> None:
    scores, grades = torch.randint(-8, 8, (4, 7)).float(), torch.ones(4, 7).tril().long()
    valid = torch.ones(4, 7, dtype=torch.bool)
    torch.testing.assert_close(
        rgx_loss(scores + 4096, grades, valid), rgx_loss(scores, grades, valid), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0])
def test_single_precision_is_near_double(offset: float) -> None:
    """Values and gradients, whatever constant all scores of a query have."""
    rng = torch.Generator().manual_seed(1)
    single = (torch.randn(4, 50, generator=rng) + offset).requires_grad_()
    double = single.detach().double().requires_grad_()
    grades = torch.ones(4, 50).tril().long()
    valid = torch.rand(4, 50, generator=rng) < 0.9
    losses = [rgx_loss(scores, grades, valid) for scores in (single, double)]
    torch.testing.assert_close(losses[0].double(), losses[1], rtol=2e-6, atol=2e-6)
    for loss in losses:
        loss.sum().backward()
    assert single.grad is not None
    torch.testing.assert_close(single.grad.double(), double.grad, rtol=1e-5, atol=1e-5)
