"""Propensity-scored precision and nDCG: a positive that is rarely recorded counts more.

A candidate that few queries chose in train is likely to be missing from the truth. So each positive
counts 1/p, with p its propensity: the probability that a true positive is recorded. All metrics
return [B], and 0 for a query without a positive.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from rankfold.errors import UserError
from rankfold.metrics.judged import Judged
from rankfold.metrics.ndcg import check_ideal, share_of_ideal


class Propensity(NamedTuple):
    """A and B of the propensities; Jain et al. 2016 use .5, .4 for Wikipedia, .6, 2.6 for Amazon.

    Releases of one data set differ in them, so they are printed with every value.
    """

    A: float = 0.55  # 0: all propensities are equal
    B: float = 1.5


def inverse_propensity(counts: Tensor, n_queries: int, propensity: Propensity) -> Tensor:
    """1/p of each candidate from its count in train, as in Jain et al. 2016.

    ::

        C = max(0, ln n_queries - 1) (B + 1)^A
        inverse_propensity_y = 1 + C (counts_y + B)^-A

    Departs from the paper: with fewer than e queries its C is negative and its probabilities exceed
    1; here they are 1. ``n_queries`` have a pair in train: the number of training documents.

    Returns [N] float32, at least 1.
    """
    a, b = propensity
    c: float = max(0.0, math.log(max(n_queries, 1)) - 1) * (b + 1) ** a
    return (1 + c * (counts.double() + b) ** -a).float()


def psp(judged: Judged, k: int) -> Tensor:
    """Precision in which a positive counts 1/p.

    With weights_br = 1/p of the result of rank r (counted from 1) if it is positive, else 0::

        psp_b = 1/k sum_{r <= k} weights_br
    """
    return _given(judged.weights)[:, :k].sum(dim=1) / k


def psp_best(judged: Judged, k: int) -> Tensor:
    """The psp of the best list: the query's positives, largest 1/p first.

    ::

        psp_best_b = 1/k sum_{r <= k} ideal_weights_br
    """
    check_ideal(judged, k)
    return _given(judged.ideal_weights)[:, :k].sum(dim=1) / k


def psn(judged: Judged, k: int) -> Tensor:
    """NDCG in which a positive counts 1/p.

    ::

        psn_b = sum_{r <= k} weights_br / log2(r + 1)
              / sum_{r <= min(k, positives_b)} 1 / log2(r + 1)
    """
    return _over_discounts(_given(judged.weights), judged, k)


def psn_best(judged: Judged, k: int) -> Tensor:
    """The psn of the best list: the query's positives, largest 1/p first.

    ::

        psn_best_b = sum_{r <= k} ideal_weights_br / log2(r + 1)
                   / sum_{r <= min(k, positives_b)} 1 / log2(r + 1)
    """
    return _over_discounts(_given(judged.ideal_weights), judged, k)


def check_propensity(propensity: Sequence[float]) -> Propensity:
    """A and B; a UserError if they are out of range."""
    a, b = propensity
    if not (0 <= a < math.inf and 0 < b < math.inf):
        raise UserError(
            f"propensity needs A of at least 0 and B above 0, got A = {a:g}, B = {b:g}",
            hint="the default is .55,1.5",
        )
    return Propensity(a, b)


def parse_propensity(text: str) -> Propensity:
    """``"0.55,1.5" -> Propensity(0.55, 1.5)``; anything else is a UserError."""
    try:
        a, b = map(float, text.split(","))
    except ValueError:
        raise UserError(
            f"propensity must be two numbers, got {text!r}", hint="write A,B such as .55,1.5"
        ) from None
    return check_propensity((a, b))


def _over_discounts(gains: Tensor, judged: Judged, k: int) -> Tensor:
    return share_of_ideal(gains, (judged.ideal > 0).float(), judged, k)


def _given(weights: Tensor | None) -> Tensor:
    if weights is None:
        raise ValueError("propensity scores need judge(..., inverse_propensity=...)")
    return weights
