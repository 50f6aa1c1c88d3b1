"""Corrections match the formulas."""

import pytest
import torch
from torch import Tensor

from rankfold.samplers.corrections import CORRECTIONS, RESAMPLED
from rankfold.types import Pool

Q = torch.tensor([0.1, 0.2, 0.4])


def pool(log_q: Tensor) -> Pool:
    return Pool(torch.arange(3).expand(log_q.shape), log_q, torch.tensor([0.25, 0.5]).log())


@pytest.mark.parametrize("log_q", [Q.log(), Q.log().expand(2, 3)])
def test_of_proposed_pools(log_q: Tensor) -> None:
    positive, scores = torch.randn(2), torch.randn(2, 3)
    expected = {
        "none": (positive, scores),
        "negatives": (positive, scores - (3 * Q).log()),
        "all": (positive - torch.tensor([0.25, 0.5]).log(), scores - Q.log()),
    }
    assert expected.keys() == CORRECTIONS.keys()
    for name, correct in CORRECTIONS.items():
        torch.testing.assert_close(correct(positive, scores, pool(log_q)), expected[name])


def test_negatives_corrected_stand_for_all_candidates(rng: torch.Generator) -> None:
    """The corrected columns sum to the full partition function, on average."""
    scores, q = torch.randn(6, generator=rng), torch.rand(6, generator=rng).softmax(0)
    ids = torch.multinomial(q, 40_000, replacement=True, generator=rng).view(2000, 20)
    drawn = Pool(ids, q.log()[ids], torch.zeros(2000))
    _, logits = CORRECTIONS["negatives"](torch.zeros(2000), scores[ids], drawn)
    expected = float(scores.exp().sum())
    assert logits.exp().sum(dim=1).mean().item() == pytest.approx(expected, rel=0.01)


def test_of_picks() -> None:
    scores, weights = torch.randn(2, 5), torch.rand(2, 5)
    expected = {
        "released": scores,
        "appendix": scores - (7 * weights).log(),
        "sir": scores,
    }
    assert expected.keys() == RESAMPLED.keys()
    for name, correct in RESAMPLED.items():
        torch.testing.assert_close(correct(scores, weights, 7), expected[name])
