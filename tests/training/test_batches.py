"""An epoch has every pair, or every query, once."""

import torch
from dense import random_rows

from rankfold.training.batches import PairBatches, QueryBatches
from rankfold.types import Interactions


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_epoch_has_every_pair_once_in_a_new_order() -> None:
    rows, dense = random_rows(0, 30, 20)
    batches = PairBatches(rows, 7, "none")
    order = batches.order(rng())
    taken = [batches.take(order, number) for number in range(len(batches))]
    assert [len(batch.queries) for batch in taken[:-1]] == [7] * (len(taken) - 1)
    queries = torch.cat([batch.queries for batch in taken])
    candidates = torch.cat([batch.candidates for batch in taken])
    result = torch.zeros_like(dense)
    result[queries, candidates] += 1
    assert len(queries) == rows.n_pairs
    assert torch.equal(result, dense)
    assert not torch.equal(queries.sort().values, queries)
    assert not torch.equal(batches.order(rng(1)), order)
    assert torch.equal(batches.order(rng()), order)


def test_grades_determine_how_often_a_pair_is_drawn() -> None:
    grades = torch.tensor([1.0, 2.0, 5.0, 2.0])
    offsets, candidates = torch.tensor([0, 1, 4]), torch.tensor([0, 0, 1, 2]).int()
    batches = PairBatches(Interactions(offsets, candidates, grades, 3), 2, "grade")
    orders = torch.cat([batches.order(rng(seed)) for seed in range(5000)])
    shares = torch.bincount(orders, minlength=4) / len(orders)
    assert torch.allclose(shares, grades / grades.sum(), atol=0.01)
    plain = PairBatches(Interactions(offsets, candidates, grades, 3), 2, "none")
    assert plain.order(rng()).sort().values.tolist() == [0, 1, 2, 3]


def test_every_query_occurs_once_with_all_its_choices() -> None:
    rows, dense = random_rows(3, 30, 20)
    batches = QueryBatches(rows, 8)
    order = batches.order(rng())
    seen = []
    for number in range(len(batches)):
        batch = batches.take(order, number)
        seen += batch.queries.tolist()
        assert torch.equal(batch.weights, dense[batch.queries].sum(dim=1).long())
        assert torch.equal(
            batch.positives.query_of_pair().long(), dense[batch.queries].nonzero()[:, 0]
        )
        assert torch.equal(batch.positives.candidates.long(), dense[batch.queries].nonzero()[:, 1])
    assert sorted(seen) == dense.sum(dim=1).nonzero().flatten().tolist()
