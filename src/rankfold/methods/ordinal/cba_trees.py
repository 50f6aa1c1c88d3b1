"""cba-trees: boosted trees for the best true-positive rate at a low false-positive rate; [cba].

The trees see all rows in each round, so the ranks of the negatives are exact and need no cache.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from rankfold.config import setting
from rankfold.kernels.low_fpr import LowFpr, low_fpr_derivatives
from rankfold.losses.low_fpr import above, default_sigma, exact_ranks, rank_weights
from rankfold.methods.ordinal import trees
from rankfold.methods.ordinal.boosting import Derivatives
from rankfold.methods.ordinal.trees import Loss, TreesConfig
from rankfold.metrics.graded import GradedSpec, graded_mean
from rankfold.metrics.roc import cut
from rankfold.types import Dataset

_LEAST = 10  # negatives above the highest rate that the score is chosen by


class CbaTreesConfig(TreesConfig):
    """The negatives around the tolerated rate count more."""

    members: int = setting(
        4, at_least=1, at_most=64, help="fits with other columns, whose outputs are averaged"
    )
    fpr: float = setting(0.01, above=0, below=1, help="beta: the tolerated false-positive rate")
    sigma: float | None = setting(
        None, above=0, help="width of the Gaussian, as a share of negatives; none: by their number"
    )
    low: float = setting(
        0.3, at_least=0, help="weight of the low-FPR risk beside the logistic loss, at most"
    )
    score: Literal["expected", "passed"] | None = setting(
        None,
        help="the expected grade, or the thresholds that a row passes at the rate; "
        "none: by validation",
    )


def low_fpr_logistic(data: Dataset, config: CbaTreesConfig) -> Loss:
    """The logistic loss of each threshold, and the low-FPR risk of its output; [cba], Eq. 7.

    With P_k the positives of threshold k, D-_k its negatives, o_ik the outputs of row i, R_jk the
    share of the negatives whose output is higher than that of j::

        loss = sum_k mean_i logistic_ik + low_m sum_k |P_k| / n risk_k
        risk_k = mean_{i in P_k} sum_{j in D-_k} p_jk log(1 + exp(o_jk - o_ik))
        p_jk prop. exp(-(R_jk - fpr)^2 / (2 sigma^2)),    sum_j p_jk = 1

    All rows are ranked in every round. The weights p are constants to the derivatives. With M
    members low_m = low m / (M - 1): the first has the likelihood alone.

    Departs from the paper: a threshold has an output of its own, not one score for all of them,
    and the logistic loss keeps the outputs log-odds. The score is the expected grade, or how many
    thresholds a row passes at the rate, softened::

        score_i = sum_k sigmoid(o_ik - c_k),    c_k = 0, or a share fpr of D-_k is above c_k
    """
    base, n_grades, fpr = trees.logistic(data, config), len(data.candidates), config.fpr
    train = data.graded("train").grades

    def risks(outputs: Tensor, grades: Tensor) -> list[LowFpr]:
        return [
            low_fpr_derivatives(column, positive, _weights(column, ~positive, config))
            for column, positive in zip(outputs.T, above(grades, n_grades), strict=True)
        ]

    counts = above(train, n_grades).sum(dim=1).double()

    def derivatives(member: int) -> Derivatives:
        likelihood, low = base.derivatives(member), weight_of(member, config)

        def of_outputs(outputs: Tensor) -> tuple[Tensor, Tensor]:
            first, second = likelihood(outputs)
            if low == 0:
                return first, second
            parts, scale = risks(outputs, train), low * counts
            first = first + scale * torch.stack([part.first for part in parts], dim=1)
            return first, second + scale * torch.stack([part.second for part in parts], dim=1)

        return of_outputs

    def value(outputs: Tensor, grades: Tensor) -> float:
        shares = above(grades, n_grades).double().mean(dim=1)
        parts = torch.stack([part.value for part in risks(outputs, grades)])
        return base.value(outputs, grades) + config.low * float(shares @ parts)

    def quality(outputs: Tensor, grades: Tensor) -> float:
        negatives = int((grades == grades.min()).sum())
        highest = GradedSpec("pauc", min(1.0, max(2 * fpr, _LEAST / negatives)))
        return graded_mean(trees.sum_of_sigmoids(outputs), grades, n_grades, highest)

    def chosen_cuts(outputs: Tensor, validation: Tensor | None) -> Tensor:
        found = cuts(outputs, train, fpr)
        if config.score is None and validation is not None:
            grades = data.graded("validation").grades
            is_better = quality(validation - found, grades) > quality(validation, grades)
            return found if is_better else torch.zeros_like(found)
        return found if config.score == "passed" else torch.zeros_like(found)

    return Loss(base.start, derivatives, value, base.fit, chosen_cuts)


def weight_of(member: int, config: CbaTreesConfig) -> float:
    """The weight of the risk in a member's loss: from 0 to ``low`` in equal steps."""
    if config.members == 1:
        return config.low
    return config.low * member / (config.members - 1)


def cuts(outputs: Tensor, grades: Tensor, fpr: float) -> Tensor:
    """c_k: the output that a share ``fpr`` of the negatives of threshold k exceeds; [K].

    With one threshold 0; without negatives, of all rows.
    """
    if outputs.shape[1] == 1:
        return outputs.new_zeros(1)
    found = []
    for column, positive in zip(outputs.T, above(grades, outputs.shape[1] + 1), strict=True):
        negatives = column[~positive] if not bool(positive.all()) else column
        found.append(cut(negatives, math.floor(fpr * len(negatives))))
    return torch.stack(found)


def _weights(outputs: Tensor, negative: Tensor, config: CbaTreesConfig) -> Tensor:
    """Weights p of the negatives, by their exact ranks; [n]."""
    sigma = config.sigma or default_sigma(int(negative.sum()), config.fpr)
    ranks = exact_ranks(outputs, negative)
    return rank_weights(ranks[None], negative[None], config.fpr, sigma)[0]


METHOD = trees.method(
    "cba-trees",
    low_fpr_logistic,
    trees.sum_of_sigmoids,
    "boosted trees (LightGBM) for the best true-positive rate at a low false-positive rate",
    "cba",
    CbaTreesConfig,
)
