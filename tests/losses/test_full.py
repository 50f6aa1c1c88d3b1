"""Each loss over all candidates equals a loop over queries and candidates."""

import math

import pytest
import torch
from torch import Tensor

from rankfold.losses.full import FULL_LOSSES
from rankfold.types import Interactions

ROWS = [[0, 3], [], [6], [1, 2, 3, 4, 5], []]
N = 7


def positives(index: torch.dtype = torch.int32) -> Interactions:
    offsets = torch.tensor([0, *(len(row) for row in ROWS)]).cumsum(0)
    chosen = torch.tensor([c for row in ROWS for c in row], dtype=index)
    return Interactions(offsets, chosen, None, N)


def vectors() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(3)
    p, q = (torch.randn(m, 3, generator=rng, dtype=torch.float64) for m in (len(ROWS), N))
    return p.requires_grad_(), q.requires_grad_()


def softmax(scores: list[float]) -> float:
    return math.log(sum(math.exp(s) for s in scores))


def sparsemax(scores: list[float]) -> float:
    """The threshold is that of the largest support which is consistent."""
    ordered = sorted(scores, reverse=True)
    taus = [(sum(ordered[:k]) - 1) / k for k in range(1, len(scores) + 1)]
    tau = max(taus)  # the sum above any other threshold is more than 1
    return sum(s**2 - tau**2 for s in scores if s > tau) / 2 + 0.5


def rg2(scores: list[float]) -> float:
    return sum((s + 1) ** 2 for s in scores) / (2 * len(scores))


def rgx(scores: list[float]) -> float:
    return rg2(scores) - sum(scores) ** 2 / (2 * len(scores) ** 2)


VALUES = {"softmax": softmax, "sparsemax": sparsemax, "rg2": rg2, "rgx": rgx}


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", FULL_LOSSES)
def test_value_matches_the_formula(name: str, index: torch.dtype) -> None:
    p, q = vectors()
    result = FULL_LOSSES[name](p, q, positives(index)).tolist()
    for b, chosen in enumerate(ROWS):
        scores = [
            math.fsum(x * y for x, y in zip(p[b].tolist(), v, strict=True)) for v in q.tolist()
        ]
        expected = sum(VALUES[name](scores) - scores[c] for c in chosen) / max(1, len(chosen))
        assert result[b] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", FULL_LOSSES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    assert torch.autograd.gradcheck(lambda p, q: FULL_LOSSES[name](p, q, positives()), vectors())


@pytest.mark.parametrize("name", FULL_LOSSES)
def test_a_query_without_positives_costs_nothing_and_moves_nothing(name: str) -> None:
    p, q = vectors()
    loss = FULL_LOSSES[name](p, q, positives())
    loss.sum().backward()
    assert p.grad is not None
    for b in (1, 4):
        assert loss[b] == 0
        assert torch.equal(p.grad[b], torch.zeros_like(p.grad[b]))
    assert (p.grad[0] != 0).any()


@pytest.mark.parametrize("name", ["softmax", "rgx"])
def test_a_constant_added_to_all_scores_of_a_query_changes_nothing(name: str) -> None:
    p, q = (torch.cat([t.detach(), t.new_ones(len(t), 1)], dim=1) for t in vectors())
    shifted = p.clone()
    shifted[:, -1] += 2.5
    one, other = (FULL_LOSSES[name](x, q, positives()) for x in (p, shifted))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0])
def test_rgx_in_single_precision_is_near_double(offset: float) -> None:
    """Also if all scores of a query have a large constant: the squares of the mean would cancel."""
    p, q = (torch.cat([t.detach(), t.new_ones(len(t), 1)], dim=1) for t in vectors())
    p[:, -1], q[:, -1] = offset / 0.7, 0.7
    single = [t.float().requires_grad_() for t in (p, q)]
    double = [t.detach().double().requires_grad_() for t in single]
    losses = [FULL_LOSSES["rgx"](*pair, positives()) for pair in (single, double)]
    torch.testing.assert_close(losses[0].double(), losses[1], rtol=2e-6, atol=2e-6)
    actual, expected = (
        torch.autograd.grad(loss.sum(), pair)
        for loss, pair in zip(losses, (single, double), strict=True)
    )
    near = {
        "rtol": 1e-5,
        "atol": 1e-6 * max(1.0, offset),
    }  # the constant is a factor for candidates
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one.double(), other, **near)


def test_every_loss_has_its_formula_here() -> None:
    assert set(VALUES) == set(FULL_LOSSES)
