"""One pool for a batch of queries."""

import torch

from rankfold.samplers.batch_pool import BatchPool, pool_around
from rankfold.types import Interactions, from_pairs


def batch(n: int = 40, queries: int = 6) -> Interactions:
    chosen = (torch.rand(queries, n) < 0.1).nonzero()
    return from_pairs(chosen[:, 0], chosen[:, 1], None, (queries, n))


def pool_of(rows: Interactions, shares: torch.Tensor, size: int, rng: torch.Generator) -> BatchPool:
    return pool_around(rows.candidates, rows.n_queries, shares, size, rng)


def test_the_pool_has_each_choice_of_the_batch_once() -> None:
    rng = torch.Generator().manual_seed(0)
    for size in (1, 10, 30):
        chosen = batch()
        ids = pool_of(chosen, torch.full((40,), 0.1), size, rng).ids
        assert torch.equal(ids, ids.unique())
        assert set(chosen.candidates.tolist()) <= set(ids.tolist())
        assert len(ids) <= max(size, len(chosen.candidates.unique()))


def test_a_large_pool_has_all_candidates() -> None:
    result = pool_of(batch(), torch.full((40,), 0.1), 40, torch.Generator())
    assert result.ids.tolist() == list(range(40))
    assert torch.equal(result.log_q, torch.zeros(40))


def test_log_q_is_how_often_a_candidate_is_a_rival() -> None:
    """Over many batches of queries that choose independently, given that the first did not."""
    rng = torch.Generator().manual_seed(1)
    n, queries, rounds = 30, 8, 4000
    shares = torch.linspace(0.01, 0.4, n)
    counts, opportunities, draws = torch.zeros(n), torch.zeros(n), torch.zeros(n)
    for _ in range(rounds):
        chosen = torch.rand(queries, n, generator=rng) < shares
        pairs = chosen.nonzero()
        rows = from_pairs(pairs[:, 0], pairs[:, 1], None, (queries, n))
        pool = pool_of(rows, shares, 22, rng)
        rival = torch.zeros(n)
        rival[pool.ids] = 1
        free = ~chosen[0]
        counts += rival * free
        opportunities += free
        expected = torch.zeros(n)
        expected[pool.ids] = pool.log_q.exp()  # known only for those in the pool
        draws += expected * free
    frequency, stated = counts / opportunities, draws / counts.clamp(min=1)
    assert float((frequency - stated).abs().max()) < 0.03
    wrong = shares  # the share alone would not pass
    assert float((frequency - wrong).abs().max()) > 0.3


def test_a_batch_of_one_query_is_finite() -> None:
    rows = from_pairs(torch.tensor([0]), torch.tensor([2]), None, (1, 5))
    result = pool_of(rows, torch.full((5,), 0.5), 1, torch.Generator())
    assert result.ids.tolist() == [2]
    assert not bool(result.log_q.isnan().any())
