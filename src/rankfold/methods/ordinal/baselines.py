"""Methods for ordered grades to compare with: classifiers, and bounds on the false-positive rate.

In the formulas G grades are 0..G-1, y is a row's grade, s its outputs, k a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankfold.encoders.towers import small_linear
from rankfold.losses.bpr import bpr_loss
from rankfold.losses.low_fpr import above
from rankfold.losses.softmax import softmax_loss
from rankfold.methods.ordinal.training import (
    SPACE,
    GradedConfig,
    Parts,
    Recipe,
    Rule,
    Seen,
    by_classes,
    by_thresholds,
    expected_grade,
    method,
    plain,
)
from rankfold.training.loop import Nothing
from rankfold.types import Range

SURE = 1e-6  # a probability that lacks less than this lacks this


@dataclass(frozen=True, slots=True, kw_only=True)
class FocalConfig(GradedConfig):
    """Cross-entropy that looks away from what is sure."""

    focus: float = 2.0  # gamma; 0 is cross-entropy


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitConfig(GradedConfig):
    """At most so many false alarms."""

    fpr: float = 0.01
    dual_lr: float = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialConfig(GradedConfig):
    """Hard negatives count more."""

    temperature: float = 1.0  # lambda: the lower, the fewer negatives count
    memory: float = 0.9  # gamma: how much of a row's new estimate is taken


# ---------------------------------------------------------------------------------- classifiers


def ce_losses(outputs: Tensor, grades: Tensor, _config: GradedConfig) -> Tensor:
    """The softmax loss, a row as a query and the grades as its pool."""
    chosen = F.one_hot(grades, outputs.shape[1])
    return softmax_loss(outputs, chosen, torch.ones_like(chosen, dtype=torch.bool))


def soft_losses(outputs: Tensor, grades: Tensor, _config: GradedConfig) -> Tensor:
    """Likewise, with targets prop. exp(-|g - y|); [diaz2019]."""
    places = torch.arange(outputs.shape[1], device=outputs.device)
    targets = (-(places - grades[:, None]).abs().to(outputs.dtype)).softmax(dim=1)
    return -(targets * outputs.log_softmax(dim=1)).sum(dim=1)


def focal_losses(outputs: Tensor, grades: Tensor, config: FocalConfig) -> Tensor:
    """(1 - p_y)^gamma times the cross-entropy; [lin2017]."""
    log_p = -F.cross_entropy(outputs, grades, reduction="none")
    missing = (-torch.expm1(log_p)).clamp(min=SURE)  # 0 to a power below 1 has no gradient
    return -(missing**config.focus) * log_p


def binary_losses(outputs: Tensor, grades: Tensor, _config: GradedConfig) -> Tensor:
    """A logistic loss per threshold: is the grade above it? [frank2001]."""
    positive = above(grades, outputs.shape[1] + 1).T.to(outputs.dtype)
    return F.binary_cross_entropy_with_logits(outputs, positive, reduction="none").mean(dim=1)


def squared_losses(outputs: Tensor, grades: Tensor, _config: GradedConfig) -> Tensor:
    """A squared error per threshold, of its sigmoid; [cheng2008]."""
    positive = above(grades, outputs.shape[1] + 1).T.to(outputs.dtype)
    return ((outputs.sigmoid() - positive) ** 2).mean(dim=1)


def auc_losses(outputs: Tensor, grades: Tensor, _config: GradedConfig) -> Tensor:
    """The pairwise logistic loss per threshold, over its own outputs; a value per threshold."""
    positive = above(grades, outputs.shape[1] + 1)
    return bpr_loss(outputs.T, positive, torch.ones_like(positive))


# ---------------------------------------------------------------------------------- decision DAG


def pairs_of(n_grades: int) -> list[tuple[int, int]]:
    """The classifiers of a decision DAG, each of which says whether j is likelier than i < j."""
    return list(combinations(range(n_grades), 2))


def dag_rule(parts: Parts) -> Rule:
    """A logistic loss for each pair of grades, over the rows that have one of them; [platt1999]."""
    pairs = torch.tensor(pairs_of(parts.n_grades), device=parts.rows.grades.device)

    def losses(seen: Seen) -> Tensor:
        is_either = seen.grades[:, None, None] == pairs  # [B, P, 2]
        costs = F.binary_cross_entropy_with_logits(
            seen.outputs, is_either[:, :, 1].to(seen.outputs.dtype), reduction="none"
        )
        return torch.where(is_either.any(dim=2), costs, 0.0).sum(dim=1) / (parts.n_grades - 1)

    return Rule(losses, Nothing())


def dag_score(outputs: Tensor, n_grades: int) -> Tensor:
    """The expected grade over the paths: at (i, j) one of the two is ruled out, i or j."""
    place = {pair: number for number, pair in enumerate(pairs_of(n_grades))}
    higher = outputs.double().sigmoid()
    reach = {(0, n_grades - 1): torch.ones_like(higher[:, 0])}
    for gap in range(n_grades - 1, 0, -1):
        for low in range(n_grades - gap):
            here, pair = reach[low, low + gap], (low, low + gap)
            for next_, share in (
                ((low + 1, low + gap), higher[:, place[pair]]),
                ((low, low + gap - 1), 1 - higher[:, place[pair]]),
            ):
                reach[next_] = reach.get(next_, torch.zeros_like(here)) + here * share
    return expected_grade(torch.stack([reach[g, g] for g in range(n_grades)], dim=1))


# ---------------------------------------------------------------------------------- bounds


class Shared(nn.Module):
    """One score, and a bias of its own for each threshold."""

    def __init__(self, width: int, thresholds: int, rng: torch.Generator) -> None:
        super().__init__()
        self.score = small_linear(width, 1, rng)
        self.biases = nn.Parameter(torch.zeros(thresholds))

    def forward(self, vectors: Tensor) -> Tensor:
        found: Tensor = self.score(vectors) + self.biases
        return found


class Duals:
    """A Lagrange multiplier per threshold."""

    HIGHEST = 1e5

    def __init__(self, thresholds: int, lr: float, device: torch.device) -> None:
        self.values, self.lr = torch.ones(thresholds, device=device), lr

    def climb(self, excess: Tensor) -> None:
        self.values = (self.values + self.lr * excess.detach()).clamp(0, self.HIGHEST)

    def state(self) -> dict[str, Tensor]:
        return {"values": self.values}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.values = state["values"].to(self.values).clone()


def limit_rule(parts: Parts) -> Rule:
    """Positives above a bias while negatives below it keep to the rate; [eban2017].

    With l(x) = log_2(1 + e^-x) >= 1[x <= 0], k a threshold, u_k its output::

        loss_k = mean+ l(u_k) + dual_k (mean- l(-u_k) - fpr),    dual_k += lr (mean- l(-u_k) - fpr)

    A threshold with an empty side in the batch costs 0.
    """
    config: LimitConfig = parts.config
    duals = Duals(parts.n_grades - 1, config.dual_lr, parts.rows.grades.device)

    def losses(seen: Seen) -> Tensor:
        positive = above(seen.grades, parts.n_grades)
        sides = positive.to(seen.outputs.dtype), (~positive).to(seen.outputs.dtype)
        signed = torch.where(positive, seen.outputs.T, -seen.outputs.T)
        costs = F.softplus(-signed) / math.log(2)
        of_positives, of_negatives = (
            (costs * side).sum(dim=1) / side.sum(dim=1).clamp(min=1) for side in sides
        )
        both = (positive.any(dim=1) & (~positive).any(dim=1)).to(costs.dtype)
        excess = (of_negatives - config.fpr) * both
        values = of_positives * both + duals.values * excess
        duals.climb(excess)
        return values

    return Rule(losses, duals)


class Estimates:
    """For each threshold and positive row, the log of a mean over negatives, moving."""

    def __init__(self, thresholds: int, n_rows: int, device: torch.device) -> None:
        self.logs = torch.full((thresholds, n_rows), -torch.inf, device=device)

    def blend(self, rows: Tensor, found: Tensor, usable: Tensor, share: float) -> Tensor:
        """Take in a ``share`` of what was found for ``rows``, where usable; the estimates [T, B].

        The first one of a row is taken whole.
        """
        old = self.logs[:, rows]
        mixed = torch.logaddexp(old + math.log1p(-share), found + math.log(share))
        new = torch.where(usable, torch.where(old.isinf(), found, mixed), old)
        self.logs[:, rows] = new
        return torch.where(usable, new, 0.0)

    def state(self) -> dict[str, Tensor]:
        return {"logs": self.logs}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.logs.copy_(state["logs"])


def partial_rule(parts: Parts) -> Rule:
    """One-way partial AUC, made smooth by a KL divergence; SOPA-s of [zhu2022].

    With l_ij = log(1 + exp(s_j - s_i)) for a positive i and a negative j::

        risk_i = lambda log mean_j exp(l_ij / lambda)
        gradient: sum_j p_ij grad l_ij,   p_ij = exp(l_ij / lambda) / u_i / n-

    u_i is the moving mean of exp(l_ij / lambda), kept for each row. A value per threshold.
    """
    config: PartialConfig = parts.config
    grades = parts.rows.grades
    estimates = Estimates(parts.n_grades - 1, len(grades), grades.device)

    def losses(seen: Seen) -> Tensor:
        scores = seen.outputs[:, 0]
        costs = F.softplus(scores - scores[:, None])  # [i, j]
        positive = above(seen.grades, parts.n_grades)
        n_negative = (~positive).sum(dim=1).clamp(min=1)
        logs = (costs.detach() / config.temperature).masked_fill(positive[:, None, :], -torch.inf)
        counts = n_negative.to(costs.dtype).log()[:, None]
        found = logs.logsumexp(dim=2) - counts  # [T, B]
        usable = positive & (~positive).any(dim=1, keepdim=True)
        logs_u = estimates.blend(seen.rows, found, usable, config.memory)
        p = (logs - logs_u[:, :, None] - counts[:, :, None]).exp()
        values = torch.where(usable, (p * costs).sum(dim=2), 0.0)
        return values.sum(dim=1) / usable.sum(dim=1).clamp(min=1)

    return Rule(losses, estimates)


def mean_score(outputs: Tensor, _n_grades: int) -> Tensor:
    """Of outputs that differ by constants alone: any of them, so their mean."""
    return outputs.double().mean(dim=1)


# ---------------------------------------------------------------------------------- registry


def per_grade(n_grades: int) -> int:
    return n_grades


def per_threshold(n_grades: int) -> int:
    return n_grades - 1


def per_pair(n_grades: int) -> int:
    return n_grades * (n_grades - 1) // 2


def one(_n_grades: int) -> int:
    return 1


GRADES = {
    "ce": method(
        "ce",
        Recipe(per_grade, plain(ce_losses), by_classes),
        GradedConfig,
        "cross-entropy over the grades; the expected grade is the score",
        "",
    ),
    "focal": method(
        "focal",
        Recipe(per_grade, plain(focal_losses), by_classes),
        FocalConfig,
        "cross-entropy that looks away from what is sure",
        "lin2017",
        {**SPACE, "focus": Range(0.5, 5.0)},
    ),
    "soft-label": method(
        "soft-label",
        Recipe(per_grade, plain(soft_losses), by_classes),
        GradedConfig,
        "cross-entropy with targets that fall off with the distance of grades",
        "diaz2019",
    ),
    "nnrank": method(
        "nnrank",
        Recipe(per_threshold, plain(squared_losses), by_thresholds),
        GradedConfig,
        "cumulative targets, squared error",
        "cheng2008",
    ),
    "fh": method(
        "fh",
        Recipe(per_threshold, plain(binary_losses), by_thresholds),
        GradedConfig,
        "a binary classifier per threshold",
        "frank2001",
    ),
    "fh-auc": method(
        "fh-auc",
        Recipe(per_threshold, plain(auc_losses), by_thresholds),
        GradedConfig,
        "a pairwise ranker per threshold: the area under the whole curve",
        "frank2001",
    ),
    "ddag": method(
        "ddag",
        Recipe(per_pair, dag_rule, dag_score),
        GradedConfig,
        "a classifier per pair of grades, in a decision DAG",
        "platt1999",
    ),
    "eban": method(
        "eban",
        Recipe(per_threshold, limit_rule, mean_score, Shared),
        LimitConfig,
        "true positives under a bound on false ones, by Lagrange multipliers",
        "eban2017",
        {**SPACE, "dual_lr": Range(1e-4, 0.1, log=True)},
    ),
    "pauc": method(
        "pauc",
        Recipe(one, partial_rule, mean_score),
        PartialConfig,
        "partial AUC over the hardest negatives (SOPA-s)",
        "zhu2022",
        {**SPACE, "temperature": Range(0.1, 10.0, log=True), "memory": Range(0.5, 0.99)},
    ),
}
