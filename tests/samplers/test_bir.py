"""BIR picks by its conditional weights."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rankfold.samplers.bir import Bir, pick_weights
from rankfold.samplers.popularity import popularity
from rankfold.samplers.resampling import multinomial
from rankfold.types import Batch

Follow = Callable[[Tensor, Tensor], bool]


def test_weights_match_the_formula() -> None:
    scores, pop = torch.tensor([[1.0, 2.0, 0.5]]), torch.tensor([0.5, 0.3, 0.2])
    valid = torch.tensor([[True, False, True]])
    first, third = math.exp(1) / 0.5, math.exp(0.5) / 0.2
    expected = [first / (first + third), 0.0, third / (first + third)]
    result = pick_weights(scores, pop.log(), valid)
    assert result[0].tolist() == pytest.approx(expected)


def test_picks_follow_the_weights(
    times_follow: Follow, counts: Tensor, rng: torch.Generator
) -> None:
    pop = popularity(counts, "count").log().float()
    batch = Batch(torch.arange(4), torch.tensor([9, 1, 9, 6]))
    sampler = Bir(pop, 20_000, multinomial)
    pool = sampler.propose(batch, rng)
    scores = torch.randn(4, 4, generator=rng)
    valid = ~torch.eye(4, dtype=torch.bool)
    drawn = sampler.resample(scores, pool, valid, rng)
    (picks,) = drawn.groups
    assert picks.times.sum(dim=1).tolist() == [20_000.0] * 4
    assert (drawn.draws, picks.share) == (20_000, 1.0)
    weights = pick_weights(scores, pop[batch.candidates], valid)
    for b in range(4):
        assert times_follow(picks.times[b], weights[b])
    torch.testing.assert_close(picks.weights, weights)
    uncorrected = pick_weights(scores, torch.zeros(4), valid)
    assert not times_follow(picks.times[0], uncorrected[0])


def test_invalid_columns_are_neither_read_nor_picked(rng: torch.Generator) -> None:
    sampler = Bir(torch.zeros(5), draws=200)
    batch = Batch(torch.arange(3), torch.tensor([0, 1, 2]))
    scores, valid = torch.zeros(3, 3), torch.ones(3, 3).bool()
    scores[0, 1], valid[0, 1], scores[2], valid[2] = torch.nan, False, torch.nan, False
    drawn = sampler.resample(scores, sampler.propose(batch, rng), valid, rng)
    (picks,) = drawn.groups
    assert picks.times[0, 1] == 0
    assert picks.times.sum(dim=1).tolist() == [200.0, 200.0, 0.0]
    assert torch.equal(picks.weights > 0, valid)


def test_a_short_batch_is_picked_from_as_often(rng: torch.Generator) -> None:
    sampler = Bir(torch.zeros(5), draws=64)
    batch = Batch(torch.tensor([0]), torch.tensor([3]))
    pool = sampler.propose(batch, rng)
    drawn = sampler.resample(torch.zeros(1, 1), pool, torch.ones(1, 1).bool(), rng)
    assert drawn.groups[0].times.tolist() == [[64.0]]
    assert drawn.groups[0].weights.tolist() == [[1.0]]
