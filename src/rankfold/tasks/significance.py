"""Whether a difference between methods is more than chance: intervals, paired tests, Holm.

The sample is the set of queries or graded rows; seeds are averaged first. Memory does not grow with
the number of queries, and the same seed gives the same numbers.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.metrics.graded import GradedSpec, values_of
from rankfold.metrics.roc import passing, run_ends
from rankfold.notebook import silent
from rankfold.types import Progress

_SAMPLES = 1000  # of a bootstrap
_FLIPS = 10_000  # of a randomisation test
BLOCK = 2**20  # signs or counts in memory at a time
_CONFIDENCE = 0.95
Floats = NDArray[np.float64]


def mean_intervals(values: Floats) -> Floats:
    """The percentile interval of each row's mean, by a bootstrap over queries.

    ``values`` [J, n] have a row per method, a column per query. All rows share the same samples of
    n queries, drawn with replacement. Returns [J, 2], the ends of the 95% interval.
    """
    columns = torch.from_numpy(np.ascontiguousarray(values.T))
    samples = resampled(len(columns), _SAMPLES, seed=0)
    means = [counts.double() @ columns / len(columns) for counts in samples]
    return _middle(torch.cat(means).numpy())


def flip_test(differences: Floats, flips: int = _FLIPS) -> Floats:
    """The p value of each row's mean, by a paired randomisation test.

    If two methods were equal, each query's difference would be positive or negative with equal
    probability. With T the absolute sum of a row, and T_f that with the signs of flip f::

        p = (1 + #{f: T_f >= T}) / (1 + flips)

    ``differences`` [J, n] are per query; all rows share the signs. Returns [J], two-sided; 1 for a
    row of zeros.
    """
    columns = torch.from_numpy(np.ascontiguousarray(differences.T))
    total = columns.sum(dim=0)
    slack = 1e-12 * columns.abs().sum(dim=0)  # sums of equal terms in another order count as equal
    reached, rng = torch.zeros_like(total), np.random.default_rng(0)
    step = max(1, BLOCK // max(len(columns), 1))
    for start in range(0, flips, step):
        rows, width = min(step, flips - start), -(-len(columns) // 8)
        bits = np.frombuffer(rng.bytes(rows * width), np.uint8).reshape(rows, width)
        signs = torch.from_numpy(np.unpackbits(bits, axis=1)[:, : len(columns)])  # 1 keeps the sign
        kept = signs.double() @ columns
        reached += ((2 * kept - total).abs() >= total.abs() - slack).sum(dim=0)
    return ((1 + reached) / (1 + flips)).numpy()


class Spread(NamedTuple):
    """The pooled variance between the seeds of a method."""

    variance: float
    df: int


def spread(methods: Sequence[Sequence[float]]) -> Spread:
    """The pooled variance between seeds; methods with equal values for all seeds do not count."""
    drawn = [seeds for seeds in methods if len(seeds) > 1 and max(seeds) > min(seeds)]
    df = sum(len(seeds) - 1 for seeds in drawn)
    squares = sum(float(np.var(seeds)) * len(seeds) for seeds in drawn)
    return Spread(squares / max(df, 1), df)


def seed_test(
    ours: Sequence[float], theirs: Sequence[float], pooled: Spread | None = None
) -> float | None:
    """Welch's t test between the seeds of two methods.

    With m the mean and v = variance / seeds of each method::

        t = (m1 - m2) / sqrt(v1 + v2),  df = (v1 + v2)^2 / (v1^2 / (n1 - 1) + v2^2 / (n2 - 1))

    With two seeds df is about 1, and no difference is significant. So with two seeds and a pooled
    variance, the variance of a random method is at least the pooled one, with the pooled df.

    Returns the two-sided p; None with one seed; 0 for deterministic methods that differ.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    parts = [float(np.var(seeds, ddof=1)) / len(seeds) for seeds in (ours, theirs)]
    if pooled is not None and (pooled.df <= 1 or max(len(ours), len(theirs)) > 2):
        pooled = None
    if pooled is not None:
        parts = [max(part, pooled.variance / 2) if part > 0 else part for part in parts]
    difference, variance = abs(np.mean(ours) - np.mean(theirs)), sum(parts)
    if difference == 0 or variance == 0:
        return float(difference == 0)
    if pooled is not None:
        return _two_sided_p(float(difference / np.sqrt(variance)), float(pooled.df))
    sizes = (len(ours) - 1, len(theirs) - 1)
    df = variance**2 / sum(part**2 / size for part, size in zip(parts, sizes, strict=True))
    return _two_sided_p(float(difference / np.sqrt(variance)), float(df))


def _two_sided_p(t: float, df: float) -> float:
    """The probability that the absolute value of Student's t exceeds t >= 0.

    With t = sqrt(df) tan(a), it is the share of the integral of cos(a)^(df - 1) beyond a, up to
    pi / 2.
    """
    middles = (np.arange(4000) + 0.5) / 4000
    start, end = np.arctan(t / np.sqrt(df)), np.pi / 2
    tail, whole = (
        (end - low) * (np.cos(low + (end - low) * middles) ** (df - 1)).mean() for low in (start, 0)
    )
    return float(tail / whole)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction of p values for multiple comparisons.

    With the p ascending, p_(1) <= .. <= p_(m)::

        p_holm_(i) = min(1, max_{j <= i} (m - j + 1) p_(j))
    """
    order = sorted(range(len(p)), key=lambda place: p[place])
    corrected, highest = [0.0] * len(p), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, (len(p) - rank) * p[place])
        corrected[place] = min(1.0, highest)
    return corrected


def graded_draws(
    scores: Sequence[Sequence[Tensor]],
    grades: Tensor,
    n_grades: int,
    specs: Sequence[GradedSpec],
    *,
    samples: int = _SAMPLES,
    seed: int = 0,
    progress: Progress = silent,
) -> Floats:
    """Metrics of graded rows in bootstrap samples, averaged over seeds.

    All methods share the same samples, so that their differences are paired. A value is the mean
    over thresholds; NaN if a sample has only one grade. ``scores`` are those of all rows [n] for
    each method and seed; ``grades`` [n] are from 0 to G - 1. Returns [methods, metrics, samples].
    """
    ordered = [[_Ordered(one, grades, n_grades) for one in seeds] for seeds in scores]
    blocks: list[Tensor] = []
    done = 0
    for counts in resampled(len(grades), samples, n_grades, seed=seed):
        drawn = [torch.stack([one.metrics(counts, specs) for one in seeds]) for seeds in ordered]
        blocks.append(torch.stack([values.mean(dim=0) for values in drawn]))
        done += len(counts)
        progress("resampling", done / samples)
    return torch.cat(blocks, dim=2).numpy()


def interval_of(draws: Floats, confidence: float = _CONFIDENCE) -> tuple[float, float] | None:
    """The interval of the samples with a value; None with fewer than two."""
    known = draws[~np.isnan(draws)]
    if len(known) < 2:
        return None
    low, high = _middle(known[:, None], confidence)[0]
    return float(low), float(high)


def p_of_draws(differences: Floats) -> float:
    """The two-sided p value of a difference, from its bootstrap samples; 1 without any.

    With S the number of samples with a value::

        p = min(1, 2 (1 + min(#{d <= 0}, #{d >= 0})) / (1 + S))
    """
    known = differences[~np.isnan(differences)]
    fewer = min(int((known <= 0).sum()), int((known >= 0).sum()))
    return min(1.0, 2 * (1 + fewer) / (1 + len(known)))


def resampled(n: int, samples: int, width: int = 1, *, seed: int) -> Iterator[Tensor]:
    """How often each of n rows occurs in each bootstrap sample, in blocks; [b, n] int64.

    ``width``: numbers that the caller computes per count, which makes the blocks smaller. The draws
    do not depend on the size of the blocks.
    """
    rng = torch.Generator().manual_seed(seed)
    step = max(1, BLOCK // max(n * width, 1))
    for start in range(0, samples, step):
        size = min(step, samples - start)
        drawn = [torch.randint(n, (n,), generator=rng) for _ in range(size)]
        yield torch.stack([torch.bincount(one, minlength=n) for one in drawn])


class _Ordered:
    """Rows sorted by descending score, for many samples."""

    def __init__(self, scores: Tensor, grades: Tensor, n_grades: int) -> None:
        ordered, self.places = scores.sort(descending=True)
        self.ends = run_ends(ordered)
        self.of_grade = (grades[self.places] == torch.arange(n_grades)[:, None]).long()

    def metrics(self, counts: Tensor, specs: Sequence[GradedSpec]) -> Tensor:
        """Each metric's mean over thresholds, for rows with these counts [b, n]; [metrics, b]."""
        own = counts[:, self.places]
        passed = passing(own * self.of_grade[:, None, :], self.ends)
        return torch.stack([values.nanmean(dim=0) for values in values_of(passed, specs)])


def _middle(draws: Floats, confidence: float = _CONFIDENCE) -> Floats:
    """The percentiles around the middle share of each column of [samples, J]; [J, 2]."""
    tail = (1 - confidence) / 2
    return np.quantile(draws, [tail, 1 - tail], axis=0).T
