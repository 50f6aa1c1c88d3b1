"""XIR equals plain loops, step by step."""

from collections.abc import Callable

import torch
from torch import Tensor

from rankfold.samplers.bir import pick_weights
from rankfold.samplers.popularity import popularity
from rankfold.samplers.resampling import multinomial
from rankfold.samplers.xir import Xir
from rankfold.types import Batch, Drawn, Pool

Follow = Callable[[Tensor, Tensor], bool]
N, SIZE = 12, 8


def step(sampler: Xir, rng: torch.Generator, size: int = SIZE) -> tuple[Batch, Pool, Drawn]:
    """The sampler's part of a training step."""
    batch = Batch(torch.arange(size), torch.randint(N, (size,), generator=rng))
    pool = sampler.propose(batch, rng)
    scores = torch.randn(size, len(pool.ids), generator=rng)
    valid = torch.rand(scores.shape, generator=rng) > 0.2
    drawn = sampler.resample(scores, pool, valid, rng)
    sampler.observe(batch, pool, drawn)
    return batch, pool, drawn


def make(counts: Tensor, size: int = SIZE) -> Xir:
    return Xir(popularity(counts, "count").log().float(), size, 0.2, multinomial)


def test_counts_and_distinct_equal_the_loops(counts: Tensor, rng: torch.Generator) -> None:
    sampler, occurrences = make(counts), [1] * N
    for size in [SIZE, SIZE, SIZE, 3]:
        _, pool, drawn = step(sampler, rng, size)
        distinct = set()
        for row in torch.cat([group.times for group in drawn.groups], dim=1).tolist():
            for column, times in enumerate(row):
                if times > 0:
                    y = int(pool.ids[column])
                    occurrences[y] += int(times)
                    distinct.add(y)
        assert sampler.occurrences.tolist() == occurrences
        assert sampler.distinct.tolist() == sorted(distinct)


def test_first_cache_is_uniform(follow: Follow, counts: Tensor, rng: torch.Generator) -> None:
    sampler = make(counts, size=6000)
    pool = sampler.propose(Batch(torch.tensor([0]), torch.tensor([2])), rng)
    assert pool.ids[0] == 2
    assert len(pool.ids) == 1 + 6000
    assert follow(pool.ids[1:], torch.full((N,), 1 / N))


def test_cache_follows_the_occurrences_of_the_distinct(
    follow: Follow, counts: Tensor, rng: torch.Generator
) -> None:
    sampler = make(counts)
    for _ in range(5):
        step(sampler, rng)
    sampler.distinct = sampler.distinct[::2]  # as if fewer had been picked
    weights = torch.zeros(N)
    weights[sampler.distinct] = sampler.occurrences[sampler.distinct].float()
    sampler.cache_size = 20_000
    batch = Batch(torch.tensor([0]), torch.tensor([2]))
    cache = sampler.propose(batch, rng).ids[1:]
    assert follow(cache, weights / weights.sum())
    assert not follow(cache, (weights > 0) / (weights > 0).sum())


def test_groups_pick_from_their_own_columns(
    times_follow: Follow, counts: Tensor, rng: torch.Generator
) -> None:
    """Half of the configured batch each, by BIR's weights within the group."""
    sampler = make(counts)
    batch = Batch(torch.arange(3), torch.tensor([9, 1, 11]))  # shorter than configured
    pool = sampler.propose(batch, rng)
    scores, valid = torch.randn(3, 3 + SIZE, generator=rng), torch.ones(3, 3 + SIZE).bool()
    drawn = sampler.resample(scores, pool, valid, rng)
    assert drawn.draws == SIZE // 2
    assert [group.share for group in drawn.groups] == [0.8, 0.2]
    for group in drawn.groups:
        assert group.times.sum(dim=1).tolist() == [SIZE / 2] * 3
    sampler.draws = 20_000
    drawn = sampler.resample(scores, pool, valid, rng)
    torch.testing.assert_close(pool.log_q, sampler.log_pop[pool.ids])
    for group, part in zip(drawn.groups, (slice(3), slice(3, None)), strict=True):
        weights = pick_weights(scores[:, part], pool.log_q[part], valid[:, part])
        torch.testing.assert_close(group.weights, weights)
        for b in range(3):
            assert times_follow(group.times[b], weights[b])


def test_a_step_without_picks_changes_nothing(counts: Tensor, rng: torch.Generator) -> None:
    sampler = make(counts)
    step(sampler, rng)
    before = sampler.state()
    batch = Batch(torch.tensor([0]), torch.tensor([4]))
    pool = sampler.propose(batch, rng)
    nothing = torch.zeros(1, 1 + SIZE).bool()
    drawn = sampler.resample(torch.zeros(1, 1 + SIZE), pool, nothing, rng)
    assert not any(group.times.any() or group.weights.any() for group in drawn.groups)
    sampler.observe(batch, pool, drawn)
    sampler.observe(batch, pool, None)
    assert all(torch.equal(before[name], tensor) for name, tensor in sampler.state().items())


def test_one_candidate_and_a_batch_of_one(rng: torch.Generator) -> None:
    sampler = Xir(torch.zeros(1), 1, 0.5)
    batch = Batch(torch.tensor([0]), torch.tensor([0]))
    pool = sampler.propose(batch, rng)
    drawn = sampler.resample(torch.zeros(1, 2), pool, torch.ones(1, 2).bool(), rng)
    assert [group.times.tolist() for group in drawn.groups] == [[[1.0]], [[1.0]]]
    sampler.observe(batch, pool, drawn)
    assert sampler.occurrences.tolist() == [3]
