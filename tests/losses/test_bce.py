"""Binary cross-entropy matches its formula."""

from math import exp, log

import pytest
import torch
from pools import assert_by_hand

from rankfold.losses.bce import bce_loss


def by_hand(positives: list[tuple[float, float]], negatives: list[float]) -> float:
    if not positives:
        return 0.0
    up = sum(w * -log(1 / (1 + exp(-s))) for s, w in positives) / sum(w for _, w in positives)
    down = sum(-log(1 - 1 / (1 + exp(-t))) for t in negatives) / len(positives)
    return up + down


@pytest.mark.parametrize("seed", range(5))
def test_value_matches_the_formula(seed: int) -> None:
    assert_by_hand(bce_loss, by_hand, seed)


def test_one_positive_is_plain_cross_entropy() -> None:
    scores, grades = torch.tensor([[2.0, 1.0, -3.0]]), torch.tensor([[0, 1, 0]])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        scores, grades.float(), reduction="sum"
    )
    torch.testing.assert_close(
        bce_loss(scores, grades, torch.ones(1, 3, dtype=torch.bool))[0], expected
    )
