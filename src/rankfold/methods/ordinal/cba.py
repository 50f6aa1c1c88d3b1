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
from rankfold.losses.low_fpr import above, default_sigma, exact_ranks, rank_weights
from rankfold.methods.ordinal import training
from rankfold.samplers.cba_cache import CrossBatchCache
from rankfold.types import Dataset, Graded, Model, Opened, Range, Run, Step

_HALF = 0.5


class CbaConfig(training.GradedConfig):
    """The negatives around the tolerated rate count."""

    width: int = 128  # half of it for each of two networks
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
    plain: float | None = setting(
        None,
        at_least=0,
        at_most=1,
        help="share of a second network, ce, in the log-odds; none: 0, .5 or 1 by validation",
    )


class TwoHeads(nn.Module):
    """The score, its log-odds by threshold, and an output per grade of a second network; [B, 2 G].

    Each network has a half of the vectors.
    """

    def __init__(self, width: int, outputs: int, rng: torch.Generator) -> None:
        super().__init__()
        self.start, n_grades = width // 2, outputs // 2
        self.plain = small_linear(self.start, n_grades, rng)
        self.score = small_linear(width - self.start, 1, rng)
        self.bias = nn.Parameter(torch.zeros(n_grades))  # the first is that of no threshold

    def forward(self, vectors: Tensor) -> Tensor:
        score = self.score(vectors[:, self.start :])
        return torch.cat(
            [score, score + self.bias[1:], self.plain(vectors[:, : self.start])], dim=1
        )


def rank_weighted_loss(context: training.FitContext) -> training.BatchLoss:
    """The rank-weighted pairwise loss, one value per threshold; [cba], Alg. 1.

    The batch enters the cache first. The cache estimates the ranks by the current head; the weights
    that follow from the ranks are constants to the gradient. The pairs are those of the batch. A
    threshold with an empty side in the batch costs 0.

    Departs from the paper: beside a likelihood of the score, a second network learns by
    cross-entropy. Both are averaged when rows are scored.
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
            plain = batch.outputs[:, context.n_grades :]
            values = values + F.cross_entropy(plain, batch.grades)
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
    return head.start if isinstance(head, TwoHeads) else 0


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
    """One network or two. Only log-odds can be averaged, so two need the likelihood of the score.

    A model of an earlier version does not name ``plain``, and has one.
    """
    if "plain" not in config or config["classes"] == 0 or config["likelihood"] != "odds":
        return ALONE
    share = _HALF if config["plain"] is None else config["plain"]

    def averaged(values: Tensor, n_grades: int) -> Tensor:
        """The expected threshold by the averaged log-odds; with one threshold these."""
        odds, plain = values.double()[:, 1:].split([n_grades - 1, n_grades], dim=1)
        mean = torch.lerp(odds, log_odds(plain), share)
        return mean.sigmoid().sum(dim=1) if n_grades > 2 else mean[:, 0]

    return training.Recipe(
        lambda n: 2 * n, rank_weighted_loss, averaged, head=TwoHeads, columns="towers"
    )


def log_odds(outputs: Tensor) -> Tensor:
    """Of a grade above each k, log P(grade > k) / P(grade <= k); [B, G] -> [B, G - 1]."""
    lower = outputs.logcumsumexp(dim=1)[:, :-1]
    return outputs.flip(1).logcumsumexp(dim=1).flip(1)[:, 1:] - lower


def fit(data: Dataset, config: Any, run: Run) -> Iterator[Step]:
    """As all networks; then validation chooses the share of the plain one."""
    recipe = recipe_of(vars(config))
    chooses = recipe is not ALONE and config.plain is None and data.validation is not None
    for step in training.fit("cba", recipe, data, config, run):
        if step.model is not None and chooses:
            step = step._replace(model=with_share(step.model, data.graded("validation"), run))
        yield step


def with_share(model: Model, rows: Graded, run: Run) -> Model:
    """The model with the better of its networks alone, or with half of each.

    The measure is the area under the curve up to twice the rate, the mean over thresholds: a
    positive gains ``1 - R / (2 fpr)`` or 0, with R the share of the negatives above it. Alone a
    network must be better by a standard error, for P positives and N negatives of a threshold
    ``deviation of the gains' difference * sqrt(1 / P + 1 / (2 fpr N))``.
    """
    grades = run.comm.gather(rows.grades)
    known = grades >= 0

    def gains(share: float) -> list[Tensor]:
        score = open_model(replace(model, config={**model.config, "plain": share})).rows
        assert score is not None
        scores = run.comm.gather(score(rows))[known]
        return [_gains(scores, side, model.config["fpr"]) for side in positive]

    n_grades = int(model.notes["grades"])
    positive = [
        side for side in above(grades[known], n_grades) if bool(side.any()) and not bool(side.all())
    ]
    best, most, half = _HALF, 0.0, gains(_HALF)
    for share in (0.0, 1.0) if positive else ():
        away = [one - other for one, other in zip(gains(share), half, strict=True)]
        mean = sum(float(each.mean()) for each in away) / len(away)
        error = sum(
            float(each.std(correction=0)) * (1 / len(each) + 1 / _counted(side, model)) ** 0.5
            for each, side in zip(away, positive, strict=True)
        ) / len(away)
        if mean > max(most, error):
            best, most = share, mean
    return replace(model, config={**model.config, "plain": best})


def _counted(positive: Tensor, model: Model) -> float:
    """How many negatives are above twice the rate, at least one."""
    return max(1.0, 2 * float(model.config["fpr"]) * int((~positive).sum()))


def _gains(scores: Tensor, positive: Tensor, fpr: float) -> Tensor:
    """Of each positive."""
    return (1 - exact_ranks(scores, ~positive)[positive] / (2 * fpr)).clamp(min=0)


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
    selects=True,
)
