"""The weights of in-batch estimators, against an enumeration of all batches and picks."""

from itertools import product

import pytest
import torch
from scored_models import model_of_scores

from rankfold.errors import UserError
from rankfold.samplers.resampling import DRAWS
from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.limits import expected_weights, limits_of, total_variation

SCORES = torch.tensor([0.3, -0.8, 1.1], dtype=torch.float64)
POPULARITY = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def enumerated(estimator: str, size: int = 2) -> torch.Tensor:
    """The mean weights over every batch of 2 and every outcome of 2 independent picks."""
    total = torch.zeros(3, dtype=torch.float64)
    s, p = SCORES.tolist(), POPULARITY.tolist()
    exp = [float(torch.tensor(one).exp()) for one in s]
    for batch in product(range(3), repeat=size):
        chance = p[batch[0]] * p[batch[1]]
        if not estimator.startswith("bir"):
            mass = [exp[j] / (p[j] if estimator == "ssl-pop" else 1) for j in batch]
            for j, one in zip(batch, mass, strict=True):
                total[j] += chance * one / sum(mass)
            continue
        hard = [exp[j] / p[j] for j in batch]
        w = [one / sum(hard) for one in hard]
        for picks in product(range(size), repeat=size):
            likely = chance * w[picks[0]] * w[picks[1]]
            mass = [
                {
                    "bir released": exp[batch[c]],
                    "bir appendix": exp[batch[c]] / (size * w[c]),
                    "bir sir": 1.0,
                }[estimator]
                for c in picks
            ]
            for c, one in zip(picks, mass, strict=True):
                total[batch[c]] += likely * one / sum(mass)
    return total


def test_weights_equal_an_enumeration() -> None:
    rng = torch.Generator().manual_seed(0)
    drawn = expected_weights(SCORES, POPULARITY, 2, 2**19, DRAWS["multinomial"], rng)
    for name, (first, second) in drawn.items():
        expected = enumerated(name).tolist()
        assert ((first + second) / 2).tolist() == pytest.approx(expected, abs=0.004), name


def test_limits_and_distance_are_the_formulas() -> None:
    targets = limits_of(SCORES, POPULARITY)
    for name, power, popular in (("s", 1, 0), ("2s", 2, 0), ("s + log pop", 1, 1)):
        mass = (power * SCORES).exp() * POPULARITY**popular
        assert targets[name].tolist() == pytest.approx((mass / mass.sum()).tolist())
    left, right = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.2, 0.3, 0.5])
    assert total_variation(left, right).item() == pytest.approx(0.5)


def test_every_estimator_approaches_the_limit_of_the_documentation() -> None:
    data, model = model_of_scores(1.0)
    options = {"batches": "8,2048", "draws": 2**17, "queries": 4}
    result = diagnose("limits", data, options, model=model)
    assert result.details["nearest"] == {
        "ssl": "s + log pop",
        "ssl-pop": "s",
        "bir released": "2s",
        "bir appendix": "s + log pop",
        "bir sir": "s",
    }
    by = result.details["distances"]["ssl-pop"]["s"]
    assert by[1] < by[0]


@pytest.mark.parametrize("words", ["", "64", "64,8", "0,64", "a,b"])
def test_batches_must_ascend(words: str) -> None:
    with pytest.raises(UserError, match="`batches`"):
        diagnose("limits", None, {"batches": words})
