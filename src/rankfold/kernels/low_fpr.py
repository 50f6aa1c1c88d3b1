"""``low_fpr_loss`` of many rows: for thresholds that share scores, and its derivatives."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

_KNOTS = 2048  # of the grid of scores


def shared_low_fpr_loss(scores: Tensor, positive: Tensor, weights: Tensor) -> Tensor:
    """Equals ``low_fpr_loss(scores.expand(T, -1), positive, all valid, weights)``.

    With c_ij = log(1 + exp(s_j - s_i)), which does not depend on the threshold::

        loss_t = sum_i (positive_ti / |P_t|) sum_j p_tj c_ij

    Args:
        scores: s, [B].
        positive: which rows are positive at each threshold; [T, B] bool.
        weights: of the negatives, proportional to p; [T, B]; those of positives do not count.

    Returns [T], and 0 for a threshold with an empty side.
    """
    p = weights.masked_fill(positive, 0.0)
    total = p.sum(dim=1, keepdim=True)
    p = p / total.masked_fill(total == 0, 1.0)
    shares = positive / positive.sum(dim=1, keepdim=True).clamp(min=1)
    costs = softplus(scores - scores[:, None])  # [i, j]
    return ((shares.to(costs.dtype) @ costs) * p).sum(dim=1)


class LowFpr(NamedTuple):
    """``low_fpr_loss`` of one threshold, and its derivatives by each score."""

    value: Tensor  # []
    first: Tensor  # [n]
    second: Tensor  # [n]


def low_fpr_derivatives(scores: Tensor, positive: Tensor, p: Tensor) -> LowFpr:
    """``low_fpr_loss`` and its first and second derivatives by each score, in O(n); float64.

    With sigma(x) = 1 / (1 + exp(-x)) and the weights p of the negatives held constant::

        first_j  = p_j mean_i sigma(s_j - s_i)           of a negative j, over the positives i
        first_i  = -sum_j p_j sigma(s_j - s_i) / |P|     of a positive i, over the negatives j

    The second ones have sigma (1 - sigma) instead. The sums over pairs are convolutions: each side
    is spread over a grid of scores, and its sums are read between two points of the grid. For
    scores that span 50, each sigma is exact to 2e-5. All are 0 where a side is empty.

    Args:
        scores: s, [n] float64.
        positive: which rows are positive; [n] bool.
        p: weights of the negatives, with sum 1; [n] float64; those of positives do not count.
    """
    if not bool(positive.any()) or bool(positive.all()):
        return LowFpr(scores.new_zeros(()), torch.zeros_like(scores), torch.zeros_like(scores))
    low, high = scores.aminmax()
    gap = ((high - low) / (_KNOTS - 1)).clamp(min=1e-9)
    place = (scores - low) / gap
    before = place.long().clamp(max=_KNOTS - 2)
    part = place - before
    share = positive.double() / positive.sum()
    p = p.masked_fill(positive, 0.0)

    def on_grid(weights: Tensor) -> Tensor:
        grid = scores.new_zeros(_KNOTS).scatter_add(0, before, weights * (1 - part))
        return grid.scatter_add(0, before + 1, weights * part)

    differences = torch.arange(1 - _KNOTS, _KNOTS, dtype=scores.dtype) * gap
    slope = differences.sigmoid()
    curve = slope * (1 - slope)
    sides = torch.stack([on_grid(share), on_grid(p)])
    # positives with slope, curve and cost; negatives with the slope the other way, and with curve
    of_side = torch.tensor([0, 0, 0, 1, 1])
    values = torch.stack([slope, curve, softplus(differences), slope.flip(0), curve])
    n = 2 * _KNOTS  # a circle is long enough: only its second half is read
    spectra = torch.fft.rfft(values, n) * torch.fft.rfft(sides, n)[of_side]
    at = torch.fft.irfft(spectra, n)[:, _KNOTS - 1 : 2 * _KNOTS - 1]
    sums = torch.lerp(at[:, before], at[:, before + 1], part)  # [5, n]
    first = p * sums[0] - share * sums[3]
    return LowFpr(p @ sums[2], first, p * sums[1] + share * sums[4])
