"""The share of positive rows in bins of the score."""

from typing import NamedTuple

import torch
from torch import Tensor


class Calibration(NamedTuple):
    """Rows in bins, lowest scores first."""

    scores: Tensor  # [b] float64, the mean score of each bin
    shares: Tensor  # [b] float64, of positives among its rows
    counts: Tensor  # [b] int64, of its rows
    probabilities: Tensor | None = None  # [b] float64, the mean predicted one of each bin

    @property
    def error(self) -> float:
        """The expected calibration error: sum_b n_b / n |share_b - probability_b|."""
        assert self.probabilities is not None
        gaps = (self.shares - self.probabilities).abs()
        return float((self.counts * gaps).sum() / self.counts.sum().clamp(min=1))


def calibration(
    scores: Tensor, positive: Tensor, bins: int, probabilities: Tensor | None = None
) -> Calibration:
    """The mean score and the share of positives in bins of about equal size.

    With the predicted probabilities of the rows, also their mean: a reliability diagram.

    A score need not be a probability. If the shares rise from bin to bin, a higher score is more
    certain; if scores are probabilities, shares equal scores. Row i of n in the order of scores is
    in bin floor(bins i / n). Rows of equal scores share the bin of the first of them, so there may
    be fewer than ``bins``.
    """
    ordered, places = scores.double().sort()
    first = torch.searchsorted(ordered, ordered)  # of the run of equal scores
    _, own = torch.unique(first * bins // max(1, len(ordered)), return_inverse=True)
    counts = torch.bincount(own)

    def means(values: Tensor) -> Tensor:
        return torch.bincount(own, values.double()) / counts

    predicted = None if probabilities is None else means(probabilities[places])
    return Calibration(means(ordered), means(positive[places]), counts, predicted)
