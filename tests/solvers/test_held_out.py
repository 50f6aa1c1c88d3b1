"""How much of the components of the pairs holds on held-out pairs."""

import torch

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.solvers.held_out import held_out_shares
from rankfold.types import Interactions, from_pairs

SHAPE = 1000, 800


def pairs(chances: torch.Tensor) -> Interactions:
    """Pairs that are drawn with these chances."""
    drawn = torch.rand(chances.shape, generator=torch.Generator().manual_seed(0)) < chances
    queries, candidates = drawn.nonzero().unbind(1)
    return from_pairs(queries, candidates, None, SHAPE)


def shares(chances: torch.Tensor) -> tuple[float, float]:
    return held_out_shares(pairs(chances), SINGLE_PROCESS)


def test_random_pairs_have_no_component_that_holds() -> None:
    of_all, of_strongest = shares(torch.full(SHAPE, 0.1))
    assert of_all < 0.05
    assert of_strongest < 0.2  # one of eight is the popularity, which holds


def test_groups_hold_and_noise_beside_them_does_not() -> None:
    of_all, of_strongest = shares(torch.where(grouped(10), 0.7, 0.05))
    assert of_strongest > 0.8
    assert of_all < 0.2  # 54 of 64 components are noise


def test_all_components_hold_where_there_are_more_groups_than_components() -> None:
    assert shares(grouped(80).float())[0] > 0.6


def grouped(n: int) -> torch.Tensor:
    """Whether query and candidate are in the same of n groups."""
    return torch.arange(SHAPE[0])[:, None] % n == torch.arange(SHAPE[1])[None, :] % n


def test_queries_that_chose_everything_or_nothing() -> None:
    for chance in (0.0, 1.0):
        assert all(0 <= share <= 1 for share in shares(torch.full(SHAPE, chance)))
