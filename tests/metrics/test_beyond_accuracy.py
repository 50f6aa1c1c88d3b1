"""Metrics beyond accuracy equal loops over their formulas."""

from itertools import permutations
from math import log, log2
from statistics import mean

import pytest
import torch

import rankfold as rf
from rankfold.metrics.beyond_accuracy import calibration, diversity, novelty, serendipity, taste_of
from rankfold.metrics.coverage import gini
from rankfold.metrics.judged import Judged, judge
from rankfold.types import Interactions, from_pairs

M, N, K = 25, 12, 6


@pytest.fixture(params=range(3))
def chosen(request: pytest.FixtureRequest) -> torch.Tensor:
    """Training pairs [M, N]; the last candidate and the last query have none."""
    rng = torch.Generator().manual_seed(request.param)
    pairs = torch.rand(M, N, generator=rng) < torch.linspace(0.8, 0.1, N)
    pairs[:, -1] = pairs[-1] = False
    return pairs


def rows_of(pairs: torch.Tensor) -> Interactions:
    queries, candidates = pairs.nonzero().unbind(1)
    return from_pairs(queries, candidates, None, (len(pairs), N))


def judged(chosen: torch.Tensor) -> tuple[Judged, list[list[int]], torch.Tensor]:
    rng = torch.Generator().manual_seed(9)
    truth = torch.rand(M, N, generator=rng) < 0.3
    ids = torch.rand(M, N, generator=rng).argsort(dim=1)[:, :K]
    ids[0], ids[1, 1:] = -1, -1
    lists = [[y for y in row if y >= 0][:5] for row in ids.tolist()]
    return (
        judge(ids, rows_of(truth), taste=taste_of(rows_of(chosen)).of(torch.arange(M))),
        lists,
        truth,
    )


def test_novelty(chosen: torch.Tensor) -> None:
    one, lists, _ = judged(chosen)
    queries = int(chosen.any(dim=1).sum())
    bits = [-log2(max(1, int(n)) / queries) for n in chosen.sum(dim=0)]
    expected = [mean(max(bits[y], 0.0) for y in row) if row else 0.0 for row in lists]
    assert novelty(one, 5).tolist() == pytest.approx(expected, abs=1e-6)


def test_diversity(chosen: torch.Tensor) -> None:
    one, lists, _ = judged(chosen)
    sets = [set(chosen[:, y].nonzero().flatten().tolist()) for y in range(N)]

    def distance(y: int, z: int) -> float:
        size = (len(sets[y]) * len(sets[z])) ** 0.5
        return 1 - len(sets[y] & sets[z]) / size if size else 1.0

    expected = [
        mean(distance(y, z) for y, z in permutations(row, 2)) if len(row) > 1 else 0.0
        for row in lists
    ]
    assert diversity(one, 5).tolist() == pytest.approx(expected, abs=1e-6)


def test_serendipity(chosen: torch.Tensor) -> None:
    one, lists, truth = judged(chosen)
    counts = chosen.sum(dim=0).tolist()
    rank = [
        sum(c > counts[y] for c in counts) + (sum(c == counts[y] for c in counts) + 1) / 2
        for y in range(N)
    ]
    expected = [
        sum(bool(truth[b, y]) and rank[y] > 5 for y in row) / 5 for b, row in enumerate(lists)
    ]
    assert serendipity(one, 5).tolist() == pytest.approx(expected)
    assert any(expected)


def test_calibration(chosen: torch.Tensor) -> None:
    one, lists, _ = judged(chosen)
    assert one.taste is not None
    groups = one.taste.groups.tolist()
    expected = []
    for history, row in zip(chosen, lists, strict=True):
        own = [groups[y] for y in history.nonzero().flatten().tolist()]
        if not own or not row:
            expected.append(0.0)
            continue
        p = [own.count(g) / len(own) for g in range(4)]
        q = [[groups[y] for y in row].count(g) / len(row) for g in range(4)]
        expected.append(
            sum(a * log(a / (0.99 * b + 0.01 * a)) for a, b in zip(p, q, strict=True) if a)
        )
    assert calibration(one, 5).tolist() == pytest.approx(expected, abs=1e-5)
    assert max(expected) > 0


@pytest.mark.parametrize(
    ("counts", "value"),
    [([3, 3, 3], 0.0), ([0, 0, 8, 0], 0.75), ([0, 0], 0.0), ([1, 2, 3, 4], 0.25)],
)
def test_gini(counts: list[int], value: float) -> None:
    assert float(gini(torch.tensor(counts))) == pytest.approx(value)
    n, total = len(counts), max(1, sum(counts))
    spread = sum(abs(a - b) for a in counts for b in counts) / (2 * n * total)
    assert value == pytest.approx(spread)


def test_evaluate_measures_them() -> None:
    rng = torch.Generator().manual_seed(0)
    pairs = (torch.rand(60, 30, generator=rng) < 0.3).nonzero().numpy()
    data = rf.prepare(pairs)
    names = ["novelty@5", "diversity@5", "serendipity@5", "calibration@5", "gini@5"]
    popular = rf.evaluate(rf.fit("popularity", data), data, metrics=names)
    other = rf.evaluate(rf.fit("ease", data), data, metrics=names)
    assert other["novelty@5"] > popular["novelty@5"]
    assert other["gini@5"] < popular["gini@5"]
    assert 0 < other["diversity@5"] < 1
