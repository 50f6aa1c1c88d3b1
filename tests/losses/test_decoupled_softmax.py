"""Softmax in which positives do not compete."""

import math

import torch

from rankfold.losses.decoupled_softmax import decoupled_softmax_loss
from rankfold.losses.softmax import softmax_loss

ALL = torch.ones(1, 4, dtype=torch.bool)


def test_value_matches_the_formula() -> None:
    scores, grades = torch.tensor([[2.0, 1.0, 3.0, -1.0]]), torch.tensor([[1, 1, 0, 0]])
    rivals = math.exp(3) + math.exp(-1)
    each = [math.log(1 + rivals / math.exp(s)) for s in (2.0, 1.0)]
    torch.testing.assert_close(
        decoupled_softmax_loss(scores, grades, ALL), torch.tensor([sum(each) / 2])
    )


def test_value_equals_a_loop() -> None:
    scores, grades = torch.randn(6, 9, dtype=torch.float64), torch.randint(0, 2, (6, 9))
    valid, weights = torch.rand(6, 9) > 0.2, torch.rand(6, 9, dtype=torch.float64)
    expected = torch.zeros(6, dtype=torch.float64)
    for b in range(6):
        rivals = sum(math.exp(scores[b, j]) for j in range(9) if valid[b, j] and grades[b, j] == 0)
        mine = [c for c in range(9) if valid[b, c] and grades[b, c] > 0]
        each = [weights[b, c] * math.log(1 + rivals / math.exp(scores[b, c])) for c in mine]
        expected[b] = sum(each) / max(float(sum(weights[b, c] for c in mine)), 1e-30)
    torch.testing.assert_close(decoupled_softmax_loss(scores, grades, valid, weights), expected)


def test_one_positive_is_softmax() -> None:
    scores = torch.randn(5, 7)
    grades = torch.nn.functional.one_hot(torch.randint(0, 7, (5,)), 7)
    valid = torch.ones(5, 7, dtype=torch.bool)
    torch.testing.assert_close(
        decoupled_softmax_loss(scores, grades, valid), softmax_loss(scores, grades, valid)
    )


def test_positives_do_not_compete() -> None:
    scores = torch.zeros(1, 4, requires_grad=True)
    decoupled_softmax_loss(scores, torch.tensor([[1, 1, 0, 0]]), ALL).sum().backward()
    assert scores.grad is not None
    alone = torch.zeros(1, 3, requires_grad=True)
    decoupled_softmax_loss(alone, torch.tensor([[1, 0, 0]]), ALL[:, :3]).sum().backward()
    assert alone.grad is not None
    torch.testing.assert_close(scores.grad[0, 0] * 2, alone.grad[0, 0])


def test_a_query_without_a_rival_costs_nothing() -> None:
    scores = torch.randn(1, 4, requires_grad=True)
    loss = decoupled_softmax_loss(scores, torch.ones(1, 4), ALL)
    loss.sum().backward()
    assert loss.item() == 0
    assert scores.grad is not None
    assert torch.equal(scores.grad, torch.zeros(1, 4))
