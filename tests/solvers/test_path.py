"""Every point of a path has the scores of its own rank and threshold, computed directly."""

import pytest
import torch
from torch import Tensor

from rankfold.solvers.path import Point, path_scores

B, N, K, LENGTH = 5, 9, 6, 12


@pytest.fixture
def parts() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Products, values, candidates; some are hidden, and all beyond the last."""
    rng = torch.Generator().manual_seed(3)
    products, candidates = torch.randn(B, K, generator=rng), torch.randn(N, K, generator=rng)
    values = torch.rand(K, generator=rng).add(0.3).sort(descending=True).values
    hidden = torch.zeros(B, LENGTH)
    hidden[:, N:] = -torch.inf
    hidden[0, :4] = hidden[2, 7] = -torch.inf
    return products, values, candidates, hidden


def directly(
    point: Point, products: Tensor, values: Tensor, candidates: Tensor, hidden: Tensor
) -> Tensor:
    kept = slice(0, point.rank)
    tau = point.threshold * values[point.rank - 1]
    shrunk = products[:, kept] * (values[kept] - tau) / values[kept]
    scores = hidden.clone()
    scores[:, :N] += shrunk @ candidates[:, kept].T
    return scores


@pytest.mark.parametrize("ranks", [[1], [6], [2, 3, 6], [1, 2, 3, 4, 5, 6]])
@pytest.mark.parametrize("thresholds", [[0.0], [0.9], [0.0, 0.5, 0.9], [0.9, 0.0]])
def test_scores_are_the_direct_product(
    parts: tuple[Tensor, Tensor, Tensor, Tensor], ranks: list[int], thresholds: list[float]
) -> None:
    points = [Point(rank, threshold) for rank in ranks for threshold in thresholds]
    found = [(point, scores.clone()) for point, scores in path_scores(*parts[:3], points, parts[3])]
    assert [point for point, _ in found] == points
    for point, scores in found:
        torch.testing.assert_close(scores, directly(point, *parts))


def test_the_hidden_stay_hidden_and_are_not_written_to(
    parts: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    hidden = parts[3].clone()
    points = [Point(rank, 0.5) for rank in range(1, K + 1)]
    for _, scores in path_scores(*parts[:3], points, hidden):
        assert torch.equal(scores == -torch.inf, parts[3] == -torch.inf)
        assert scores[parts[3] == 0].isfinite().all()
    assert torch.equal(hidden, parts[3])


def test_all_of_a_threshold_leaves_the_last_component_out(
    parts: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    """At threshold 1 rank r is rank r - 1 shrunk: the r-th component has no say."""
    products, values, candidates, hidden = parts
    changed = candidates.clone()
    changed[:, 3] += 1
    ((_, scores),) = path_scores(products, values, candidates, [Point(4, 1.0)], hidden)
    ((_, others),) = path_scores(products, values, changed, [Point(4, 1.0)], hidden)
    torch.testing.assert_close(scores, others)
