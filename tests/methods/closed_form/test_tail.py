"""The tail of rg2: its formula, its place in search, updates and folders, and what it finds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import split_groups
from rankings import assert_same_keys, assert_same_ranking, sorted_by
from torch import Tensor

import rankfold as rf
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.methods import METHODS
from rankfold.methods.closed_form import tail
from rankfold.methods.closed_form.path_scores import linear
from rankfold.models.ranker import Ranker
from rankfold.objectives.rg import rg2, row_sizes, target_line
from rankfold.solvers.neighbours import Neighbours
from rankfold.solvers.spectral import Target, decompose
from rankfold.types import Dataset, Interactions, Run, Vocabulary, from_pairs

OPTIONS: dict[str, Any] = {"width": 12, "tolerance": 1e-3, "tail_weight": 2.0}
RUN = Run(torch.Generator().manual_seed(0), torch.device("cpu"), SINGLE_PROCESS)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return split_groups()


@pytest.fixture(scope="module")
def ranker(data: Dataset) -> Ranker:
    model = rf.fit("rg2", data, **OPTIONS)
    assert isinstance(model, Ranker)
    return model


def dense(rows: Interactions) -> Tensor:
    matrix = torch.zeros(rows.n_queries, rows.n_candidates, dtype=torch.float64)
    matrix[rows.query_of_pair().long(), rows.candidates.long()] = 1.0
    return matrix


def all_scores(ranker: Ranker, rows: Interactions) -> Tensor:
    """Inner products plus the tail by its formula, from the model's tensors."""
    tensors, n = ranker.model.tensors, rows.n_candidates
    matrix = torch.zeros(n, n).scatter_add_(
        1, tensors["neighbours"].long(), tensors["neighbour_weights"]
    )
    slope, _ = target_line(row_sizes(rows), n, ranker.model.config["query_exponent"])
    extra = slope.float()[:, None] * (dense(rows).float() @ matrix)
    return tensors["queries"] @ tensors["candidates"].T + extra


def test_the_tail_is_the_written_formula() -> None:
    """Where all candidates go together: normalised EASE without its negative weights."""
    rng = torch.Generator().manual_seed(0)
    rows = from_pairs(*(torch.rand(120, 30, generator=rng) < 0.5).nonzero().T, None, (120, 30))
    matrix, sizes = dense(rows), rows.counts().double()
    counts = rows.candidate_counts().double()
    scaled = matrix * sizes[:, None] ** -tail.QUERY_EXPONENT * counts**-tail.CANDIDATE_EXPONENT
    gram = scaled.T @ scaled
    inverse = torch.linalg.inv(gram + 0.5 * gram.diagonal().mean() * torch.eye(len(gram)))
    weights = (-inverse / inverse.diagonal()).fill_diagonal_(0.0)
    assert float(gram.min()) > 0
    assert float(weights.min()) < -0.001
    expected = weights.clamp(min=0.0) * (counts / counts[:, None]) ** tail.CANDIDATE_EXPONENT
    table = tail.tail_neighbours(rows, counts, rows.n_candidates, 0.5, RUN)
    result = tail.dense_scores(table, rows)
    torch.testing.assert_close(result, (matrix @ expected).float(), rtol=1e-3, atol=1e-5)


def test_a_weight_of_one_gives_equal_mean_squares(data: Dataset) -> None:
    rows = data.split("train")
    counts = rows.candidate_counts().clamp(min=1).double()
    objective = rg2(rows, 0.0, exponent=-0.375, candidate_exponent=0.35)
    *_, last = decompose(Target(objective, 2**30), 6, torch.Generator(), tolerance=1e-4)
    assert last.vectors is not None
    spread = tail.Spread(rows, counts, SINGLE_PROCESS)
    products, root = (
        linear(objective, last.vectors, spread.rows),
        objective.candidate_weight.rsqrt(),
    )
    table = tail.tail_neighbours(rows, counts, 20, 10.0, RUN)
    shrunk = 1 - 0.5 * last.values[3] / last.values[:4]
    factor = tail.relative_weight(
        spread.of_factors(products, last.vectors, root), shrunk, spread.of_tail(table)
    )
    scale = spread.scale
    low = (products[:, :4] * shrunk) @ last.vectors[:, :4].T * root.float() * scale
    high = factor * tail.dense_scores(table, spread.rows) * scale
    assert float(low.square().mean()) == pytest.approx(float(high.square().mean()), rel=1e-4)


def test_search_adds_the_tail_to_the_inner_products(data: Dataset, ranker: Ranker) -> None:
    rows = data.split("train")
    top = ranker.searcher.of_queries(torch.arange(rows.n_queries), 10)
    assert_same_ranking(top, sorted_by(all_scores(ranker, rows)), rtol=1e-4)
    plain = ranker.model.tensors["queries"] @ ranker.model.tensors["candidates"].T
    assert not torch.equal(top.ids, sorted_by(plain).ids[:, :10])  # the tail matters here


def test_a_new_query_with_a_known_history_gets_the_known_query_s_list(
    data: Dataset, ranker: Ranker
) -> None:
    some = torch.arange(20)
    known = ranker.searcher.of_queries(some, 10)
    folded = ranker.searcher.of_histories(data.split("train").select(some), 10)
    assert_same_ranking(folded, known, rtol=1e-3)


def test_without_a_tail_there_is_nothing_to_store(data: Dataset) -> None:
    model = rf.fit("rg2", data, width=12, tail="none").model
    assert "neighbours" not in model.tensors
    assert METHODS["rg2"].open(model).extra is None
    with pytest.raises(rf.UserError, match="no effect with tail=none"):
        rf.fit("rg2", data, width=12, tail="none", neighbours=3)


def test_the_tail_is_chosen_where_the_structure_has_full_rank() -> None:
    """Pairs of candidates that are always chosen together: no small rank can hold them."""
    rng = torch.Generator().manual_seed(0)
    n_pairs, n_queries = 150, 1200
    couples = torch.rand(n_queries, n_pairs, generator=rng).topk(3, dim=1).indices
    both = torch.cat([2 * couples, 2 * couples + 1], dim=1)  # [M, 6]: three couples
    held = both.gather(1, torch.randint(6, (n_queries, 1), generator=rng))[:, 0]
    queries = torch.arange(n_queries).repeat_interleave(6)
    chosen = both.sort(dim=1).values.flatten()
    is_held = chosen == held.repeat_interleave(6)
    shape, half = (n_queries, 2 * n_pairs), queries < n_queries // 2
    train, validation, test = (
        from_pairs(queries[where], chosen[where], None, shape)
        for where in (~is_held, is_held & half, is_held & ~half)
    )
    names = map(Vocabulary.numbered, shape)
    data = Dataset("interactions", train, validation, test, *names)
    scores = {}
    for name in ("none", "neighbours"):
        model = rf.fit("rg2", data, width=16, tail=name)
        scores[name] = rf.evaluate(model, data, metrics=["ndcg@10"])["ndcg@10"]
    assert scores["neighbours"] > 0.9
    assert scores["neighbours"] > scores["none"] + 0.2


def test_a_saved_model_ranks_as_before(ranker: Ranker, tmp_path: Path) -> None:
    keys = list(range(10))
    ranker.save(tmp_path / "model")
    loaded = rf.load(tmp_path / "model")
    assert isinstance(loaded, Ranker)
    assert_same_keys(loaded.search(keys, k=5), ranker.search(keys, k=5))
    for kind in ("hnsw", "inverted"):
        indexed = replace(loaded, index=kind)
        assert_same_keys(indexed.search(keys, k=5), ranker.search(keys, k=5), rtol=1e-4)


def test_add_and_forget_keep_the_histories_of_the_tail(ranker: Ranker) -> None:
    fewer = ranker.forget([0, 3])
    assert_same_keys(fewer.search([5], k=8), ranker.search([5], k=8))
    history = [7, 11, 13]
    table = from_pairs(torch.zeros(3, dtype=torch.int64), torch.tensor(history), None, (1, 60))
    names = Vocabulary.of(fewer.queries.keys[:1] + 10_000), ranker.candidates
    more = Dataset(
        "interactions", replace(table, n_candidates=len(ranker.candidates)), None, None, *names
    )
    grown = fewer.add(more)
    new = grown.search([int(names[0].keys[0])], k=8)
    assert_same_keys(new, ranker.search(history=history, k=8), rtol=1e-4)


def test_grades_weigh_the_tail() -> None:
    rows = from_pairs(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([2.0, 3.0]), (1, 3))
    table = Neighbours(
        torch.tensor([[2], [2], [0]], dtype=torch.int32), torch.tensor([[1.0], [10.0], [0.0]])
    )
    assert tail.dense_scores(table, rows).tolist() == [[0.0, 0.0, 32.0]]
