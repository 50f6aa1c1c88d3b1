"""CBA: the best true-positive rate at a low false-positive rate, for ordered grades; [cba]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from rankfold.encoders.rows import Shape
from rankfold.kernels.low_fpr import shared_low_fpr_loss
from rankfold.losses.low_fpr import above, rank_weights
from rankfold.methods.ordinal.baselines import mean_score
from rankfold.methods.ordinal.training import (
    GradedConfig,
    Parts,
    Recipe,
    Rule,
    Seen,
    block_rows,
    method,
)
from rankfold.samplers.rank_cache import RankCache

ENOUGH = 150  # negatives within sigma, where there are so many
WIDEST = 0.35  # the paper's sigma, about


@dataclass(frozen=True, slots=True, kw_only=True)
class CbaConfig(GradedConfig):
    """What counts are the negatives around the tolerated rate."""

    dropout: float = 0.3  # more than others have: the highest negatives are soon known by heart
    fpr: float = 0.01  # beta: the false-positive rate that is tolerated
    sigma: float | None = None  # of the Gaussian around it, a share of the negatives; None: usual
    cache: int = 512  # vectors kept of each grade, or as many as it has rows
    ranks: Literal["direct", "likeness"] = "direct"  # how a row's rank is told from the cache
    cache_weights: Literal["shares", "equal"] = "shares"  # equal: as the authors
    classes: float = 1.0  # of the cross-entropy over grades, added through outputs of their own


def rule(parts: Parts) -> Rule:
    """The rank-weighted pairwise loss, a value per threshold; [cba], Alg. 1.

    The batch goes into the cache first. The ranks are told from the cache by the head as it is, the
    weights that follow from them are held fixed, and the pairs are those of the batch. A threshold
    with an empty side in the batch costs 0.
    """
    config: CbaConfig = parts.config
    queues, sigma = filled(parts), config.sigma or usual_sigma(parts)

    def losses(seen: Seen) -> Tensor:
        queues.push(seen.vectors, seen.rows)
        positive = above(seen.grades, parts.n_grades)
        with torch.no_grad():
            head, likeness, negative = score_weights(parts), config.ranks == "likeness", ~positive
            ranks = queues.ranks(seen.vectors, head, by_likeness=likeness, wanted=negative[-1])
            weights = rank_weights(ranks, negative, config.fpr, sigma)
        values = shared_low_fpr_loss(seen.outputs[:, 0], positive, weights)
        if config.classes == 0:
            return values
        return values + config.classes * F.cross_entropy(seen.outputs[:, 1:], seen.grades)

    return Rule(losses, queues)


def usual_sigma(parts: Parts) -> float:
    """As narrow as twice the rate, but wide enough that some negatives of each threshold count.

    A Gaussian over a handful of rows would learn these by heart.
    """
    config: CbaConfig = parts.config
    negatives = int((parts.rows.grades == parts.rows.grades.min()).sum())
    return max(2 * config.fpr, min(WIDEST, ENOUGH / negatives))


def score_weights(parts: Parts) -> Tensor:
    """w: what the head makes a row's score of; [D]. Its bias moves no rank."""
    weight = parts.module.head.weight
    assert isinstance(weight, Tensor)
    return weight.detach()[0]


@torch.no_grad()
def filled(parts: Parts) -> RankCache:
    """RankCache with the first rows, as the encoder sees them before any step."""
    rows, config = parts.rows, parts.config
    counts = torch.bincount(rows.grades, minlength=parts.n_grades)
    shares = counts / len(rows) if config.cache_weights == "shares" else (counts > 0).float()
    queues = RankCache(rows.grades, shares, config.cache, config.width)
    for taken in first_rows(parts):
        for some in taken.split(block_rows(Shape.of(rows.own, None))):
            queues.push(rows.vectors(parts.module, some), some)
    return queues


def first_rows(parts: Parts) -> list[Tensor]:
    """Rows to fill the cache with, by their numbers, of each grade that has any."""
    grades, size, found = parts.rows.grades, parts.config.cache, []
    for grade in grades.unique().tolist():
        mine = (grades == grade).nonzero().flatten()
        order = torch.randperm(len(mine), generator=parts.rng, device=mine.device)
        found.append(mine[order[:size]])
    return found


def outputs(n_grades: int) -> int:
    """The score, and an output per grade for the cross-entropy beside it."""
    return 1 + n_grades


def score(found: Tensor, _n_grades: int) -> Tensor:
    return mean_score(found[:, :1], 0)


METHOD = method(
    "cba",
    Recipe(outputs, rule, score),
    CbaConfig,
    "the best true-positive rate at a low false-positive rate, from a cross-batch cache",
    "cba",
)
