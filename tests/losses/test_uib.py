"""The boundary loss matches its formula."""

from functools import partial
from math import exp, log

import pytest
import torch
from pools import assert_by_hand

from rankfold.losses.uib import uib_loss


def by_hand(positives: list[tuple[float, float]], negatives: list[float]) -> float:
    if not positives:
        return 0.0
    loss = sum(w * log(1 + exp(-s)) for s, w in positives) / sum(w for _, w in positives)
    if negatives:
        loss += sum(log(1 + exp(t)) for t in negatives) / len(negatives)
    return loss


@pytest.mark.parametrize("seed", range(5))
def test_value_matches_the_formula(seed: int) -> None:
    assert_by_hand(uib_loss, by_hand, seed)


def test_query_without_negatives_has_only_the_positive_term() -> None:
    scores, grades = torch.tensor([[2.0, -1.0]]), torch.tensor([[1, 1]])
    loss = uib_loss(scores, grades, torch.ones(1, 2, dtype=torch.bool))
    assert loss.item() == pytest.approx((log(1 + exp(-2)) + log(1 + exp(1))) / 2)


@pytest.mark.parametrize("margin", [0.0, 0.7])
def test_margin_replaces_the_logistic_loss_by_a_hinge(margin: float) -> None:
    def hinge(positives: list[tuple[float, float]], negatives: list[float]) -> float:
        if not positives:
            return 0.0
        loss = sum(w * max(0.0, margin - s) for s, w in positives) / sum(w for _, w in positives)
        return loss + sum(max(0.0, margin + t) for t in negatives) / max(1, len(negatives))

    for seed in range(3):
        assert_by_hand(partial(uib_loss, margin=margin), hinge, seed)
