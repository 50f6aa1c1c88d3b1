"""Searching centres and lists by groups gives nearly the results of comparing all."""

from functools import partial

import pytest
import torch
from rankings import assert_same_ranking, sorted_by
from torch import Tensor

from rankfold.index import lists as index_lists
from rankfold.index.lists import (
    Lists,
    Probing,
    build_lists,
    choose_lists,
    group_lists,
    join_groups,
    owners,
    points,
    promises,
    scan,
    with_room,
)
from rankfold.types import TopK


def drawn(n: int, width: int = 8) -> tuple[Tensor, Tensor]:
    """Vectors, and more centres than are all compared."""
    rng = torch.Generator().manual_seed(0)
    shapes = (n, width), (2 * index_lists.MAX_CENTRES_COMPARED, width)
    vectors, centres = (torch.randn(shape, generator=rng) for shape in shapes)
    return vectors, centres


def distances(vectors: Tensor, centres: Tensor) -> Tensor:
    """The definition; [n, L]."""
    return torch.cdist(vectors, centres, compute_mode="donot_use_mm_for_euclid_dist")


@pytest.mark.parametrize("budget", [1, 2**16, 2**30])
def test_probing_all_groups_compares_all_centres(
    monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    monkeypatch.setattr(index_lists, "GROUPS_PER_VECTOR", 10**6)
    vectors, centres = drawn(40)
    ids = index_lists._nearest(vectors, centres, budget)[:, None]
    nearness = -distances(vectors, centres)
    assert_same_ranking(TopK(ids, nearness.gather(1, ids)), sorted_by(nearness))


def test_a_few_groups_have_most_of_the_nearest() -> None:
    vectors, centres = drawn(2000)
    result, right = (
        index_lists._nearest(vectors, centres, 2**30),
        distances(vectors, centres).argmin(1),
    )
    assert 0.7 < (result == right).double().mean() < 1  # without any structure
    far, near = ((vectors - centres[ids]).norm(dim=1).mean() for ids in (result, right))
    assert near < far < 1.03 * near


def test_equal_candidates_share_a_list() -> None:
    """One group has all centres."""
    lists = build_lists(torch.ones(100_000, 2), 2**22, seed=0)
    assert len(lists.spreads) == 1
    assert len(lists.ids) == 100_000


def many_lists() -> tuple[Lists, Lists, Tensor]:
    """More lists than are all compared, their groups, and queries."""
    vectors, queries = drawn(20_000)
    vectors = vectors / torch.arange(1, 9) * queries.new_tensor([0.5, 2.0]).repeat(10_000)[:, None]
    lists = build_lists(vectors, 2**30, seed=0)
    assert len(lists.spreads) > index_lists.MAX_CENTRES_COMPARED
    return lists, group_lists(lists, 2**30), queries[:100]


def test_products_with_points_are_promises() -> None:
    lists, _, queries = many_lists()
    result = with_room(queries, 3.0) @ points(lists).T
    torch.testing.assert_close(result, promises(lists, queries, 3.0))


@pytest.mark.parametrize("slack", [0.0, 2.0])
def test_lists_of_all_groups_are_those_of_all_lists(slack: float) -> None:
    lists, groups, queries = many_lists()
    n = len(groups.spreads)
    everywhere = torch.arange(n).expand(len(queries), n)
    actual = TopK(*scan(points(lists), groups, with_room(queries, slack), everywhere, 20))
    plain = choose_lists(lists, groups, queries, Probing(16, 20, slack, 1, 1, n), no_scan)
    expected = promises(lists, queries, slack)
    for ranking in (actual, TopK(plain, expected.gather(1, plain))):
        assert_same_ranking(ranking, sorted_by(expected))


def test_lists_are_the_best_of_the_best_groups() -> None:
    lists, groups, queries = many_lists()
    read = partial(scan, points(lists), groups)
    ids = choose_lists(lists, groups, queries, Probing(16, 200, 2.0, 1, 1, 3), read)
    near = promises(groups, with_room(queries, 2.0), index_lists.GROUP_SLACK)
    near = near >= near.topk(3, dim=1).values[:, -1:]
    left = promises(lists, queries, 2.0).masked_fill(~near[:, owners(groups)], -torch.inf)
    missing = ids < 0
    assert 0 < missing.sum() < missing.numel()
    scores = left.gather(1, ids.clamp(min=0)).masked_fill(missing, -torch.inf)
    assert_same_ranking(TopK(ids, scores), sorted_by(left))


def test_groups_hold_every_list_and_are_joined_again() -> None:
    lists, groups, _ = many_lists()
    assert 1.5 < len(groups.spreads) / len(lists.spreads) ** 0.5 < 2.5
    assert sorted(groups.ids.tolist()) == [*range(len(lists.spreads))]
    again = join_groups(lists, owners(groups))
    assert all(torch.equal(*pair) for pair in zip(again, groups, strict=True))


def test_few_lists_form_one_group() -> None:
    lists = build_lists(drawn(1000)[0], 2**30, seed=0)
    groups = group_lists(lists, 2**30)
    assert groups.offsets.tolist() == [0, len(lists.spreads)]


def test_numbers_of_groups_grow_by_a_third_or_a_half() -> None:
    assert [*index_lists._numbers(20)] == [1, 2, 3, 4, 6, 8, 12, 16, 20]
    assert [*index_lists._numbers(1)] == [1]


def no_scan(*_: object) -> tuple[Tensor, Tensor]:
    raise AssertionError("all lists are compared without groups")
