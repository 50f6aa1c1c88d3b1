"""Intervals and tests of differences, against loops and against simulated chance."""

from itertools import product

import numpy as np
import pytest
import torch

from rankfold.metrics.graded import graded_mean, parse_graded
from rankfold.tasks import significance
from rankfold.tasks.significance import (
    flip_test,
    graded_draws,
    holm,
    interval_of,
    mean_intervals,
    p_of_draws,
    resampled,
    seed_test,
    spread,
)


def test_flips_approach_the_share_of_all_sign_patterns() -> None:
    rng = np.random.default_rng(0)
    differences = rng.normal(0.3, 1.0, (4, 11))
    observed = np.abs(differences.sum(axis=1))
    signs = np.array(list(product([-1, 1], repeat=11)))
    exact = (np.abs(signs @ differences.T) >= observed - 1e-12).mean(axis=0)
    assert flip_test(differences, flips=40_000) == pytest.approx(exact, abs=0.01)


def test_a_flip_that_only_changes_the_order_of_the_sum_counts() -> None:
    """All differences are equal: only two of the 2^4 sign patterns reach T."""
    p = flip_test(np.array([[0.1, 0.1, 0.1, 0.1]]), flips=20_000)
    assert p == pytest.approx([2 / 16], abs=0.01)


def test_zero_differences_have_p_1() -> None:
    assert flip_test(np.zeros((2, 50))).tolist() == [1.0, 1.0]


def test_p_is_uniform_without_a_difference() -> None:
    """Simulated null comparisons; the distance to uniform is that of Kolmogorov and Smirnov."""
    rng = np.random.default_rng(1)
    p = np.sort(
        flip_test(rng.exponential(size=(600, 80)) - rng.exponential(size=(600, 80)), flips=999)
    )
    distance = np.abs(p - (np.arange(600) + 0.5) / 600).max()
    assert distance < 1.63 / np.sqrt(600)  # the 99% quantile for uniform values
    assert 0.02 < (p < 0.05).mean() < 0.08


def test_a_planted_difference_is_significant() -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(1, 2000))
    assert flip_test(noise - noise.mean() + 0.1)[0] < 0.001
    assert flip_test(noise - noise.mean())[0] == 1.0


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.random.default_rng(3).normal(0.1, 1, (2, 301))
    whole, again = flip_test(differences), flip_test(differences)
    assert (whole == again).all()
    monkeypatch.setattr(significance, "BLOCK", 5_000)
    assert flip_test(differences) == pytest.approx(whole, abs=0.02)


def test_intervals_of_means_match_theory_and_cover_the_truth() -> None:
    rng = np.random.default_rng(4)
    values = rng.exponential(size=(200, 100))
    low, high = mean_intervals(values).T
    error = values.std(axis=1) / 10
    assert (high - low) / (2 * 1.96 * error) == pytest.approx(np.ones(200), abs=0.15)
    assert 0.88 < ((low <= 1) & (high >= 1)).mean() <= 0.99


def test_a_sample_has_as_many_rows_as_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.cat(list(resampled(30, 50, seed=0)))
    assert whole.shape == (50, 30)
    assert (whole.sum(dim=1) == 30).all()
    assert whole.unique(dim=0).shape[0] == 50
    monkeypatch.setattr(significance, "BLOCK", 100)
    assert torch.equal(torch.cat(list(resampled(30, 50, 2, seed=0))), whole)


def test_the_seed_test_matches_scipy() -> None:
    reference = pytest.importorskip("scipy.stats").ttest_ind
    rng = np.random.default_rng(6)
    for n, m, shift in ((2, 2, 0.0), (3, 3, 1.0), (2, 5, 3.0), (10, 10, 2.0), (3, 3, 40.0)):
        ours, theirs = rng.normal(shift, 1, n), rng.normal(0, 2, m)
        expected = reference(ours, theirs, equal_var=False).pvalue
        assert seed_test(ours.tolist(), theirs.tolist()) == pytest.approx(expected, rel=1e-3)


def test_deterministic_seeds() -> None:
    assert seed_test([0.1], [0.2]) is None
    assert seed_test([0.1, 0.1], [0.2, 0.2]) == 0.0
    assert seed_test([0.1, 0.1], [0.1, 0.1]) == 1.0
    assert 0 < (seed_test([0.1, 0.1], [0.2, 0.21]) or 0) < 0.1  # one of them is random


def test_two_seeds_use_the_pooled_variance() -> None:
    rng = np.random.default_rng(0)
    methods = [rng.normal(level, 0.001, 2).tolist() for level in np.linspace(0.06, 0.09, 9)]
    pooled = spread([*methods, [0.05, 0.05], [0.04]])
    assert pooled.df == 9
    assert pooled.variance == pytest.approx(1e-6, rel=1.0)
    alone, borrowed = seed_test(methods[0], methods[8]), seed_test(methods[0], methods[8], pooled)
    assert alone is not None
    assert borrowed is not None
    assert borrowed < 1e-6 < alone
    close = [[0.07, 0.0702], [0.0704, 0.0707]]  # different by chance: seeds differ by .001
    assert (seed_test(*close, pooled) or 0) > 0.3


def test_two_seeds_of_one_method_seldom_differ() -> None:
    rng = np.random.default_rng(1)
    significant = 0
    for _ in range(2000):
        methods = rng.normal(0, 1, (6, 2)).tolist()
        significant += (seed_test(methods[0], methods[1], spread(methods)) or 0) < 0.05
    assert significant / 2000 < 0.05


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        ([], []),
        ([0.04], [0.04]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),  # 3 * .01, then 2 * .03, then at least that
        ([0.5, 0.6], [1.0, 1.0]),
    ],
)
def test_holm(p: list[float], expected: list[float]) -> None:
    assert holm(p) == pytest.approx(expected)


def test_draws_of_graded_rows_are_the_metrics_of_the_sampled_rows() -> None:
    rng = torch.Generator().manual_seed(5)
    grades = torch.randint(0, 3, (40,), generator=rng)
    seeds = [(grades + torch.randn(40, generator=rng)).round(decimals=1) for _ in range(3)]
    scores = [seeds[:2], seeds[2:]]  # two seeds of one method, one of another; with equal scores
    names = ("auc", "tpr@fpr=.1", "tpr-closest@fpr=.2", "pauc@fpr=.1", "order")
    specs = [parse_graded(name) for name in names]
    drawn = graded_draws(scores, grades, 3, specs, samples=6, seed=9)
    assert drawn.shape == (2, 5, 6)
    samples = torch.cat(list(resampled(40, 6, seed=9)))
    for sample, counts in enumerate(samples):
        rows = torch.repeat_interleave(torch.arange(40), counts)
        for method, own in enumerate(scores):
            for place, spec in enumerate(specs):
                values = [graded_mean(one[rows], grades[rows], 3, spec) for one in own]
                assert drawn[method, place, sample] == pytest.approx(sum(values) / len(values))


def test_p_of_draws_is_about_uniform_for_equal_methods() -> None:
    values = []
    for seed in range(60):
        rng = torch.Generator().manual_seed(seed)
        grades = torch.randint(0, 2, (120,), generator=rng)
        both = [[grades + 2 * torch.randn(120, generator=rng)] for _ in range(2)]
        draws = graded_draws(both, grades, 2, [parse_graded("auc")], samples=200)
        values.append(p_of_draws(draws[0, 0] - draws[1, 0]))
    p = np.sort(values)
    assert np.abs(p - (np.arange(60) + 0.5) / 60).max() < 1.63 / np.sqrt(60)


def test_p_of_draws_counts_both_sides() -> None:
    assert p_of_draws(np.array([1.0] * 99)) == pytest.approx(2 / 100)
    assert p_of_draws(np.array([0.0] * 99)) == 1.0
    assert p_of_draws(np.array([np.nan] * 9)) == 1.0


def test_interval_leaves_samples_without_a_value_out() -> None:
    draws = np.array([np.nan, *np.linspace(0, 1, 101)])
    assert interval_of(draws) == pytest.approx((0.025, 0.975))
    assert interval_of(np.array([np.nan])) is None
    assert interval_of(np.array([np.nan, 0.5])) is None  # one has no spread
