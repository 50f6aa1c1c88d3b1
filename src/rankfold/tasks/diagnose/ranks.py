"""How well the cache estimates the rank of a row among all negatives during training.

An estimate has two errors. The cache holds a sample of the rows, which is random. And its vectors
come from earlier encoders, which Proposition 2 of [cba] bounds.

The loss reads the ranks near the rate asked for, so their errors are reported apart: of the
negatives whose true rank is at most twice the rate.
"""

from copy import copy
from typing import Any

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.losses.low_fpr import above, exact_ranks
from rankfold.methods.ordinal.cba import score_weights
from rankfold.methods.ordinal.training import FitContext, GradedBatch
from rankfold.samplers.cba_cache import CrossBatchCache
from rankfold.tasks.diagnose.figures import Figure, figure_of, rounded
from rankfold.tasks.diagnose.result import CBA, Chart, Diagnosis, DiagnosisResult, Line
from rankfold.tasks.diagnose.training import (
    DiagnosedTraining,
    Observe,
    encode,
    score_all,
    sigma_of,
    train_observed,
)
from rankfold.tasks.significance import resampled
from rankfold.types import Progress

ESTIMATORS = {"direct": False, "likeness": True}  # ``by_likeness`` of ``CrossBatchCache.ranks``
_SAMPLES = 1000  # of a bootstrap
_MAX_DOTS = 300  # rows in the chart
ROUNDING = 1e-9  # tolerance for sums of weights in another order


class RanksConfig(Settings):
    rows: int = setting(1000, at_least=1, help="training rows to track, drawn by the seed")


def measure(
    config: RanksConfig, training: DiagnosedTraining, progress: Progress
) -> DiagnosisResult:
    """Train, and compare true and estimated ranks at the start and after each epoch."""
    tracked: list[TrackedRows] = []

    def begin(parts: FitContext, queues: CrossBatchCache, first: Tensor) -> Observe:
        sample = training.sample(config.rows, "followed rows")
        tracked.append(TrackedRows(parts, queues, first, sample))
        return tracked[0].push

    steps = train_observed(training, begin)
    (rows,) = tracked
    epochs = [{"epoch": 0, **rows.measure()}]
    for step in steps:
        progress(f"ranks: epoch {step.number}", step.share or 0.0)
        if step.whole:
            epochs.append({"epoch": step.number, **rows.measure()})
    return _result(epochs, rows)


class TrackedRows:
    """A sample of training rows, the cache, and the row number of each cache entry."""

    def __init__(
        self, parts: FitContext, queues: CrossBatchCache, first: Tensor, sample: Tensor
    ) -> None:
        """``first``: the rows that fill the cache; ``sample``: the rows to track."""
        self.parts, self.queues, self.sample = parts, queues, sample
        counts = torch.bincount(parts.rows.grades, minlength=parts.n_grades)
        self.shares = {"shares": counts / len(parts.rows), "equal": (counts > 0).float()}
        copies = parts.config.cache_entries == "copies"
        self.numbers = CrossBatchCache(
            parts.rows.grades, queues.shares, queues.size, 1, copies=copies
        )
        self.numbers.vectors = torch.full_like(self.numbers.vectors, -1, dtype=torch.int64)
        self.numbers.push(first[:, None], first)

    def push(self, seen: GradedBatch) -> None:
        """Record the row numbers of a batch as the cache records its vectors."""
        self.numbers.push(seen.rows[:, None], seen.rows)

    def measure(self) -> dict[str, Any]:
        """The errors of the estimates now: of all negatives, and of those near the rate."""
        every, positive = self._ranks()
        negative = ~positive[:, self.sample]
        thresholds = self._errors(self.sample, every, negative)
        errors = {name: _mean(values) for name, values in thresholds.items()}
        rows, high = self._near_rate(every, positive)
        near = self._errors(rows, every, high)
        return {
            "error": errors,
            "error_near_rate": {name: _mean(values) for name, values in near.items()},
            "thresholds": thresholds,
            **self._bound(negative),
        }

    def near_rate(self) -> Figure:
        """The error of the default estimate near the rate, with a bootstrap over rows."""
        every, positive = self._ranks()
        rows, high = self._near_rate(every, positive)
        if len(rows) == 0:
            return Figure(0.0)
        ranks = self.exact_cache.ranks(*self._encoded(rows), by_likeness=False)
        errors, included = abs(ranks - every[:, rows]), high.double()
        draws = [
            (times.double() @ (errors * included).cpu().T)
            / (times.double() @ included.cpu().T).clamp(min=1)
            for times in resampled(len(rows), _SAMPLES, seed=0)
        ]
        some = included.any(dim=1).cpu()
        value = ((errors * included).sum(dim=1) / included.sum(dim=1).clamp(min=1)).cpu()[some]
        return figure_of(value.mean(), torch.cat(draws)[:, some].mean(dim=1))

    def _errors(
        self, rows: Tensor, every: Tensor, included: Tensor
    ) -> dict[str, list[float | None]]:
        """The mean error of each estimate over the included ones of ``rows``, by threshold."""
        vectors, head = self._encoded(rows)
        caches = {
            name: _cache_of(self.queues, self.queues.vectors, shares)
            for name, shares in self.shares.items()
        }
        return {
            f"{name}, {weights}": _means(
                abs(cache.ranks(vectors, head, by_likeness=likeness) - every[:, rows]), included
            )
            for weights, cache in caches.items()
            for name, likeness in ESTIMATORS.items()
        }

    def estimates(self) -> dict[str, list[tuple[float, float]]]:
        """True and estimated ranks at the highest threshold, by estimator."""
        vectors, head = self._encoded(self.sample)
        every, positive = self._ranks()
        truth, negative = every[-1, self.sample], ~positive[-1, self.sample]
        rows = negative.nonzero().flatten()[:_MAX_DOTS]
        estimates = {
            name: self.exact_cache.ranks(vectors, head, by_likeness=likeness)[-1]
            for name, likeness in ESTIMATORS.items()
        }
        return {
            name: list(zip(truth[rows].tolist(), ranks[rows].tolist(), strict=True))
            for name, ranks in estimates.items()
        }

    def _ranks(self) -> tuple[Tensor, Tensor]:
        """The ranks of all rows by exact scores, and which are positive; [G - 1, n] each."""
        positive, scores = above(self.parts.rows.grades, self.parts.n_grades), score_all(self.parts)
        return torch.stack([exact_ranks(scores, ~side) for side in positive]), positive

    def _near_rate(self, every: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
        """Rows with a rank of at most twice the rate, and at which thresholds; [R], [G - 1, R]."""
        high = ~positive & (every <= 2 * self.parts.config.fpr)
        rows = _spread(high.any(dim=0).nonzero().flatten(), len(self.sample))
        return rows, high[:, rows]

    def _encoded(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors of rows, and the weights that score them."""
        return encode(self.parts, rows), score_weights(self.parts).double()

    def _bound(self, negative: Tensor) -> dict[str, Any]:
        """Proposition 2 of [cba], measured.

        With c_i the cached vector of row x_i, g the current encoder, A the negative entries of a
        threshold, v their weights, which sum to 1::

            dR(x) = | sum_A v_i 1[w.g(x) < w.g(x_i)] - sum_A v_i 1[w.g(x) < w.c_i] |
            drift = max_i ||g(x_i) - c_i||
            dR(x) <= sum_A v_i 1[2 drift > |w.(g(x) - g(x_i))| / ||w||]

        The right side is the weight of the entries that x passes when it moves by 2 drift along
        the head and against it, and is computed that way.

        The proposition is about old vectors, not about sampling. So both ranks are among the rows
        of the cache, once with fresh and once with cached vectors, and scored directly. It does
        not cover ranks by likeness.

        Departs from the paper: eps L, the Lipschitz bound on the movement of a vector, is unknown
        and replaced by the largest observed movement, which includes dropout and mirrored images.
        The weights v are those of the method; the paper counts entries, so its numbers are these
        times |A|.
        """
        vectors, head = self._encoded(self.sample)
        numbers = self.numbers.vectors.squeeze(1)
        there, fresh = numbers >= 0, self.queues.vectors.double()  # a grade may have no rows
        fresh[there] = encode(self.parts, numbers[there])
        distances = (fresh - self.queues.vectors).norm(dim=1)
        drift = distances[: self.queues.n_negative].max()
        cached = self.exact_cache
        renewed = _cache_of(self.queues, fresh, self.queues.shares)
        moved = 2 * drift * head / head.norm().clamp(min=torch.finfo(head.dtype).tiny)

        def ranks(cache: CrossBatchCache, rows: Tensor) -> Tensor:
            return cache.ranks(rows, head, by_likeness=False)

        changes = abs(ranks(renewed, vectors) - ranks(cached, vectors))
        bounds = ranks(renewed, vectors - moved) - ranks(renewed, vectors + moved)
        held = (changes <= bounds + ROUNDING).all(dim=0).double()
        return {
            "drift": rounded(drift),
            "change": _mean(_means(changes, negative)),
            "bound": _mean(_means(bounds, negative)),
            "bound_holds": rounded(held.mean()),
        }

    @property
    def exact_cache(self) -> CrossBatchCache:
        """The cache in double precision, with the weights of the method."""
        return _cache_of(self.queues, self.queues.vectors, self.queues.shares)


def _cache_of(queues: CrossBatchCache, vectors: Tensor, shares: Tensor) -> CrossBatchCache:
    """The same entries with other vectors and shares, in double precision."""
    other = copy(queues)
    other.vectors, other.shares, other.final = vectors.double(), shares.double(), None
    return other


def _spread(rows: Tensor, size: int) -> Tensor:
    """At most ``size`` of the rows, evenly spaced."""
    return rows[:: max(1, -(-len(rows) // size))]


def _means(errors: Tensor, included: Tensor) -> list[float | None]:
    """The mean of each threshold over the included rows; None without any."""
    sums, counts = (errors * included).sum(dim=1), included.sum(dim=1)
    pairs = zip(sums.tolist(), counts.tolist(), strict=True)
    return [rounded(total / count) if count else None for total, count in pairs]


def _mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return rounded(sum(known) / max(1, len(known)))


def _result(epochs: list[dict[str, Any]], rows: TrackedRows) -> DiagnosisResult:
    last, error = epochs[-1], rows.near_rate()
    fpr, sigma = rows.parts.config.fpr, sigma_of(rows.parts)
    summary = {f"mean absolute error, {name}": value for name, value in last["error"].items()}
    summary |= {
        f"the same at ranks up to twice the rate, {name}": value
        for name, value in last["error_near_rate"].items()
    }
    summary["change by cached, not fresh vectors"] = last["change"]
    summary["bound on that change (Proposition 2)"] = last["bound"]
    summary["share of rows within the bound, at worst"] = min(e["bound_holds"] for e in epochs)
    figures = {"mean absolute error at ranks up to twice the rate": error, **summary}
    small = error.value <= sigma / 2
    follows = (
        f"Near the rate of {fpr:g} a rank is off by {error.value:.2g}, against a sigma of "
        f"{sigma:.3g}: "
    ) + (
        "the weights of negatives hardly change."
        if small
        else "the weights are those of other negatives; try a larger cache, a smaller lr or "
        "dropout=0."
    )
    errors = [
        Line(name, [(e["epoch"], e["error"][name]) for e in epochs]) for name in last["error"]
    ]
    near = [
        Line(name, [(e["epoch"], e["error_near_rate"][name]) for e in epochs])
        for name in last["error"]
    ]
    change = Line("cached and fresh vectors", [(e["epoch"], e["change"]) for e in epochs])
    bound = Line("bound (Proposition 2)", [(e["epoch"], e["bound"]) for e in epochs])
    dots = [Line(name, points, "dots") for name, points in rows.estimates().items()]
    unit = "(share of negatives)"
    by_epoch = {
        "ranks": (
            "Error of the ranks estimated from the cache",
            "mean absolute error",
            [*errors, change],
        ),
        "ranks-near-rate": (
            "Error of the estimated ranks where the true rank is at most twice the rate",
            "mean absolute error",
            near,
        ),
        "ranks-bound": ("Change of ranks by old vectors, and its bound", "mean", [change, bound]),
    }
    charts = {
        name: Chart(title, "epochs trained", f"{y} {unit}", lines)
        for name, (title, y, lines) in by_epoch.items()
    }
    charts["ranks-estimates"] = Chart(
        "Estimated and true ranks at the end of training, highest threshold",
        f"true rank {unit}",
        f"estimated rank {unit}",
        [*dots, Line("equal", [(0.0, 0.0), (1.0, 1.0)])],
        ends=(0.0, 1.0),
    )
    return DiagnosisResult.of(figures, follows, {"epochs": epochs}, charts)


DIAGNOSIS = Diagnosis("How exact are ranks from the cache, near the rate asked for?", CBA, measure)
