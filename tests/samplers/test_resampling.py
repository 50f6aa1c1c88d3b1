"""Draws follow their distribution, and the check rejects a wrong one."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankfold.samplers import resampling
from rankfold.samplers.popularity import alias_table, draw

Follow = Callable[[Tensor, Tensor], bool]


def test_the_check_rejects_a_wrong_distribution(follow: Follow, rng: torch.Generator) -> None:
    true, wrong = torch.tensor([0.30, 0.25, 0.25, 0.20]), torch.tensor([0.28, 0.25, 0.25, 0.22])
    ids = torch.multinomial(true, 20_000, replacement=True, generator=rng)
    assert follow(ids, true)
    assert not follow(ids, wrong)
    assert not follow(ids, torch.tensor([0.5, 0.25, 0.25, 0.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_row_has_its_own_distribution(
    times_follow: Follow, rng: torch.Generator, dtype: torch.dtype
) -> None:
    weights = torch.randn(4, 9, generator=rng, dtype=dtype).exp()
    weights[1, [0, 4, 8]] = 0
    times = resampling.multinomial(weights, 30_000, rng)
    assert times.dtype == dtype
    assert times.sum(dim=1).tolist() == [30_000.0] * 4
    shares = weights / weights.sum(dim=1, keepdim=True)
    for row, its in zip(times, shares, strict=True):
        assert times_follow(row, its)
    assert not times_follow(times[0], shares[2])


def test_picks_of_a_row_are_independent(follow: Follow, rng: torch.Generator) -> None:
    """With two picks per row, how often the second column is picked has a binomial law."""
    weights = torch.tensor([0.3, 0.7])
    times = resampling.multinomial(weights.expand(40_000, 2), 2, rng)
    assert follow(times[:, 1].long(), torch.tensor([0.09, 0.42, 0.49]))


def test_an_impossible_row_gets_nothing(rng: torch.Generator) -> None:
    weights = torch.tensor([[1.0, 1.0, 0.0], [0.0] * 3, [0.0, 1.0, 0.0]])
    times = resampling.multinomial(weights, 500, rng)
    assert times[:, 2].tolist() == [0.0] * 3
    assert times.sum(dim=1).tolist() == [500.0, 0.0, 500.0]
    assert times[2, 1] == 500


def test_systematic_picks_are_right_on_average(rng: torch.Generator) -> None:
    """And always within 1 of the expected count."""
    weights = torch.randn(3, 7, generator=rng).exp()
    weights[1, 5:] = 0
    expected = 10 * weights / weights.sum(dim=1, keepdim=True)
    result = torch.stack([resampling.systematic(weights, 10, rng) for _ in range(4000)])
    assert bool((result.sum(dim=2) == 10).all())
    assert bool(((result - expected).abs() < 1).all())
    torch.testing.assert_close(result.mean(dim=0), expected, atol=0.03, rtol=0)
    assert not result[:, 1, 5:].any()
    assert float(result.std(dim=0).max()) > 0.3  # they do vary


@pytest.mark.parametrize("draw", resampling.DRAWS.values())
@pytest.mark.parametrize("columns", [1, 7, 3000])
def test_every_pick_lands_somewhere_possible(
    draw: resampling.Draw, columns: int, rng: torch.Generator
) -> None:
    weights = (torch.randn(50, columns, generator=rng) * 5).exp()
    weights[torch.rand(weights.shape, generator=rng) < 0.3] = 0
    times = draw(weights, 2048, rng)
    assert bool((times >= 0).all())
    assert torch.equal(times, times.round())
    assert torch.equal(times.sum(dim=1), 2048.0 * (weights > 0).any(dim=1))
    assert not times[weights == 0].any()


def test_one_column_one_draw(rng: torch.Generator) -> None:
    assert resampling.multinomial(torch.ones(3, 1), 1, rng).tolist() == [[1.0], [1.0], [1.0]]


def test_draws_of_one_distribution(follow: Follow, rng: torch.Generator) -> None:
    weights = torch.tensor([3.0, 0.0, 1.0, 4.0, 0.0], dtype=torch.float64)
    columns = resampling.draw(weights, 30_000, rng)
    assert columns.shape == (30_000,)
    assert follow(columns, weights / weights.sum())
    assert not follow(columns, torch.tensor([3.3, 0.0, 1.0, 3.7, 0.0]) / 8)


WEIGHT = st.floats(0, 1e6) | st.integers(0, 4).map(float)  # small ones have ties and zeros


@settings(max_examples=400)
@given(st.lists(WEIGHT, min_size=1, max_size=40))
def test_the_table_holds_the_distribution(weights: list[float]) -> None:
    """Exactly, not by drawing: the mass that all cells give to each candidate."""
    p = torch.tensor([*weights, 1.0], dtype=torch.float64)
    keep, other = alias_table(p)
    given_mass = keep.clone().index_add_(0, other, 1 - keep) / len(p)
    torch.testing.assert_close(given_mass, p / p.sum(), rtol=1e-9, atol=1e-13)
    assert bool((keep >= 0).all() and (keep <= 1).all())


@pytest.mark.parametrize("n", [1, 2, 3, 49, 1000])
def test_the_table_of_equal_masses(n: int) -> None:
    keep, other = alias_table(torch.full((n,), 1 / n, dtype=torch.float64))
    mass = keep.clone().index_add_(0, other, 1 - keep)
    torch.testing.assert_close(mass, torch.ones(n, dtype=torch.float64))


def test_draws_follow_the_table(follow: Follow, rng: torch.Generator) -> None:
    p = torch.tensor([0.05, 0.0, 0.5, 0.3, 0.15], dtype=torch.float64)
    ids = draw(alias_table(p), (300, 100), rng)
    assert ids.shape == (300, 100)
    assert follow(ids, p)
