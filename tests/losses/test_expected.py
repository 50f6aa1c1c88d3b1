"""The expected-score loss matches its formula."""

import pytest
import torch
from pools import assert_by_hand

from rankfold.losses.expected import expected_loss
from rankfold.losses.softmax import softmax_loss


def by_hand(positives: list[tuple[float, float]], negatives: list[float]) -> float:
    if not positives:
        return 0.0
    loss = -sum(w * s for s, w in positives) / sum(w for _, w in positives)
    if negatives:
        loss += sum(negatives) / len(negatives)
    return loss


@pytest.mark.parametrize("seed", range(5))
def test_value_matches_the_formula(seed: int) -> None:
    assert_by_hand(expected_loss, by_hand, seed)


def test_query_without_negatives_has_only_the_positive_term() -> None:
    scores, grades = torch.tensor([[2.0, -1.0]]), torch.tensor([[1, 1]])
    loss = expected_loss(scores, grades, torch.ones(1, 2, dtype=torch.bool))
    assert loss.item() == pytest.approx(-0.5)


def test_draws_from_softmax_give_the_gradient_of_softmax() -> None:
    chances = torch.tensor([1, 2, 5], dtype=torch.float64) / 8
    scores = chances.log().requires_grad_()
    pool = torch.tensor([[0, 0, 1, 1, 2, 2, 2, 2, 2]])  # the positive, then each by its chance
    grades = torch.zeros(1, 9).long()
    grades[0, 0] = 1
    everything = torch.ones(1, 9, dtype=torch.bool)
    (result,) = torch.autograd.grad(expected_loss(scores[pool], grades, everything)[0], scores)
    softmax = softmax_loss(scores[None], torch.tensor([[1, 0, 0]]), everything[:, :3])[0]
    (wanted,) = torch.autograd.grad(softmax, scores)
    torch.testing.assert_close(result, wanted)
