"""The contract of every registered sampler."""

import pytest
import torch
from torch import Tensor

from rankfold.samplers import SAMPLERS, SamplerContext
from rankfold.types import Batch, Drawn, Pool, Sampler

N, SIZE = 30, 8
COUNTS = torch.arange(N) % 7  # some candidates were never chosen


def make(name: str, n: int = N, size: int = SIZE) -> Sampler:
    return SAMPLERS[name](SamplerContext(COUNTS[:n], size, 5, "count", 0.2))


def batch_of(size: int, seed: int = 0, n: int = N) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    return Batch(*(torch.randint(n, (size,), generator=rng) for _ in range(2)))


def step(sampler: Sampler, batch: Batch, rng: torch.Generator) -> tuple[Pool, Drawn | None]:
    pool = sampler.propose(batch, rng)
    shape = (len(batch.queries), pool.ids.shape[-1])
    scores, valid = torch.randn(shape, generator=rng), torch.rand(shape, generator=rng) > 0.3
    drawn = sampler.resample(scores, pool, valid, rng)
    sampler.observe(batch, pool, drawn)
    return pool, drawn


def tensors(pool: Pool, drawn: Drawn | None) -> list[Tensor]:
    picked = () if drawn is None else drawn.groups
    return [*pool[:3], *(tensor for group in picked for tensor in group[:2])]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


@pytest.mark.parametrize("name", SAMPLERS)
class TestSampler:
    @pytest.mark.parametrize(
        ("size", "n", "configured"), [(8, N, 8), (3, N, 8), (1, N, 8), (8, 1, 8), (1, 1, 1)]
    )
    def test_shapes_types_and_ranges(self, name: str, size: int, n: int, configured: int) -> None:
        sampler, rng = make(name, n, configured), torch.Generator().manual_seed(1)
        for seed in range(3):
            pool, drawn = step(sampler, batch_of(size, seed, n), rng)
            width = pool.ids.shape[-1]
            assert pool.ids.shape in {(width,), (size, width)}
            assert pool.log_q.shape == pool.ids.shape
            assert pool.positive_log_q.shape == (size,)
            assert pool.ids.dtype == torch.int64
            if pool.holds_batch:
                assert torch.equal(pool.ids[:size], batch_of(size, seed, n).candidates)
            assert pool.log_q.dtype == pool.positive_log_q.dtype == torch.float32
            assert int(pool.ids.min()) >= 0
            assert int(pool.ids.max()) < n
            for log_q in (pool.log_q, pool.positive_log_q):
                assert bool((log_q.isfinite() & (log_q <= 1e-6)).all())
            if drawn is not None:
                assert sum(group.times.shape[1] for group in drawn.groups) == width
                assert sum(group.share for group in drawn.groups) == pytest.approx(1)
                for times, weights, _ in drawn.groups:
                    assert times.shape == weights.shape
                    assert times.dtype == weights.dtype == torch.float32
                    assert bool(((weights >= 0) & (weights <= 1)).all())

    def test_only_valid_columns_are_picked(self, name: str) -> None:
        sampler, rng = make(name), torch.Generator().manual_seed(1)
        batch = batch_of(SIZE)
        pool = sampler.propose(batch, rng)
        shape = (SIZE, pool.ids.shape[-1])
        valid = torch.rand(shape, generator=rng) > 0.5
        scores = torch.where(valid, torch.randn(shape, generator=rng), torch.nan)
        drawn = sampler.resample(scores, pool, valid, rng)
        if drawn is not None:
            start = 0
            for times, weights, _ in drawn.groups:
                mine = valid[:, start : start + times.shape[1]]
                start += times.shape[1]
                assert torch.equal(mine, weights > 0)
                assert not times[~mine].any()
                assert torch.equal(times.sum(dim=1), drawn.draws * mine.any(dim=1).float())

    def test_equal_seeds_give_equal_draws(self, name: str) -> None:
        result = []
        for _ in range(2):
            sampler, rng = make(name), torch.Generator().manual_seed(3)
            torch.rand(7)  # the global generator has no effect
            result.append(
                [t for s in range(4) for t in tensors(*step(sampler, batch_of(8, s), rng))]
            )
        assert same(*result)

    def test_restored_state_continues_identically(self, name: str) -> None:
        first, rng = make(name), torch.Generator().manual_seed(3)
        for seed in range(3):
            step(first, batch_of(8, seed), rng)
        state, position = first.state(), rng.get_state()
        kept = {key: tensor.clone() for key, tensor in state.items()}
        expected = [t for s in range(3, 6) for t in tensors(*step(first, batch_of(8, s), rng))]
        assert all(torch.equal(kept[key], state[key]) for key in kept)  # a copy, not a view
        second = make(name)
        for _ in range(2):  # loading does not modify the state
            second.load(state)
            rng.set_state(position)
            result = [t for s in range(3, 6) for t in tensors(*step(second, batch_of(8, s), rng))]
            assert same(result, expected)

    def test_inputs_are_not_modified(self, name: str) -> None:
        sampler, rng, batch = make(name), torch.Generator().manual_seed(3), batch_of(8)
        pool = sampler.propose(batch, rng)
        shape = (8, pool.ids.shape[-1])
        scores, valid = torch.randn(shape), torch.rand(shape) > 0.3
        given = [*batch[:2], *pool[:3], scores, valid]
        before = [tensor.clone() for tensor in given]
        sampler.observe(batch, pool, sampler.resample(scores, pool, valid, rng))
        assert same(before, given)
        assert torch.equal(COUNTS, torch.arange(N) % 7)
