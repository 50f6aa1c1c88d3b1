"""The streaming estimate equals plain loops, and converges to the frequency."""

import math

import pytest
import torch

from rankfold.samplers.streaming import HASH_SIZES, Streaming
from rankfold.types import Batch

CPU = torch.device("cpu")


class Naive:
    """Dictionaries and loops."""

    def __init__(self, rate: float) -> None:
        self.rate, self.step = rate, 0
        self.last: dict[tuple[int, int], int] = {}
        self.delta: dict[tuple[int, int], float] = {}

    def log_q(self, ids: list[int]) -> list[float]:
        self.step += 1
        for cell in {(size, y % size) for y in ids for size in HASH_SIZES}:
            gap = self.step - self.last.get(cell, 0)
            self.delta[cell] = (1 - self.rate) * self.delta.get(cell, 1.0) + self.rate * gap
            self.last[cell] = self.step
        most = [max(self.delta[size, y % size] for size in HASH_SIZES) for y in ids]
        return [-math.log(delta * len(ids)) for delta in most]


def test_equals_the_loops(rng: torch.Generator) -> None:
    fast, slow = Streaming(CPU, rate=0.1), Naive(0.1)
    for size in [64, 64, 1, 64, 64, 64, 17]:
        # few ids, some equal modulo one of the sizes, some repeated within the batch
        ids = torch.randint(40, (size,), generator=rng)
        ids = ids + 4993 * torch.randint(2, (size,), generator=rng)
        batch = Batch(torch.arange(size), ids)
        pool = fast.propose(batch, rng)
        fast.observe(batch, pool, None)
        assert pool.log_q.tolist() == pytest.approx(slow.log_q(ids.tolist()), rel=1e-6, abs=1e-7)
        assert torch.equal(pool.ids, ids)
        assert torch.equal(pool.positive_log_q, pool.log_q)


def test_estimates_how_often_a_candidate_occurs(rng: torch.Generator) -> None:
    sampler = Streaming(CPU, rate=0.05)
    for step in range(1, 401):
        ids = [0] + [1] * (step % 4 == 0) + [2] * (step % 10 == 0)
        batch = Batch(torch.zeros(len(ids), dtype=torch.int64), torch.tensor(ids))
        pool = sampler.propose(batch, rng)
        sampler.observe(batch, pool, None)
    shares = pool.log_q.exp() * len(ids)  # the last batch has all three
    assert shares.tolist() == pytest.approx([1, 1 / 4, 1 / 10], rel=0.3)


def test_proposing_alone_changes_nothing(rng: torch.Generator) -> None:
    sampler = Streaming(CPU)
    before = sampler.state()
    sampler.propose(Batch(torch.arange(3), torch.tensor([1, 1, 2])), rng)
    assert all(torch.equal(before[name], tensor) for name, tensor in sampler.state().items())
