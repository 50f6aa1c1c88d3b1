"""Ordinal classifiers: an output per grade or per threshold.

In the formulas G grades are 0..G-1, y is a row's grade, p_g the probability of grade g.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rankfold.config import setting
from rankfold.losses.bpr import bpr_loss
from rankfold.losses.low_fpr import above
from rankfold.losses.softmax import softmax_loss
from rankfold.methods.ordinal import training
from rankfold.types import Range

_MIN_MISSING = 1e-6  # smallest 1 - p_y in the focal loss
Losses = Callable[[Tensor, Tensor, Any], Tensor]  # of outputs [B, O], grades [B], settings


class FocalConfig(training.GradedConfig):
    """Cross-entropy that gives less weight to rows that are already well classified."""

    focus: float = setting(2.0, at_least=0, help="gamma of the focal loss; 0: cross-entropy")


def ce_losses(outputs: Tensor, grades: Tensor, _config: training.GradedConfig) -> Tensor:
    """The softmax loss with a row as query and the grades as its pool."""
    chosen = F.one_hot(grades, outputs.shape[1])
    return softmax_loss(outputs, chosen, torch.ones_like(chosen, dtype=torch.bool))


def soft_losses(outputs: Tensor, grades: Tensor, _config: training.GradedConfig) -> Tensor:
    """Cross-entropy with targets prop. exp(-|g - y|); [diaz2019]."""
    places = torch.arange(outputs.shape[1], device=outputs.device)
    targets = (-(places - grades[:, None]).abs().to(outputs.dtype)).softmax(dim=1)
    return -(targets * outputs.log_softmax(dim=1)).sum(dim=1)


def focal_losses(outputs: Tensor, grades: Tensor, config: FocalConfig) -> Tensor:
    """(1 - p_y)^gamma times the cross-entropy; [lin2017]."""
    log_p = -F.cross_entropy(outputs, grades, reduction="none")
    missing = (-torch.expm1(log_p)).clamp(min=_MIN_MISSING)  # 0 to a power < 1 has no gradient
    return -(missing**config.focus) * log_p


def _binary_losses(outputs: Tensor, grades: Tensor, _config: training.GradedConfig) -> Tensor:
    """A logistic loss per threshold: is the grade above it? [frank2001]."""
    positive = above(grades, outputs.shape[1] + 1).T.to(outputs.dtype)
    return F.binary_cross_entropy_with_logits(outputs, positive, reduction="none").mean(dim=1)


def _squared_losses(outputs: Tensor, grades: Tensor, _config: training.GradedConfig) -> Tensor:
    """The squared error of a sigmoid per threshold; [cheng2008]."""
    positive = above(grades, outputs.shape[1] + 1).T.to(outputs.dtype)
    return ((outputs.sigmoid() - positive) ** 2).mean(dim=1)


def _auc_losses(outputs: Tensor, grades: Tensor, _config: training.GradedConfig) -> Tensor:
    """The pairwise logistic loss of each threshold's output; one value per threshold."""
    positive = above(grades, outputs.shape[1] + 1)
    return bpr_loss(outputs.T, positive, torch.ones_like(positive))


def _by_classes(outputs: Tensor, _n_grades: int) -> Tensor:
    """The expected grade of a softmax over grades."""
    return training.expected_grade(outputs.double().softmax(dim=1))


def by_thresholds(outputs: Tensor, _n_grades: int) -> Tensor:
    """The sum of sigmoids, one per threshold."""
    return outputs.double().sigmoid().sum(dim=1)


def _recipe(losses: Losses, removed: int, score: training.Score) -> training.Recipe:
    """A recipe without state; its head has an output per grade but for the ``removed`` last."""

    def make(context: training.FitContext) -> training.BatchLoss:
        config = context.config
        return training.BatchLoss(lambda batch: losses(batch.outputs, batch.grades, config))

    return training.Recipe(lambda n_grades: n_grades - removed, make, score)


_by_grade = partial(_recipe, removed=0, score=_by_classes)
_by_threshold = partial(_recipe, removed=1, score=by_thresholds)

CE = training.method(
    "ce", _by_grade(ce_losses), "cross-entropy over the grades; the expected grade is the score"
)
FOCAL = training.method(
    "focal",
    _by_grade(focal_losses),
    "focal loss: cross-entropy that gives less weight to well-classified rows",
    "lin2017",
    FocalConfig,
    focus=Range(0.5, 5.0),
)
SOFT_LABEL = training.method(
    "soft-label",
    _by_grade(soft_losses),
    "cross-entropy with targets that fall off with the distance of grades",
    "diaz2019",
)
NNRANK = training.method(
    "nnrank", _by_threshold(_squared_losses), "cumulative targets, squared error", "cheng2008"
)
FH = training.method(
    "fh", _by_threshold(_binary_losses), "a binary classifier per threshold", "frank2001"
)
FH_AUC = training.method(
    "fh-auc",
    _by_threshold(_auc_losses),
    "a pairwise ranker per threshold: the area under the whole curve",
    "frank2001",
)
