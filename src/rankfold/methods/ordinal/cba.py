"""CBA: the best true-positive rate at a low false-positive rate, for ordered grades; [cba]."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankfold.config import setting
from rankfold.encoders.row_inputs import RowShape
from rankfold.encoders.towers import small_linear
from rankfold.kernels.low_fpr import shared_low_fpr_loss
from rankfold.losses.low_fpr import above, default_sigma, rank_weights
from rankfold.methods.ordinal import training
from rankfold.samplers.cba_cache import CrossBatchCache
from rankfold.types import Dataset, Model, Opened, Range, Run, Step


class CbaConfig(training.GradedConfig):
    """The negatives around the tolerated rate count."""

    width: int = 128  # half of it for each of two networks, unless ``plain`` is 0
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
    plain: float = setting(
        0.5,
        at_least=0,
        below=1,
        help="share of a second network, without the low-FPR risk, in the log-odds; 0: none",
    )


class TwoHeads(nn.Module):
    """The score, its log-odds by threshold, and those of a second network; [B, 1 + 2 (G - 1)].

    Each network has a half of the vectors.
    """

    def __init__(self, width: int, outputs: int, rng: torch.Generator) -> None:
        super().__init__()
        self.half, thresholds = width // 2, outputs // 2
        self.plain = small_linear(self.half, thresholds, rng)
        self.score = small_linear(width - self.half, 1, rng)
        self.bias = nn.Parameter(torch.zeros(1 + thresholds))  # the first is that of no threshold

    def forward(self, vectors: Tensor) -> Tensor:
        score = self.score(vectors[:, self.half :])
        return torch.cat([score, score + self.bias[1:], self.plain(vectors[:, : self.half])], dim=1)


def rank_weighted_loss(context: training.FitContext) -> training.BatchLoss:
    """The rank-weighted pairwise loss, one value per threshold; [cba], Alg. 1.

    The batch enters the cache first. The cache estimates the ranks by the current head; the weights
    that follow from the ranks are constants to the gradient. The pairs are those of the batch. A
    threshold with an empty side in the batch costs 0.

    Departs from the paper: with ``plain`` above 0 a second network learns the logistic loss of each
    threshold, and both are averaged when rows are scored.
    """
    config: CbaConfig = context.config
    lowest = int((context.rows.grades == context.rows.grades.min()).sum())
    start, biases = start_of(context.module.head), threshold_biases(context)
    cache, sigma = fill_cache(context), config.sigma or default_sigma(lowest, config.fpr)

    def losses(batch: training.GradedBatch) -> Tensor:
        vectors = batch.vectors[:, start:]
        cache.push(vectors, batch.rows)
        positive = above(batch.grades, context.n_grades)
        with torch.no_grad():
            head, likeness, negative = score_weights(context), config.ranks == "likeness", ~positive
            ranks = cache.ranks(vectors, head, by_likeness=likeness, wanted=negative[-1])
            weights = rank_weights(ranks, negative, config.fpr, sigma)
        values = shared_low_fpr_loss(batch.outputs[:, 0], positive, weights)
        if config.classes > 0:
            values = values + config.classes * likelihood(batch)
        if start > 0:
            values = values + of_thresholds(batch.outputs[:, context.n_grades :], positive)
        return values

    def likelihood(batch: training.GradedBatch) -> Tensor:
        if config.likelihood == "classes":
            return F.cross_entropy(batch.outputs[:, 1:], batch.grades)
        odds = batch.outputs[:, :1] + biases()
        return of_thresholds(odds, above(batch.grades, context.n_grades))

    def of_thresholds(odds: Tensor, positive: Tensor) -> Tensor:
        every = F.binary_cross_entropy_with_logits(
            odds, positive.T.to(odds.dtype), reduction="none"
        )
        return every.sum(1).mean()

    return training.BatchLoss(losses, cache)


def start_of(head: nn.Module) -> int:
    """Where the part of the vectors begins that the score reads."""
    return head.half if isinstance(head, TwoHeads) else 0


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
    head = context.module.head
    weight = head.score.weight if isinstance(head, TwoHeads) else head.weight
    assert isinstance(weight, Tensor)
    return weight.detach()[0]


@torch.no_grad()
def fill_cache(context: training.FitContext) -> CrossBatchCache:
    """A cache with some rows of each grade, encoded before the first step."""
    rows, config = context.rows, context.config
    counts = torch.bincount(rows.grades, minlength=context.n_grades)
    shares = counts / len(rows) if config.cache_weights == "shares" else (counts > 0).float()
    start, copies = start_of(context.module.head), config.cache_entries == "copies"
    width = config.width - start
    cache = CrossBatchCache(rows.grades, shares, config.cache, width, copies=copies)
    for numbers in first_rows(context):
        for block in numbers.split(training.block_rows(RowShape.from_rows(rows.own, None))):
            cache.push(rows.vectors(context.module, block)[:, start:], block)
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


ALONE = training.Recipe(outputs, rank_weighted_loss, score, columns="mixed")


def recipe_of(config: Mapping[str, Any]) -> training.Recipe:
    """One network or two. Odds can be averaged, and scores of another likelihood are none.

    A model of an earlier version does not name ``plain``.
    """
    share = config.get("plain", 0.0)
    if share == 0 or config["classes"] == 0 or config["likelihood"] != "odds":
        return ALONE

    def averaged(values: Tensor, n_grades: int) -> Tensor:
        """The expected threshold by the averaged log-odds; with one threshold these."""
        odds, plain = values.double()[:, 1:].split(n_grades - 1, dim=1)
        mean = torch.lerp(odds, plain, share)
        return mean.sigmoid().sum(dim=1) if n_grades > 2 else mean[:, 0]

    return training.Recipe(
        lambda n: 2 * n - 1, rank_weighted_loss, averaged, head=TwoHeads, columns="towers"
    )


def fit(data: Dataset, config: Any, run: Run) -> Iterator[Step]:
    return training.fit("cba", recipe_of(vars(config)), data, config, run)


def open_model(model: Model) -> Opened:
    return training.open_model(recipe_of(model.config), model)


METHOD = replace(
    training.method(
        "cba",
        ALONE,
        "the best true-positive rate at a low false-positive rate, from a cross-batch cache",
        "cba",
        CbaConfig,
        classes=Range(0.0, 3.0),
    ),
    fit=fit,
    open=open_model,
)
