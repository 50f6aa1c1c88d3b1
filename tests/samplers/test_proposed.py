"""Samplers that draw a pool: frequencies match the stated probabilities."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rankfold.samplers.in_batch import InBatch
from rankfold.samplers.mixed import Mixed
from rankfold.samplers.popularity import Popularity, popularity
from rankfold.samplers.uniform import Uniform
from rankfold.types import Batch

Follow = Callable[[Tensor, Tensor], bool]


def batch_by(counts: Tensor, size: int, rng: torch.Generator) -> Batch:
    """As training makes them: pairs drawn uniformly, so candidates by count."""
    candidates = torch.multinomial(counts.double(), size, replacement=True, generator=rng)
    return Batch(torch.arange(size), candidates)


def by_id(ids: Tensor, log_q: Tensor, n: int) -> Tensor:
    """The q of each candidate in the pool, which must be the same in every column."""
    assert len(ids.unique()) == n
    q = torch.full((n,), torch.nan)
    q[ids.flatten()] = log_q.flatten().exp()
    torch.testing.assert_close(q[ids].log(), log_q)
    return q


def test_uniform(follow: Follow, counts: Tensor, rng: torch.Generator) -> None:
    pool = Uniform(12, 50).propose(batch_by(counts, 300, rng), rng)
    assert pool.ids.shape == pool.log_q.shape == (300, 50)
    assert follow(pool.ids, by_id(pool.ids, pool.log_q, 12))
    assert not follow(pool.ids, popularity(counts, "log"))
    torch.testing.assert_close(pool.positive_log_q, torch.full((300,), -math.log(12)))
    assert not torch.equal(pool.ids[0], pool.ids[1])  # drawn for each query


def test_popularity_modes_match_the_formulas() -> None:
    counts = torch.tensor([0, 1, 8])
    count, log, power = (popularity(counts, mode) for mode in ("count", "log", "power"))
    assert count.tolist() == pytest.approx([1 / 10, 1 / 10, 8 / 10])
    logs = [math.log(2), math.log(2), math.log(9)]
    assert log.tolist() == pytest.approx([x / sum(logs) for x in logs])
    powers = [1, 1, 8**0.75]
    assert power.tolist() == pytest.approx([x / sum(powers) for x in powers])
    assert count.dtype == torch.float64


@pytest.mark.parametrize("mode", ["count", "log", "power"])
def test_popularity(follow: Follow, counts: Tensor, rng: torch.Generator, mode: str) -> None:
    batch = batch_by(counts, 300, rng)
    p = popularity(counts, mode)
    pool = Popularity(p, 80).propose(batch, rng)
    assert pool.ids.shape == (300, 80)
    assert follow(pool.ids, p)
    assert follow(pool.ids, by_id(pool.ids, pool.log_q, 12))
    assert not follow(pool.ids, torch.full((12,), 1 / 12))
    torch.testing.assert_close(pool.positive_log_q, p.log().float()[batch.candidates])


def test_in_batch(follow: Follow, counts: Tensor, rng: torch.Generator) -> None:
    batch = batch_by(counts.clamp(min=1), 20_000, rng)
    pool = InBatch(popularity(counts, "count").log().float()).propose(batch, rng)
    assert torch.equal(pool.ids, batch.candidates)
    assert torch.equal(pool.log_q, pool.positive_log_q)
    assert follow(pool.ids, by_id(pool.ids, pool.log_q, 12))


@pytest.mark.parametrize("size", [20_000, 5_000])  # the second: a short last batch
def test_mixed(follow: Follow, counts: Tensor, rng: torch.Generator, size: int) -> None:
    """One column of each of many pools, since in one pool the in-batch share is fixed.

    A pool of a very large batch has the same shares, so its columns are sampled instead.
    """
    pop = popularity(counts, "count")
    batch = batch_by(pop, size, rng)
    pool = Mixed(pop.log().float(), 20_000).propose(batch, rng)
    assert pool.ids.shape == pool.log_q.shape == (size + 20_000,)
    assert torch.equal(pool.ids[:size], batch.candidates)
    r = size / (size + 20_000)
    q = r * pop + (1 - r) / 12
    torch.testing.assert_close(by_id(pool.ids, pool.log_q, 12), q.float())
    torch.testing.assert_close(pool.positive_log_q, q.float().log()[batch.candidates])
    assert follow(pool.ids, q)
    swapped = (1 - r) * pop + r / 12  # as in the release
    assert size == 20_000 or not follow(pool.ids, swapped)


def test_one_candidate_and_a_batch_of_one(rng: torch.Generator) -> None:
    batch, log_pop = Batch(torch.tensor([0]), torch.tensor([0])), torch.zeros(1)
    for sampler in (
        Uniform(1, 3),
        Popularity(torch.ones(1), 3),
        InBatch(log_pop),
        Mixed(log_pop, 2),
    ):
        pool = sampler.propose(batch, rng)
        assert pool.ids.unique().tolist() == [0]
        torch.testing.assert_close(pool.log_q, torch.zeros_like(pool.log_q))
        torch.testing.assert_close(pool.positive_log_q, torch.zeros(1))
