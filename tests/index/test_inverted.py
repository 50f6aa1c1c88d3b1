"""Centres by groups are those of plain comparison, or nearly."""

import pytest
import torch
from torch import Tensor

from rankfold.index import inverted
from rankfold.index.inverted import build_lists


def drawn(n: int, width: int = 8) -> tuple[Tensor, Tensor]:
    """Vectors, and more centres than are compared with all of them."""
    rng = torch.Generator().manual_seed(0)
    shapes = (n, width), (2 * inverted.FEW, width)
    vectors, centres = (torch.randn(shape, generator=rng) for shape in shapes)
    return vectors, centres


def by_distance(vectors: Tensor, centres: Tensor) -> Tensor:
    """The definition."""
    return torch.cdist(vectors, centres, compute_mode="donot_use_mm_for_euclid_dist").argmin(dim=1)


@pytest.mark.parametrize("budget", [1, 2**16, 2**30])
def test_all_groups_are_all_centres(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    monkeypatch.setattr(inverted, "GROUPS", 10**6)
    vectors, centres = drawn(40)
    found = inverted._nearest(vectors, centres, budget)
    assert torch.equal(found, by_distance(vectors, centres))


def test_a_few_groups_have_most_of_the_nearest() -> None:
    vectors, centres = drawn(2000)
    found, right = inverted._nearest(vectors, centres, 2**30), by_distance(vectors, centres)
    assert 0.7 < (found == right).double().mean() < 1  # without any structure
    far, near = ((vectors - centres[ids]).norm(dim=1).mean() for ids in (found, right))
    assert near < far < 1.03 * near


def test_equal_candidates_are_one_list() -> None:
    """Then one group has all centres."""
    lists = build_lists(torch.ones(100_000, 2), 2**22, seed=0)
    assert len(lists.spreads) == 1
    assert len(lists.ids) == 100_000
