"""One pool for a batch of queries with all that they chose."""

import torch

from rankfold.samplers.batch_pool import shared_pool
from rankfold.types import Interactions, from_pairs


def batch(n: int = 40, queries: int = 6) -> Interactions:
    chosen = (torch.rand(queries, n) < 0.1).nonzero()
    return from_pairs(chosen[:, 0], chosen[:, 1], None, (queries, n))


def test_what_the_batch_chose_is_there_once() -> None:
    rng = torch.Generator().manual_seed(0)
    for size in (1, 10, 30):
        chosen = batch()
        ids = shared_pool(chosen, torch.full((40,), 0.1), size, rng).ids
        assert torch.equal(ids, ids.unique())
        assert set(chosen.candidates.tolist()) <= set(ids.tolist())
        assert len(ids) <= max(size, len(chosen.candidates.unique()))


def test_a_large_enough_pool_is_everything() -> None:
    found = shared_pool(batch(), torch.full((40,), 0.1), 40, torch.Generator())
    assert found.ids.tolist() == list(range(40))
    assert torch.equal(found.log_q, torch.zeros(40))


def test_log_q_is_how_often_a_candidate_is_a_rival() -> None:
    """Over many batches of queries that choose independently, given that the first did not."""
    rng = torch.Generator().manual_seed(1)
    n, queries, rounds = 30, 8, 4000
    shares = torch.linspace(0.01, 0.4, n)
    counts, asked, draws = torch.zeros(n), torch.zeros(n), torch.zeros(n)
    for _ in range(rounds):
        chosen = torch.rand(queries, n, generator=rng) < shares
        pairs = chosen.nonzero()
        rows = from_pairs(pairs[:, 0], pairs[:, 1], None, (queries, n))
        pool = shared_pool(rows, shares, 22, rng)
        rival = torch.zeros(n)
        rival[pool.ids] = 1
        free = ~chosen[0]
        counts += rival * free
        asked += free
        expected = torch.zeros(n)
        expected[pool.ids] = pool.log_q.exp()  # known for those in the pool alone
        draws += expected * free
    frequency, stated = counts / asked, draws / counts.clamp(min=1)
    assert float((frequency - stated).abs().max()) < 0.03
    wrong = shares  # the share alone would not pass
    assert float((frequency - wrong).abs().max()) > 0.3


def test_one_query_alone_does_no_harm() -> None:
    rows = from_pairs(torch.tensor([0]), torch.tensor([2]), None, (1, 5))
    found = shared_pool(rows, torch.full((5,), 0.5), 1, torch.Generator())
    assert found.ids.tolist() == [2]
    assert not bool(found.log_q.isnan().any())
