"""Every point of a path has the scores of its own rank and threshold, computed directly."""

from itertools import product

import pytest
import torch
from torch import Tensor

from rankfold.solvers.path import (
    MAX_QUERIES,
    Mix,
    PathPoint,
    factors_of,
    path_scores,
    queries_at_once,
    shortlist,
)
from rankfold.types import Interactions, from_pairs

M, N, K = 5, 9, 6
DISCOUNTS = (0.0, 0.3)
Parts = tuple[Tensor, Tensor, Tensor]


def parts_of(m: int) -> Parts:
    """Products, values, vectors."""
    rng = torch.Generator().manual_seed(3)
    products, vectors = torch.randn(m, K, generator=rng), torch.randn(N, K, generator=rng)
    values = torch.rand(K, generator=rng).add(0.3).sort(descending=True).values
    return products, values, vectors


@pytest.fixture
def parts() -> Parts:
    return parts_of(M)


def scales() -> dict[float, Tensor]:
    counts = torch.arange(1.0, N + 1)
    return {discount: counts**-discount for discount in DISCOUNTS}


def seen_by(m: int) -> Interactions:
    """The first query has seen four candidates, the last one."""
    queries, candidates = torch.tensor([0, 0, 0, 0, m - 1]), torch.tensor([0, 1, 2, 3, 7])
    return from_pairs(queries, candidates, None, (m, N))


def scores_at(
    parts: Parts, points: list[PathPoint], memory_budget: int = 2**30
) -> dict[PathPoint, list[Tensor]]:
    """The scores at each point, a tensor for each block of queries."""
    scored: dict[PathPoint, list[Tensor]] = {point: [] for point in points}
    seen = seen_by(len(parts[0]))
    most = queries_at_once(N, memory_budget)
    for point, scores in path_scores(*parts, points, scales(), seen, most):
        scored[point].append(scores.clone())
    return scored


def directly(point: PathPoint, products: Tensor, values: Tensor, vectors: Tensor) -> Tensor:
    kept = slice(0, point.rank)
    tau = point.threshold * values[point.rank - 1]
    shrunk = products[:, kept] * (values[kept] - tau) / values[kept]
    scores = (shrunk @ vectors[:, kept].T) * scales()[point.discount]
    scores[0, :4] = scores[-1, 7] = -torch.inf
    return scores


@pytest.mark.parametrize("ranks", [[1], [6], [2, 3, 6], [1, 2, 3, 4, 5, 6]])
@pytest.mark.parametrize("thresholds", [[0.0], [0.9], [0.0, 0.5, 0.9], [0.9, 0.0]])
@pytest.mark.parametrize("discounts", [[0.0], [0.3], [0.3, 0.0]])
def test_scores_are_the_direct_product(
    parts: Parts, ranks: list[int], thresholds: list[float], discounts: list[float]
) -> None:
    points = [PathPoint(7, *settings) for settings in product(ranks, thresholds, discounts)]
    for point, blocks in scores_at(parts, points).items():
        (scores,) = blocks
        torch.testing.assert_close(scores[:, :N], directly(point, *parts))
        assert (scores[:, N:] == -torch.inf).all()


@pytest.mark.parametrize("n_points", [1, 9])
def test_blocks_of_queries_shrink_with_the_memory_budget(n_points: int) -> None:
    parts = parts_of(2 * MAX_QUERIES + 3)
    points = [PathPoint(0, r, t, 0.3) for r, t in product((2, 4, 6), (0.0, 0.5, 0.9))][:n_points]
    plenty, short = scores_at(parts, points), scores_at(parts, points, memory_budget=70_000)
    for point in points:
        assert [len(block) for block in plenty[point]] == [MAX_QUERIES, MAX_QUERIES, 3]
        assert len(short[point]) > 3
        for blocks in (plenty[point], short[point]):
            torch.testing.assert_close(torch.cat(blocks)[:, :N], directly(point, *parts))


def test_threshold_of_one_removes_the_last_component(parts: Parts) -> None:
    """At threshold 1 rank r is rank r - 1 shrunk: the r-th component is 0."""
    products, values, vectors = parts
    changed = vectors.clone()
    changed[:, 3] += 1
    point = PathPoint(0, 4, 1.0, 0.0)
    (scores,) = scores_at(parts, [point])[point]
    (others,) = scores_at((products, values, changed), [point])[point]
    torch.testing.assert_close(scores, others)


@pytest.mark.parametrize("rank", [2, 3, 6])
@pytest.mark.parametrize("threshold", [0.0, 0.9])
@pytest.mark.parametrize("discount", [0.0, 0.3])
def test_a_shortlist_has_the_scores_of_its_candidates(
    parts: Parts, rank: int, threshold: float, discount: float
) -> None:
    """Repeated and missing candidates are never the best."""
    rng = torch.Generator().manual_seed(0)
    root, tail = torch.rand(N, generator=rng) + 0.5, torch.rand(M, N, generator=rng)
    ids = torch.tensor([[8, 4, 4, -1]] * (M - 1) + [[4, 8, 2, -1]])
    lists = shortlist(ids, torch.arange(1.0, N + 1).log(), tail, least=1)
    assert lists.ids.tolist() == [[4, 8, -1]] * (M - 1) + [[2, 4, 8]]
    factors = factors_of(lists, *parts, [2, 3, 6], root)[rank]
    point = PathPoint(0, rank, threshold, discount, 1.0)
    tau = threshold * float(parts[1][rank - 1])
    scores = lists.scores(factors, point, tau, Mix(tail=0.7, popularity=0.4))
    values, vectors = parts[1][:rank], parts[2][:, :rank]
    shrunk = parts[0][:, :rank] * (values - threshold * values[-1]) / values
    counts = torch.arange(1.0, N + 1)
    expected = (shrunk @ vectors.T * root + 0.7 * tail) * counts**-discount + 0.4 * counts.sqrt()
    for own, row, expected_row in zip(lists.ids, scores, expected, strict=True):
        assert row[own < 0].eq(-torch.inf).all()
        torch.testing.assert_close(row[own >= 0], expected_row[own[own >= 0].long()])


def test_shortlists_are_as_long_as_a_metric_reads() -> None:
    ids, logs = torch.tensor([[4, 4, 4, -1], [4, 4, -1, -1]]), torch.zeros(N)
    assert shortlist(ids, logs, None, least=1).ids.tolist() == [[4], [4]]
    assert shortlist(ids, logs, None, least=3).ids.tolist() == [[4, -1, -1], [4, -1, -1]]
    assert shortlist(ids, logs, None, least=9).ids.shape == (2, 4)
