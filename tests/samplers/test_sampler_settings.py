"""Settings of resamplers and streaming counters reach them; accidental hits are logged."""

import pytest
import torch
from planted import groups, split_groups

import rankfold as rf
from rankfold.methods.gradient.comparison import share_of_hits
from rankfold.samplers import SAMPLERS, SamplerContext
from rankfold.samplers.streaming import HASH_SIZES, hash_sizes
from rankfold.types import Batch, Drawn, Picks, Pool, from_pairs

COUNTS = torch.full((40,), 3)


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize(("name", "cached", "groups"), [("bir", 0, [6]), ("xir", 10, [3, 3])])
def test_draws_and_the_cache_have_their_sizes(name: str, cached: int, groups: list[int]) -> None:
    sampler = SAMPLERS[name](SamplerContext(COUNTS, 8, draws=6, cache_size=10))
    batch = Batch(torch.arange(4), torch.arange(4))
    pool = sampler.propose(batch, rng())
    assert len(pool.ids) == 4 + cached
    drawn = sampler.resample(torch.randn(4, 4 + cached, generator=rng()), pool, None, rng())
    assert drawn is not None
    for group, n in zip(drawn.groups, groups, strict=True):
        assert group.times.sum(dim=1).tolist() == [n] * 4


def test_without_settings_a_batch_sets_them() -> None:
    sampler = SAMPLERS["xir"](SamplerContext(COUNTS, 8))
    assert (sampler.cache_size, sampler.draws) == (8, 4)  # type: ignore[attr-defined]


def test_hash_sizes_are_distinct_primes() -> None:
    assert hash_sizes(None) == HASH_SIZES
    assert hash_sizes(4993)[:2] == (4993, 4999)
    assert hash_sizes(2) == (2, 3, 5, 7, 11)
    sampler = SAMPLERS["streaming"](SamplerContext(COUNTS, 8, rate=0.1, hash_size=100))
    assert sampler.state()["delta"].shape == (101 + 103 + 107 + 109 + 113,)
    assert sampler.rate == 0.1  # type: ignore[attr-defined]


def test_a_faster_rate_follows_popularity_sooner() -> None:
    """The slope of log q in log pop after 150 batches."""
    counts = 1000 / torch.arange(1, 401).double()
    slopes = []
    for rate in (1e-4, 0.03):
        sampler = SAMPLERS["streaming"](SamplerContext(counts, 64, rate=rate, hash_size=800))
        draws = rng()
        for _ in range(150):
            ids = torch.multinomial(counts, 64, replacement=True, generator=draws)
            batch = Batch(ids, ids)
            pool = sampler.propose(batch, draws)
            sampler.observe(batch, pool, None)
        x, y = counts.log()[ids], pool.log_q.double()
        slopes.append(float(torch.cov(torch.stack([x, y]))[0, 1] / x.var()))
    assert slopes[0] < 0.05
    assert slopes[1] > 0.25


def test_the_share_of_hits_is_that_of_a_loop() -> None:
    """Query 0 chose 1 and 2, query 1 chose 3."""
    pairs = from_pairs(torch.tensor([0, 0, 1]), torch.tensor([1, 2, 3]), None, (2, 5))
    batch = Batch(torch.tensor([0, 1]), torch.tensor([1, 3]))
    ids = torch.tensor([1, 2, 3, 4])
    pool = Pool(ids, torch.zeros(4), torch.zeros(2))
    assert float(share_of_hits(batch, pool, pairs, None)) == 3 / 8
    times = torch.tensor([[0.0, 3.0, 1.0, 0.0], [0.0, 0.0, 0.0, 4.0]])
    drawn = Drawn((Picks(times, times, 1.0),), 4)
    assert float(share_of_hits(batch, pool, pairs, drawn)) == 3 / 8


@pytest.mark.parametrize("name", ["bir", "ssl-pop", "bpr"])
def test_the_log_of_a_fit_has_the_share_of_hits(name: str) -> None:
    history = rf.fit(name, split_groups(), width=4, epochs=2).model.notes["history"]
    assert all(0 < entry["hits"] < 1 for entry in history)
    assert "hits" not in rf.fit("ials", groups(), width=4).model.notes["history"][0]
