"""How well scores separate positive from negative rows, above all at low false-positive rates.

A row passes a cut if its score is above it. A metric here takes a curve, which holds how many rows
pass each cut, and a false-positive rate; it gives one value per curve.
"""

from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor


class Curve(NamedTuple):
    """How many rows pass each cut. The cuts are the distinct scores, descending, and one below all.

    Equal scores pass together. J distinct scores give J + 1 points, from 0 rows to all of them.
    Leading dimensions are other curves with the same cuts.
    """

    rows: Tensor  # [..., J + 1] int64
    negatives: Tensor  # [..., J + 1] int64, of them, those that should not pass

    @property
    def n_negatives(self) -> Tensor:
        """[...]."""
        return self.negatives[..., -1]

    @property
    def n_positives(self) -> Tensor:
        """[...]."""
        return self.rows[..., -1] - self.n_negatives


def run_ends(ordered: Tensor) -> Tensor:
    """Where each run of equal scores ends, for sorted scores [n]; [J], the last is n."""
    last = torch.ones(len(ordered), dtype=torch.bool, device=ordered.device)
    last[:-1] = ordered[1:] != ordered[:-1]
    return last.nonzero().flatten() + 1


def passing(counts: Tensor, ends: Tensor) -> Tensor:
    """How many rows pass each cut, if sorted row i counts ``counts[..., i]`` times."""
    sums = counts.cumsum(dim=-1)
    sums = sums if len(ends) == counts.shape[-1] else sums.index_select(-1, ends - 1)
    return torch.nn.functional.pad(sums, (1, 0))


def tpr(curve: Curve, fpr: float) -> Tensor:
    """The largest true-positive rate of a cut that at most a share ``fpr`` of negatives pass.

    That cut is the (floor(fpr n-) + 1)-th largest score of the n- negatives. Returns [...], NaN
    without positives or without negatives.
    """
    share = exact(fpr)
    allowed = curve.n_negatives[..., None] * share.numerator // share.denominator
    last = torch.searchsorted(curve.negatives, allowed, right=True) - 1
    return _share_at(last, curve)


def tpr_closest(curve: Curve, fpr: float) -> Tensor:
    """The true-positive rate at the score with the false-positive rate nearest to ``fpr``.

    The rule of the authors of [cba]: cuts are the observed scores, highest first, and the first of
    equally near cuts counts. More negatives may pass than ``fpr`` allows, and fewer positives than
    by ``tpr``. Returns [...], NaN as above.
    """
    share = exact(fpr)
    wanted = curve.n_negatives[..., None] * share.numerator
    distance = (curve.negatives * share.denominator - wanted).abs()
    below_all = curve.rows == curve.rows[..., -1:]  # a cut that is not the score of a row
    distance.masked_fill_(below_all, torch.iinfo(distance.dtype).max)
    return _share_at(distance.argmin(dim=-1, keepdim=True), curve)


def pauc(curve: Curve, fpr: float) -> Tensor:
    """The area under the curve up to ``fpr``, scaled: chance has .5, perfect scores have 1.

    McClish's standard form::

        pauc = 1/2 (1 + (area - fpr^2 / 2) / (fpr - fpr^2 / 2))

    Returns [...], NaN as above.
    """
    chance = fpr * fpr / 2
    return (1 + (_area(curve, fpr) - chance) / (fpr - chance)) / 2


def pauc_raw(curve: Curve, fpr: float) -> Tensor:
    """The area under the curve up to ``fpr``, over ``fpr``: the mean true-positive rate there.

    Chance has fpr / 2. Returns [...], NaN as above.
    """
    return _area(curve, fpr) / fpr


def cut(negatives: Tensor, allowed: int) -> Tensor:
    """The lowest of the scores [n] that at most ``allowed`` of them exceed; []."""
    return negatives.topk(min(allowed + 1, len(negatives))).values[-1]


def exact(fpr: float) -> Fraction:
    """The rate as a decimal fraction: .1 is one tenth, and .1 of 30 is 3.

    The denominator is small enough that a product with 10^9 rows is an int64.
    """
    return Fraction(repr(float(fpr))).limit_denominator(10**9)


def _share_at(point: Tensor, curve: Curve) -> Tensor:
    """The true-positive rate at the cut ``point`` [..., 1]; [...]."""
    passed = curve.rows.gather(-1, point) - curve.negatives.gather(-1, point)
    share = passed.squeeze(-1).double() / curve.n_positives
    return share.masked_fill(curve.n_negatives == 0, torch.nan)


def _area(curve: Curve, fpr: float) -> Tensor:
    """The area from rate 0 to ``fpr``, points joined by straight lines; [...]."""
    limit = curve.n_negatives[..., None].double() * fpr
    beyond = torch.searchsorted(curve.negatives, limit.ceil().long())
    stop = int(beyond.max()) + 1  # points beyond the limit do not count
    x = curve.negatives[..., :stop].double()
    y = curve.rows[..., :stop] - x  # positives
    inside = (torch.minimum(x[..., 1:], limit) - x[..., :-1]).clamp(min=0)
    slope = y.diff(dim=-1) / x.diff(dim=-1).clamp(min=1)
    area = (inside * (y[..., :-1] + slope * inside / 2)).sum(dim=-1)
    return area / (curve.n_negatives * curve.n_positives)
