"""Theorem 14 by its formula in plain numbers, the lemma behind it by its own equation."""

import math

import pytest
import torch
from scored_models import model_of_scores, random_pairs

from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.generalisation import Capacity, capacity, dcg_constant


def test_the_printed_bound_is_the_formula() -> None:
    """At a dimension at which plain numbers do not overflow."""
    d, smooth, loss, m, delta = 5.0, 40.0, 3.0, 1000, 0.1
    inside = (d + 1) * loss**4 * math.exp(d + 1) * smooth**d / (m * delta)
    expected = 16 * inside ** (1 / (d + 2))
    assert Capacity(d, smooth, loss, m, delta).printed() == pytest.approx(math.log(expected))


def test_the_lemma_is_solved() -> None:
    d, smooth, loss, m, delta = 5.0, 40.0, 3.0, 10**7, 0.1
    bound = math.exp(Capacity(d, smooth, loss, m, delta).sharper())
    covering = 4 * math.e * (d + 1) * (16 * math.e * smooth / bound) ** d
    assert covering * math.exp(-m * bound**2 / (32 * loss**4)) == pytest.approx(delta, rel=1e-6)
    assert bound < math.exp(Capacity(d, smooth, loss, m, delta).printed())


def test_capacity_and_constant_equal_loops() -> None:
    rows = random_pairs(12, 7)
    rng = torch.Generator().manual_seed(0)
    queries, candidates = torch.randn(12, 3, generator=rng), torch.randn(7, 3, generator=rng)
    numbers = capacity(rows, queries, candidates, 0.05)
    loss, sizes = 0.0, rows.counts().tolist()
    for x in range(12):
        chosen = rows.part(x, x + 1).candidates.tolist()
        for y in range(7):
            target = (7 / sizes[x] if y in chosen else 0) - 1
            loss += sizes[x] * (float(queries[x] @ candidates[y]) - target) ** 2
    longest = max(q.norm() for q in queries) * max(c.norm() for c in candidates)
    assert numbers.loss == pytest.approx(loss / rows.n_pairs, rel=1e-5)
    assert numbers.lipschitz == pytest.approx(2 * (2 * 7**0.5 * float(longest) + 8), rel=1e-6)
    assert numbers.dimension == pytest.approx(3 * 19 * math.log(16 * math.e * 12 / 3))
    squares = sum(1 / math.log2(1 + k) ** 2 for k in range(1, 8))
    assert dcg_constant(rows) == pytest.approx(math.sqrt(2 * squares * max(sizes)) / 7)


def test_the_gap_is_that_of_the_losses() -> None:
    data, model = model_of_scores(1.0)
    result = diagnose("generalisation", data, model=model)
    scores = model.model.tensors["queries"] @ model.model.tensors["candidates"].T
    means = [
        float(scores[one.query_of_pair().long(), one.candidates.long()].mean())
        for one in (data.split("train"), data.split("test"))
    ]
    gap = result.figures["measured gap, held-out less training loss"]
    assert gap.value == pytest.approx(2 * 25 * (means[0] - means[1]), rel=1e-4)
    assert gap.low < gap.value < gap.high
    assert result.details["vacuous"]
    assert "vacuous" in result.follows
