"""F1, precision and recall of sets: the results of each query that reach their thresholds.

A set has no order. What counts is how often each candidate was returned, was returned and right,
and was true, over all queries; see ``count_sets``. All metrics are between 0 and 1.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.types import Interactions


class SetCounts(NamedTuple):
    """Numbers of queries, for each of N candidates. The counts of batches add up."""

    right: Tensor  # [N], that got it and have it
    returned: Tensor  # [N], that got it
    true: Tensor  # [N], that have it


def count_sets(ids: Tensor, truth: Interactions) -> SetCounts:
    """The counts of B sets; ``ids`` are [B, K], distinct in a row, -1 for nothing."""
    n, rows = truth.n_candidates, torch.arange(len(ids), device=ids.device)
    kept = ids >= 0
    returned = ids[kept]
    positive = truth if truth.grades is None else truth.keep(truth.grades > 0)
    codes = (rows[:, None] * n + ids)[kept]
    right = returned[torch.isin(codes, positive.codes())]
    return SetCounts(
        torch.bincount(right, minlength=n),
        torch.bincount(returned, minlength=n),
        positive.candidate_counts(),
    )


def micro_precision(counts: SetCounts) -> Tensor:
    """Share of all returned candidates that are right: sum_y right_y / sum_y returned_y.

    Returns a scalar, and 0 if nothing was returned.
    """
    return _share(counts.right.sum(), counts.returned.sum())


def micro_recall(counts: SetCounts) -> Tensor:
    """Share of all true pairs that were returned: sum_y right_y / sum_y true_y; a scalar."""
    return _share(counts.right.sum(), counts.true.sum())


def micro_f1(counts: SetCounts) -> Tensor:
    """The harmonic mean of both, over all pairs: frequent candidates count most.

    ::

        micro_f1 = 2 sum_y right_y / (sum_y returned_y + sum_y true_y)
    """
    return _share(2 * counts.right.sum(), counts.returned.sum() + counts.true.sum())


def macro_precision(counts: SetCounts) -> Tensor:
    """Mean over candidates of right_y / returned_y, 0 where nothing was returned.

    The mean of the macro metrics is over the candidates that are true or returned at least once.
    """
    return _mean(_share(counts.right, counts.returned), counts)


def macro_recall(counts: SetCounts) -> Tensor:
    """Mean over candidates of right_y / true_y, 0 where nothing is true."""
    return _mean(_share(counts.right, counts.true), counts)


def macro_f1(counts: SetCounts) -> Tensor:
    """Mean over candidates of their F1: a rare one counts as much as a frequent one.

    ::

        f1_y = 2 right_y / (returned_y + true_y)
    """
    return _mean(_share(2 * counts.right, counts.returned + counts.true), counts)


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """0 where the whole is 0."""
    return part.double() / whole.clamp(min=1)


def _mean(values: Tensor, counts: SetCounts) -> Tensor:
    occur = counts.returned + counts.true > 0
    return values[occur].sum() / occur.sum().clamp(min=1)
