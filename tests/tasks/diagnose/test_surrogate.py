"""The surrogate and the exact risk for normal scores, against their limits."""

import math

import pytest
import torch

from rankfold.errors import UserError
from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.surrogate import normal_scores

AGREED = math.log1p(math.exp(-0.4))  # both risks where all scores of a side are equal


def test_scores_are_normal() -> None:
    scores, grades = normal_scores(20_000, 0.2)
    for grade, mean in ((1, 0.7), (0, 0.3)):
        mine = scores[grades == grade]
        assert mine.mean().item() == pytest.approx(mean, abs=1e-6)
        assert mine.std().item() == pytest.approx(0.2, rel=1e-3)
        assert (mine < mean - 0.2).double().mean().item() == pytest.approx(0.158655, abs=1e-3)


def test_risks_agree_as_the_spread_falls() -> None:
    result = diagnose("surrogate", options={"scores": 400}).details
    assert result["spreads"][0] == 0.3
    assert result["spreads"][-1] == 0
    assert result["exact"][-1] == pytest.approx(AGREED, abs=1e-6)
    for values in result["surrogate"].values():
        assert values[-1] == pytest.approx(AGREED, abs=1e-6)
        gaps = [a - b for a, b in zip(result["exact"], values, strict=True)]
        assert gaps == sorted(gaps, reverse=True)
        assert gaps[0] > 0


def test_surrogates_approach_the_exact_risk_as_sigma_falls() -> None:
    result = diagnose("surrogate", options={"sigmas": "0.1,0.01,0.001,0.0001", "spreads": 3})
    wide, *_, narrow = result.summary.values()
    assert wide > 0.1
    assert narrow < 1e-6


def test_exact_risk_is_the_integral() -> None:
    """E log(1 + exp(s_beta - s+)) for s+ normal around .7, s_beta the quantile of negatives."""
    result = diagnose("surrogate", options={"scores": 2000, "fpr": 0.1, "spreads": 2}).details
    cut = 0.3 + 0.3 * torch.special.ndtri(torch.tensor(0.9, dtype=torch.float64))
    z = torch.linspace(-8, 8, 20_001, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    values = torch.nn.functional.softplus(cut - (0.7 + 0.3 * z)) * density
    assert result["exact"][0] == pytest.approx(torch.trapezoid(values, z).item(), abs=1e-3)


def test_a_narrow_gaussian_leaves_the_negative_at_the_rate() -> None:
    options = {"scores": 500, "sigmas": "0.3,0.1,0.0001", "fpr": 0.1, "spreads": 2}
    actual = diagnose("surrogate", options=options)
    scores, grades = normal_scores(500, 0.3)
    cut = scores[grades == 0].sort(descending=True).values[50]  # a tenth of them are above
    expected = torch.nn.functional.softplus(cut - scores[grades == 1]).mean().item()
    assert actual.details["surrogate"]["0.0001"][0] == pytest.approx(expected, abs=1e-6)
    wide, narrow, least = actual.summary.values()
    assert wide > 2 * narrow
    assert narrow > 2 * least  # which is one place of 500


@pytest.mark.parametrize("sigmas", ["", "0.1,x", "0", "-1,2", "inf"])
def test_bad_sigmas_are_refused(sigmas: str) -> None:
    with pytest.raises(UserError, match="`sigmas` must be distinct numbers above 0"):
        diagnose("surrogate", options={"sigmas": sigmas})
