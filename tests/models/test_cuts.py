"""Without a confidence, the false-positive rate of a cut is the wanted one on average."""

import pytest
import torch

from rankfold.models.cuts import find_cuts
from rankfold.types import Model


@pytest.mark.parametrize(("n", "rate"), [(99, 0.01), (150, 0.03), (500, 0.1)])
def test_the_mean_rate_over_draws_is_at_most_the_wanted_one(n: int, rate: float) -> None:
    """The share of new negatives above a cut of uniform scores is 1 - cut."""
    rng = torch.Generator().manual_seed(n)
    rates = []
    for scores in torch.rand(1000, n + 20, generator=rng):
        grades = (torch.arange(n + 20) >= n).long()
        kept = {"operating_scores": scores, "operating_grades": grades}
        rates.append(1 - float(find_cuts(Model("ce", {}, kept, {}), ["no", "yes"], rate)[0]))
    mean, error = torch.tensor(rates).mean(), torch.tensor(rates).std() / 1000**0.5
    assert mean <= rate + 2 * error
    assert mean >= rate - 1.5 / n - 2 * error  # and not needlessly strict
    above = sum(one > rate for one in rates)
    assert 200 < above < 600  # a single model's rate is often above it
