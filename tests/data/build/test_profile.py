"""A profile has the typical value of each column."""

import torch

from rankfold.data.build.profile import profile_of
from rankfold.types import Columns, Graded


def test_typical_values_are_medians_and_most_frequent_levels() -> None:
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(500, 3, generator=generator).exp()
    numbers[::7, 0], numbers[:, 2] = torch.nan, torch.nan
    categories = torch.tensor([[0, -1], [2, -1], [2, -1], [1, -1], [-1, -1]]).repeat(100, 1).int()
    rows = Graded(numbers, categories, None, torch.zeros(500, dtype=torch.int64))
    columns = Columns(numbers=("a", "b", "c"), levels={"d": ("x", "y", "z"), "e": ("x",)})
    typical = profile_of(rows).typical(columns)
    middle = numbers.nanmedian(dim=0).values
    for place, name in enumerate("ab"):
        ranks = (numbers[:, place] < float(typical[name] or 0)).float().mean()
        assert abs(float(ranks) - float((numbers[:, place] < middle[place]).float().mean())) < 0.06
    assert (typical["c"], typical["d"], typical["e"]) == (None, "z", None)
