"""Ordinal classifiers: an output per grade or per threshold.

In the formulas G grades are 0..G-1, y is a row's grade, p_g the probability of grade g.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from rankfold.config import setting
from rankfold.losses.bpr import bpr_loss
from rankfold.losses.low_fpr import above
from rankfold.losses.softmax import softmax_loss
from rankfold.methods.ordinal.scores import by_classes, by_thresholds, per_grade, per_threshold
from rankfold.methods.ordinal.training import SPACE, GradedConfig, Recipe, method, stateless
from rankfold.types import Range

MIN_MISSING = 1e-6  # smallest 1 - p_y in the focal loss


@dataclass(frozen=True, slots=True, kw_only=True)
class FocalConfig(GradedConfig):
    """Cross-entropy that gives less weight to rows that are already well classified."""

    focus: float = setting(2.0, at_least=0, help="gamma of the focal loss; 0: cross-entropy")


def ce_losses(outputs: Tensor, grades: Tensor, _config: GradedConfig) -> Tensor:
    """The softmax loss with a row as query and the grades as its pool."""
    chosen = F.one_hot(grades, outputs.shape[1])
    return softmax_loss(outputs, chosen, torch.ones_like(chosen, dtype=torch.bool))


def soft_losses(outputs: Tensor, grades: Tensor, _config: GradedConfig) -> Tensor:
    """Cross-entropy with targets prop. exp(-|g - y|); [diaz2019]."""
    places = torch.arange(outputs.shape[1], device=outputs.device)
    targets = (-(places - grades[:, None]).abs().to(outputs.dtype)).softmax(dim=1)
    return -(targets * outputs.log_softmax(dim=1)).sum(dim=1)


def focal_losses(outputs: Tensor, grades: Tensor, config: FocalConfig) -> Tensor:
    """(1 - p_y)^gamma times the cross-entropy; [lin2017]."""
    log_p = -F.cross_entropy(outputs, grades, reduction="none")
    missing = (-torch.expm1(log_p)).clamp(min=MIN_MISSING)  # 0 to a power < 1 has no gradient
    return -(missing**config.focus) * log_p


def binary_losses(outputs: Tensor, grades: Tensor, _config: GradedConfig) -> Tensor:
    """A logistic loss per threshold: is the grade above it? [frank2001]."""
    positive = above(grades, outputs.shape[1] + 1).T.to(outputs.dtype)
    return F.binary_cross_entropy_with_logits(outputs, positive, reduction="none").mean(dim=1)


def squared_losses(outputs: Tensor, grades: Tensor, _config: GradedConfig) -> Tensor:
    """The squared error of a sigmoid per threshold; [cheng2008]."""
    positive = above(grades, outputs.shape[1] + 1).T.to(outputs.dtype)
    return ((outputs.sigmoid() - positive) ** 2).mean(dim=1)


def auc_losses(outputs: Tensor, grades: Tensor, _config: GradedConfig) -> Tensor:
    """The pairwise logistic loss of each threshold's output; one value per threshold."""
    positive = above(grades, outputs.shape[1] + 1)
    return bpr_loss(outputs.T, positive, torch.ones_like(positive))


CLASSIFIERS = {
    "ce": method(
        "ce",
        Recipe(per_grade, stateless(ce_losses), by_classes),
        GradedConfig,
        "cross-entropy over the grades; the expected grade is the score",
        "",
    ),
    "focal": method(
        "focal",
        Recipe(per_grade, stateless(focal_losses), by_classes),
        FocalConfig,
        "focal loss: cross-entropy that gives less weight to well-classified rows",
        "lin2017",
        {**SPACE, "focus": Range(0.5, 5.0)},
    ),
    "soft-label": method(
        "soft-label",
        Recipe(per_grade, stateless(soft_losses), by_classes),
        GradedConfig,
        "cross-entropy with targets that fall off with the distance of grades",
        "diaz2019",
    ),
    "nnrank": method(
        "nnrank",
        Recipe(per_threshold, stateless(squared_losses), by_thresholds),
        GradedConfig,
        "cumulative targets, squared error",
        "cheng2008",
    ),
    "fh": method(
        "fh",
        Recipe(per_threshold, stateless(binary_losses), by_thresholds),
        GradedConfig,
        "a binary classifier per threshold",
        "frank2001",
    ),
    "fh-auc": method(
        "fh-auc",
        Recipe(per_threshold, stateless(auc_losses), by_thresholds),
        GradedConfig,
        "a pairwise ranker per threshold: the area under the whole curve",
        "frank2001",
    ),
}
