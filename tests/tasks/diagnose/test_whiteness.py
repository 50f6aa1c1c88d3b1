"""The Box-Pierce test matches its formula, the mean rank a loop over pairs."""

import pytest
import torch
from linear_grades import data_of
from scipy.stats import chi2 as chi_square

from rankfold.distributed.collectives import SingleProcess
from rankfold.errors import UserError
from rankfold.methods.ordinal.cba import CbaConfig
from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.training import DiagnosedTraining, ranks_among, train_observed
from rankfold.tasks.diagnose.whiteness import box_pierce
from rankfold.types import Run


def test_value_matches_the_formula() -> None:
    series = torch.randn(3, 40, generator=torch.Generator().manual_seed(0)).double()
    actual, p = box_pierce(series, 5)
    for row, value, probability in zip(series.tolist(), actual, p, strict=True):
        mean = sum(row) / len(row)
        c = [x - mean for x in row]
        power = sum(x * x for x in c)
        rho = [sum(c[t] * c[t - k] for t in range(k, 40)) / power for k in range(1, 6)]
        expected = 40 * sum(r * r for r in rho)
        assert value.item() == pytest.approx(expected)
        assert probability.item() == pytest.approx(chi_square.sf(expected, 5))


def test_p_is_uniform_for_white_noise() -> None:
    noise = torch.randn(4000, 500, generator=torch.Generator().manual_seed(1))
    _, p = box_pierce(7 + 3 * noise, 8)
    assert p.mean().item() == pytest.approx(0.5, abs=0.02)
    assert (p < 0.05).double().mean().item() == pytest.approx(0.05, abs=0.012)
    assert (p < 0.5).double().mean().item() == pytest.approx(0.5, abs=0.03)


def test_p_is_tiny_for_correlated_steps() -> None:
    noise = torch.randn(20, 300, generator=torch.Generator().manual_seed(2))
    series = noise.clone()
    for t in range(1, 300):
        series[:, t] += 0.6 * series[:, t - 1]
    _, p = box_pierce(series, 8)
    assert p.max().item() < 1e-6


def test_a_constant_series_has_p_1() -> None:
    chi2, p = box_pierce(torch.full((50,), 0.1), 4)
    assert (chi2.item(), p.item()) == (0.0, 1.0)


def test_ranks_equal_a_loop_over_pairs() -> None:
    run = Run(torch.Generator().manual_seed(0), torch.device("cpu"), SingleProcess())
    training, trained = DiagnosedTraining(data_of(), CbaConfig(epochs=1, width=8), run), []
    list(
        train_observed(
            training, lambda parts, _queues, _first: trained.append(parts) or (lambda _seen: None)
        )
    )
    (parts,) = trained
    rows, others = training.sample(20, "rows"), training.sample(50, "others")
    with torch.no_grad():
        scores = parts.module.head(parts.module.vectors(parts.rows.own))[:, 0].tolist()
    grades, values = parts.rows.grades.tolist(), []
    for k in range(2):
        negatives = [i for i in others.tolist() if grades[i] <= k]
        values += [
            sum(scores[j] > scores[i] for j in negatives) / len(negatives) for i in rows.tolist()
        ]
    result = ranks_among(parts, rows, others).mean().item()
    assert result == pytest.approx(sum(values) / len(values), abs=1e-4)


def test_every_step_is_seen() -> None:
    options = {"epochs": 6, "batch_size": 16, "window": 20, "every": 5, "lags": 4, "width": 4}
    result = diagnose("whiteness", data_of(), options)
    steps = 6 * 13  # 200 rows
    increments, windows = result.details["increments"], result.details["windows"]
    assert len(increments) == steps
    assert any(increments)
    assert [entry["step"] for entry in windows] == list(range(20, steps + 1, 5))
    last = torch.tensor(increments)[windows[-1]["step"] - 20 : windows[-1]["step"]]
    assert box_pierce(last, 4)[1].item() == pytest.approx(windows[-1]["p"], abs=1e-3)
    white = [entry["p"] > 0.05 for entry in windows]
    assert result.summary["share of windows with p > 0.05"] == pytest.approx(
        sum(white) / len(white), rel=1e-5
    )


def test_a_stride_joins_increments() -> None:
    options = {"epochs": 4, "batch_size": 16, "window": 12, "lags": 2, "width": 4}
    single, joint = (
        diagnose("whiteness", data_of(), {**options, "stride": stride}).details for stride in (1, 4)
    )
    sums = torch.tensor(single["increments"]).view(13, 4).sum(dim=1)
    assert joint["increments"] == pytest.approx(sums.tolist(), abs=1e-5)
    assert joint["windows"][0]["step"] == 48


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"window": 10, "lags": 10}, "`window` must be above `lags`, got 10 and 10"),
        ({"epochs": 1}, "training has 7 increments, and a window needs 100"),
        ({"rows": 0}, "`rows` must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, int], word: str) -> None:
    with pytest.raises(UserError, match=word):
        diagnose("whiteness", data_of(), options)
