"""The likelihood of SiameseXML."""

import math

import pytest
import torch

from rankfold.losses.likelihood import likelihood_loss

ALL = torch.ones(1, 3, dtype=torch.bool)


def test_value_matches_the_formula() -> None:
    scores, grades = torch.tensor([[0.9, 0.2, -0.5]]), torch.tensor([[1, 0, 0]])
    p = [0.9 * math.exp(1.5 * (v - 1)) for v in (0.9, 0.2, -0.5)]
    expected = -math.log(p[0]) - math.log(1 - p[1]) - math.log(1 - p[2])
    assert likelihood_loss(scores, grades, ALL).item() == pytest.approx(expected)


@pytest.mark.parametrize(("c", "d"), [(0.9, 1.5), (0.75, 3.0), (0.2, 0.5)])
def test_value_equals_a_loop(c: float, d: float) -> None:
    scores = torch.rand(6, 9, dtype=torch.float64) * 2 - 1
    grades, valid = torch.randint(0, 2, (6, 9)), torch.rand(6, 9) > 0.2
    expected = torch.zeros(6, dtype=torch.float64)
    for b in range(6):
        p = [c * math.exp(d * (float(v) - 1)) for v in scores[b]]
        up = [-math.log(p[j]) for j in range(9) if valid[b, j] and grades[b, j] > 0]
        down = [-math.log(1 - p[j]) for j in range(9) if valid[b, j] and grades[b, j] == 0]
        expected[b] = (sum(up) + sum(down)) / len(up) if up else 0.0
    torch.testing.assert_close(likelihood_loss(scores, grades, valid, c=c, d=d), expected)


@pytest.mark.parametrize(("c", "d"), [(0.1, 0.3), (0.9, 1.5), (0.75, 3.0)])
def test_a_misordered_pair_costs_more_than_its_errors(c: float, d: float) -> None:
    """Summed over pairs, the loss is at least 1 - precision@k for any k up to the positives."""
    for _ in range(200):
        scores, grades = torch.rand(1, 12) * 2 - 1, (torch.rand(1, 12) < 0.3).long()
        positives = int(grades.sum())
        if positives == 0:
            continue
        total = likelihood_loss(scores, grades, torch.ones(1, 12).bool(), c=c, d=d) * positives
        order = scores[0].argsort(descending=True)
        for k in range(1, positives + 1):
            assert float(total) >= 1 - float(grades[0, order[:k]].double().mean()) - 1e-6
