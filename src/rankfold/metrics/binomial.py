"""Exact binomial bounds: how sure a share is that was counted among n rows."""

from math import ceil, log, log1p

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_MOST_ROWS = 2.0**63  # the quotient of a subnormal rate is infinite
_BISECTIONS = 60  # a bound is exact to 2^-60


def interval(count: int, n: int, confidence: float) -> tuple[float, float] | None:
    """The interval of Clopper and Pearson for the true share, if ``count`` of n rows have it.

    With probability ``confidence`` or more, over samples, it contains the true share. None if n is
    0. With X ~ Binomial(n, p), low and high solve::

        P(X >= count; low) = (1 - confidence) / 2,    P(X <= count; high) = (1 - confidence) / 2
    """
    if n == 0:
        return None
    tail = (1 - confidence) / 2
    return 1 - _highest(n - count, n, tail), _highest(count, n, tail)


def most_allowed(n: int, rate: float, confidence: float) -> int:
    """How many of n negatives may exceed a cut so that its true rate is at most ``rate``.

    The share of all negatives above the (m + 1)-th largest of n has the distribution
    Beta(m + 1, n - m), whatever the scores. It is at most ``rate`` with probability ``confidence``
    or more if P(Binomial(n, rate) <= m) <= 1 - confidence. Returns the largest such m, -1 if there
    is none. Equal scores make the true rate smaller, never larger.
    """
    if n * log1p(-rate) > log(1 - confidence):  # P(none of n) is too likely
        return -1
    spread = 40 * (n * rate * (1 - rate)) ** 0.5 + 40  # beyond it the probability is below rounding
    last = min(n, ceil(n * rate + spread))
    below = np.exp(_log_terms(n, np.arange(last + 1), rate)).cumsum()
    return int(np.searchsorted(below, 1 - confidence, side="right")) - 1


def rows_needed(rate: float, confidence: float) -> int:
    """The fewest negatives with which ``most_allowed`` is not -1: (1 - rate)^n <= 1 - confidence.

    299 for a rate of .01 at a confidence of .95.
    """
    return ceil(min(log(1 - confidence) / log1p(-rate), _MOST_ROWS))


def _highest(count: int, n: int, tail: float) -> float:
    """The p with P(Binomial(n, p) <= count) = tail; 1 if count is n."""
    if count >= n:
        return 1.0
    if count > n // 2:  # fewer terms on the other side: P(X <= count) = 1 - P(n - X < n - count)
        return 1 - _solve(n - count - 1, n, 1 - tail)
    return _solve(count, n, tail)


def _solve(count: int, n: int, level: float) -> float:
    """The p with P(Binomial(n, p) <= count) = level, which falls with p."""
    if count < 0:
        return 0.0 if level < 1 else 1.0
    terms = np.arange(count + 1)
    weights = _log_choose(n, terms)
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        logs = weights + terms * log(middle) + (n - terms) * log1p(-middle)
        low, high = (middle, high) if np.exp(logs).sum() > level else (low, middle)
    return (low + high) / 2


def _log_terms(n: int, counts: NDArray[np.int64], p: float) -> Floats:
    """Log P(Binomial(n, p) = each of ``counts``)."""
    logs: Floats = _log_choose(n, counts) + counts * log(p) + (n - counts) * log1p(-p)
    return logs


def _log_choose(n: int, counts: NDArray[np.int64]) -> Floats:
    import torch

    k = torch.from_numpy(counts).double()
    whole = torch.lgamma(torch.tensor(n + 1.0, dtype=torch.float64))
    logs: Floats = (whole - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)).numpy()
    return logs
