"""CBA: the best true-positive rate at a low false-positive rate, for ordered grades; [cba]."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from rankfold.config import setting
from rankfold.encoders.row_inputs import RowShape
from rankfold.kernels.low_fpr import shared_low_fpr_loss
from rankfold.losses.low_fpr import above, default_sigma, rank_weights
from rankfold.methods.ordinal import training
from rankfold.samplers.cba_cache import CrossBatchCache
from rankfold.types import Range


class CbaConfig(training.GradedConfig):
    """The negatives around the tolerated rate count."""

    dropout: float = 0.3  # more than the other methods: the highest negatives are soon memorised
    fpr: float = setting(0.01, above=0, below=1, help="beta: the tolerated false-positive rate")
    sigma: float | None = setting(
        None, above=0, help="width of the Gaussian, as a share of negatives; none: by their number"
    )
    cache: int = setting(512, at_least=1, help="vectors cached per grade, at most")
    ranks: Literal["direct", "likeness"] = setting(
        "direct", help="rank a row by its own score, or by the cached rows most like it"
    )
    cache_weights: Literal["shares", "equal"] = setting(
        "shares", help="weigh cached grades by their share of the rows, or equally as the paper"
    )
    cache_entries: Literal["rows", "copies"] = setting(
        "rows", help="for grades with few rows: an entry per row, or copies to `cache` as the paper"
    )
    classes: float = setting(1.0, at_least=0, help="weight of the likelihood of the grades")
    likelihood: Literal["odds", "classes"] = setting(
        "odds",
        help="odds: of the score and a bias per threshold; classes: of an extra output per grade",
    )


def rank_weighted_loss(context: training.FitContext) -> training.BatchLoss:
    """The rank-weighted pairwise loss, one value per threshold; [cba], Alg. 1.

    The batch enters the cache first. The cache estimates the ranks by the current head; the weights
    that follow from the ranks are constants to the gradient. The pairs are those of the batch. A
    threshold with an empty side in the batch costs 0.
    """
    config: CbaConfig = context.config
    lowest = int((context.rows.grades == context.rows.grades.min()).sum())
    biases = threshold_biases(context)
    cache, sigma = fill_cache(context), config.sigma or default_sigma(lowest, config.fpr)

    def losses(batch: training.GradedBatch) -> Tensor:
        cache.push(batch.vectors, batch.rows)
        positive = above(batch.grades, context.n_grades)
        with torch.no_grad():
            head, likeness, negative = score_weights(context), config.ranks == "likeness", ~positive
            ranks = cache.ranks(batch.vectors, head, by_likeness=likeness, wanted=negative[-1])
            weights = rank_weights(ranks, negative, config.fpr, sigma)
        values = shared_low_fpr_loss(batch.outputs[:, 0], positive, weights)
        if config.classes == 0:
            return values
        return values + config.classes * likelihood(batch)

    def likelihood(batch: training.GradedBatch) -> Tensor:
        if config.likelihood == "classes":
            return F.cross_entropy(batch.outputs[:, 1:], batch.grades)
        odds = batch.outputs[:, :1] + biases()
        positive = above(batch.grades, context.n_grades).T.to(odds.dtype)
        return F.binary_cross_entropy_with_logits(odds, positive, reduction="none").sum(1).mean()

    return training.BatchLoss(losses, cache)


def threshold_biases(context: training.FitContext) -> Callable[[], Tensor]:
    """A bias for each threshold, at first the log-odds of its positives; [G - 1].

    They are the biases of outputs that nothing else reads if the likelihood is that of the score.
    """
    every = context.module.head.bias
    assert isinstance(every, Tensor)
    mine = slice(1, context.n_grades)
    if context.config.likelihood == "odds":
        n = len(context.rows)
        shares = above(context.rows.grades, context.n_grades).float().mean(dim=1)
        with torch.no_grad():
            every[mine] = shares.clamp(0.5 / n, 1 - 0.5 / n).logit()
    return lambda: every[mine]


def score_weights(context: training.FitContext) -> Tensor:
    """w, the head's weights of the score; [D]. The bias changes no rank."""
    weight = context.module.head.weight
    assert isinstance(weight, Tensor)
    return weight.detach()[0]


@torch.no_grad()
def fill_cache(context: training.FitContext) -> CrossBatchCache:
    """A cache with some rows of each grade, encoded before the first step."""
    rows, config = context.rows, context.config
    counts = torch.bincount(rows.grades, minlength=context.n_grades)
    shares = counts / len(rows) if config.cache_weights == "shares" else (counts > 0).float()
    copies = config.cache_entries == "copies"
    cache = CrossBatchCache(rows.grades, shares, config.cache, config.width, copies=copies)
    for numbers in first_rows(context):
        for block in numbers.split(training.block_rows(RowShape.from_rows(rows.own, None))):
            cache.push(rows.vectors(context.module, block), block)
    return cache


def first_rows(context: training.FitContext) -> list[Tensor]:
    """The numbers of the rows that fill the cache, one tensor per grade."""
    grades, size, numbers = context.rows.grades, context.config.cache, []
    for grade in grades.unique().tolist():
        mine = (grades == grade).nonzero().flatten()
        order = torch.randperm(len(mine), generator=context.rng, device=mine.device)
        if context.config.cache_entries == "copies":
            order = order.repeat(-(-size // len(order)))
        numbers.append(mine[order[:size]])
    return numbers


def outputs(n_grades: int) -> int:
    """The score, and an output per grade for the cross-entropy."""
    return 1 + n_grades


def score(values: Tensor, _n_grades: int) -> Tensor:
    return values[:, 0].double()


RECIPE = training.Recipe(outputs, rank_weighted_loss, score, columns="mixed")

METHOD = training.method(
    "cba",
    RECIPE,
    "the best true-positive rate at a low false-positive rate, from a cross-batch cache",
    "cba",
    CbaConfig,
    classes=Range(0.0, 3.0),
)
