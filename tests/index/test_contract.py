"""What every index does, exact or not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.index.ann import Approximate, build_index
from rankfold.index.exact import Exact
from rankfold.types import Index, Interactions, from_pairs

pytestmark = pytest.mark.parametrize("build", [Exact, Approximate, build_index])
Build = Callable[[Tensor], Index]


def pairs(hidden: Tensor) -> Interactions:
    queries, candidates = hidden.nonzero().T
    return from_pairs(queries, candidates, None, (hidden.shape[0], hidden.shape[1]))


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_without_excluded_pairs(build: Build) -> None:
    found = build(torch.tensor([[1.0], [3.0], [2.0]])).search(torch.tensor([[1.0], [-1.0]]), 2)
    assert found.ids.tolist() == [[1, 2], [0, 2]]
    assert found.scores.tolist() == [[3.0, 2.0], [-1.0, -2.0]]
    assert found.ids.dtype == torch.int64


def test_vectors_in_training_can_be_searched(build: Build) -> None:
    candidates = torch.eye(3, requires_grad=True)
    found = build(candidates).search(torch.eye(3, requires_grad=True) * 2, 1)
    assert found.ids.tolist() == [[0], [1], [2]]
    assert not found.scores.requires_grad


def test_no_candidates_no_queries_no_columns(build: Build) -> None:
    assert build(torch.zeros(0, 3)).search(torch.zeros(2, 3), 5).ids.shape == (2, 0)
    assert build(torch.zeros(4, 3)).search(torch.zeros(0, 3), 5).ids.shape == (0, 4)
    assert build(torch.zeros(4, 3)).search(torch.zeros(2, 3), 0).ids.shape == (2, 0)
    assert build(torch.zeros(4, 0)).search(torch.zeros(2, 0), 3).ids.tolist() == [[0, 1, 2]] * 2
    assert build(torch.ones(1, 2)).search(torch.ones(1, 2), 9).ids.tolist() == [[0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("k", [0, 1, 100, 5000])
def test_results_are_ordered_and_not_excluded(build: Build, dtype: torch.dtype, k: int) -> None:
    candidates, vectors = normal(1, 2000, 4).to(dtype), normal(2, 9, 4)
    hidden = normal(3, 9, 2000) > torch.linspace(-3, 3, 9)[:, None]
    hidden[0] = True
    found = build(candidates).search(vectors, k, pairs(hidden))
    assert found.ids.shape == (9, min(k, 2000))
    padded = found.ids < 0
    left = (~hidden).sum(dim=1).clamp(max=min(k, 2000))
    assert torch.equal((~padded).sum(dim=1), left)
    assert torch.equal(padded, found.scores == -torch.inf)
    assert bool((found.scores[:, :-1] >= found.scores[:, 1:]).all())
    places = found.ids.clamp(min=0)
    assert not bool((hidden.gather(1, places) & ~padded).any())
    assert all(
        len({i for i in row if i >= 0}) == n
        for row, n in zip(found.ids.tolist(), left, strict=True)
    )
    right = (vectors @ candidates.float().T).gather(1, places)
    torch.testing.assert_close(found.scores[~padded].float(), right[~padded])


@pytest.mark.parametrize("where", ["query", "candidate"])
def test_nan_is_refused(build: Build, where: str) -> None:
    good, bad = torch.zeros(2, 3), torch.tensor([[0.0, 0, 0], [0, torch.nan, 0]])
    with pytest.raises(UserError, match=f"the vector of {where} 1 holds NaN"):
        build(bad if where == "candidate" else good).search(bad, 1)


@pytest.mark.parametrize("large", [torch.inf, -torch.inf, 1e30])
def test_products_that_overflow_are_refused(build: Build, large: float) -> None:
    """Infinity minus infinity is a NaN, which has no rank."""
    with pytest.raises(UserError, match="make inner products overflow"):
        build(torch.tensor([[1e30, -1e30]])).search(torch.tensor([[large, large]]), 1)
    with pytest.raises(UserError, match="make inner products overflow"):
        build(torch.tensor([[0.0, 0.0]])).search(torch.tensor([[torch.inf, 0.0]]), 1)


def test_shapes_that_do_not_fit_are_refused(build: Build) -> None:
    index = build(torch.zeros(4, 3))
    with pytest.raises(UserError, match="2 columns, the candidates' 3"):
        index.search(torch.zeros(1, 2), 1)
    with pytest.raises(UserError, match="5 x 4 pairs are excluded, but 1 queries meet 4"):
        index.search(torch.zeros(1, 3), 1, pairs(torch.ones(5, 4) > 0))
