"""Exact binomial bounds: by loops over exact fractions, and the promise by simulation."""

from fractions import Fraction
from math import comb

import pytest
import torch

from rankfold.metrics.binomial import interval, most_allowed, rows_needed
from rankfold.metrics.roc import cut


def at_most(count: int, n: int, p: Fraction) -> Fraction:
    """P(Binomial(n, p) <= count)."""
    return sum((comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(count + 1)), Fraction(0))


@pytest.mark.parametrize("n", [1, 2, 9, 40])
def test_the_ends_of_an_interval_have_the_tails_they_should(n: int) -> None:
    for count in {0, 1, n // 3, n - 1, n}:
        low, high = interval(count, n, 0.9) or (0.0, 0.0)
        assert low <= count / n <= high
        assert (low == 0) == (count == 0)
        assert (high == 1) == (count == n)
        if count:
            reaches = 1 - at_most(count - 1, n, Fraction(low))
            assert float(reaches) == pytest.approx(0.05, rel=1e-9)
        if count < n:
            assert float(at_most(count, n, Fraction(high))) == pytest.approx(0.05, rel=1e-9)


def test_intervals_of_known_counts() -> None:
    assert interval(0, 0, 0.95) is None
    assert interval(0, 100, 0.95) == pytest.approx((0, 0.0362167), abs=1e-6)
    assert interval(8, 20, 0.95) == pytest.approx((0.1911901, 0.6394574), abs=1e-6)
    low, high = interval(500_000, 1_000_000, 0.95) or (0.0, 0.0)
    assert high - low == pytest.approx(2 * 1.959964 * 0.0005, rel=1e-3)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("n", [1, 30, 60, 299])
def test_as_many_may_exceed_a_cut_as_the_binomial_allows(n: int, rate: float) -> None:
    allowed, p = most_allowed(n, rate, 0.9), Fraction(rate)
    assert allowed < 0 or at_most(allowed, n, p) <= Fraction(0.1)
    assert at_most(allowed + 1, n, p) > Fraction(0.1)


def test_the_rows_needed_are_the_fewest() -> None:
    assert rows_needed(0.01, 0.95) == 299
    for rate, confidence in ((0.01, 0.95), (0.05, 0.99), (0.001, 0.9)):
        needed = rows_needed(rate, confidence)
        assert most_allowed(needed, rate, confidence) == 0
        assert most_allowed(needed - 1, rate, confidence) == -1
    assert rows_needed(1e-320, 0.95) == 2**63  # the quotient is infinite


@pytest.mark.parametrize(("n", "rate"), [(299, 0.01), (700, 0.01), (450, 0.1)])
def test_the_promise_holds_in_simulation(n: int, rate: float) -> None:
    """Of 1,000 draws of kept negatives with uniform scores, as many as .95 and chance allow.

    The share of new negatives above a cut of uniform scores is 1 - cut.
    """
    rng = torch.Generator().manual_seed(n)
    allowed = most_allowed(n, rate, 0.95)
    draws = torch.rand(1000, n, generator=rng, dtype=torch.float64)
    cuts = torch.stack([cut(one, allowed) for one in draws])
    kept = int((1 - cuts <= rate).sum())
    assert kept >= 936  # binomial(1000, .95) is below it once in 40 times
    assert kept <= 990  # and the cut is not needlessly strict
    average = torch.stack([cut(one, int(rate * n)) for one in draws])
    assert int((1 - average <= rate).sum()) < 800  # without a confidence it is a coin toss
