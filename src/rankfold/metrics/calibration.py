"""How the share of positive rows grows with the score."""

from typing import NamedTuple

import torch
from torch import Tensor


class Calibration(NamedTuple):
    """Rows in bins, the lowest scores first."""

    scores: Tensor  # [b] float64, the mean score of each bin
    shares: Tensor  # [b] float64, of positives among its rows
    counts: Tensor  # [b] int64, of its rows


def calibration(scores: Tensor, positive: Tensor, bins: int) -> Calibration:
    """The mean score and the share of positives in bins that hold about as many rows each.

    A score is no probability in general, so nothing is assumed of it: where the shares rise from
    bin to bin, a higher score is a surer one; where scores are probabilities, shares equal scores.
    Row i of n in the order of scores is in bin floor(bins i / n); rows of equal scores are in the
    bin of the first of them, so there may be fewer bins than asked for.

    Args:
        scores: [n].
        positive: [n] bool.
        bins: how many, at least 1.
    """
    ordered, places = scores.double().sort()
    first = torch.searchsorted(ordered, ordered)  # of the run of equal scores
    _, own = torch.unique(first * bins // max(1, len(ordered)), return_inverse=True)
    counts = torch.bincount(own)
    means = torch.bincount(own, ordered) / counts
    return Calibration(means, torch.bincount(own, positive[places].double()) / counts, counts)
