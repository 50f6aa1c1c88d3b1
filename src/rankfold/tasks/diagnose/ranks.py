"""How well the cache tells where a row stands among all negatives, while training goes on.

Two things part an estimate from the truth. The cache holds a sample of the rows: that is chance.
And its vectors come from encoders of the past: that is what Proposition 2 of [cba] bounds.
"""

from __future__ import annotations

from copy import copy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.losses.low_fpr import above, exact_ranks
from rankfold.methods.ordinal.cba import score_weights
from rankfold.methods.ordinal.training import FitContext, GradedBatch
from rankfold.samplers.rank_cache import RankCache
from rankfold.tasks.diagnose.finding import Chart, Finding, Line, rounded
from rankfold.tasks.diagnose.observer import Fit, Look, encode, score_all, watch
from rankfold.types import Progress

ESTIMATORS = {"direct": False, "likeness": True}  # ``by_likeness`` of ``RankCache.ranks``
DOTS = 300  # rows that are drawn
ROUNDING = 1e-9  # of sums of weights that are equal on paper


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksConfig:
    """Whose ranks."""

    rows: int = 1000  # training rows that are followed, drawn by the seed

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise UserError(f"rows is {self.rows}", hint="it is at least 1")


def find(config: RanksConfig, fit: Fit, progress: Progress) -> Finding:
    """Train, and compare true and estimated ranks at the start and after each epoch."""
    followed: list[Followed] = []

    def begin(parts: FitContext, queues: RankCache, first: Tensor) -> Look:
        followed.append(Followed(parts, queues, first, fit.sample(config.rows, "followed rows")))
        return followed[0].take_in

    steps = watch(fit, begin)
    (rows,) = followed
    epochs = [{"epoch": 0, **rows.measure()}]
    for step in steps:
        progress(f"ranks: epoch {step.number}", step.share or 0.0)
        if step.whole:
            epochs.append({"epoch": step.number, **rows.measure()})
    return _finding(config, epochs, rows.estimates())


class Followed:
    """Some training rows, the cache, and which row each of its entries is of."""

    def __init__(self, parts: FitContext, queues: RankCache, first: Tensor, sample: Tensor) -> None:
        """``first`` are the rows that fill the cache, ``sample`` those to follow."""
        self.parts, self.queues, self.sample = parts, queues, sample
        counts = torch.bincount(parts.rows.grades, minlength=parts.n_grades)
        self.shares = {"shares": counts / len(parts.rows), "equal": (counts > 0).float()}
        self.numbers = RankCache(parts.rows.grades, queues.shares, queues.size, 1)
        self.numbers.vectors = torch.full_like(self.numbers.vectors, -1, dtype=torch.int64)
        self.numbers.push(first[:, None], first)

    def take_in(self, seen: GradedBatch) -> None:
        """What goes into the cache, row by row, goes into the numbers too."""
        self.numbers.push(seen.rows[:, None], seen.rows)

    def measure(self) -> dict[str, Any]:
        """How far off the estimates are now."""
        vectors, head = encode(self.parts, self.sample), score_weights(self.parts).double()
        truth, asked = self._truth()
        thresholds = {
            f"{name}, {weights}": _means(
                abs(self._cache(weights).ranks(vectors, head, by_likeness=likeness) - truth), asked
            )
            for weights in self.shares
            for name, likeness in ESTIMATORS.items()
        }
        errors = {name: _mean(values) for name, values in thresholds.items()}
        return {"error": errors, "thresholds": thresholds, **self._bound(vectors, head, asked)}

    def estimates(self) -> dict[str, list[tuple[float, float]]]:
        """True and estimated ranks of some rows at the highest threshold, by estimator."""
        vectors, head = encode(self.parts, self.sample), score_weights(self.parts).double()
        truth, asked = (values[-1] for values in self._truth())
        rows = asked.nonzero().flatten()[:DOTS]
        found = {
            name: self.queues_now.ranks(vectors, head, by_likeness=likeness)[-1]
            for name, likeness in ESTIMATORS.items()
        }
        return {
            name: list(zip(truth[rows].tolist(), ranks[rows].tolist(), strict=True))
            for name, ranks in found.items()
        }

    def _truth(self) -> tuple[Tensor, Tensor]:
        """Ranks by exact scores, and whether the loss asks for them: of negatives; [G - 1, n]."""
        positive, scores = above(self.parts.rows.grades, self.parts.n_grades), score_all(self.parts)
        truth = torch.stack([exact_ranks(scores, ~side)[self.sample] for side in positive])
        return truth, ~positive[:, self.sample]

    def _bound(self, vectors: Tensor, head: Tensor, asked: Tensor) -> dict[str, Any]:
        """Proposition 2 of [cba], as a measurement.

        With c_i the cached vector of row x_i, g the encoder as it is, A the entries that count
        at a threshold, v their weights, which sum to 1::

            dR(x) = | sum_A v_i 1[w.g(x) < w.g(x_i)] - sum_A v_i 1[w.g(x) < w.c_i] |
            drift = max_i ||g(x_i) - c_i||
            dR(x) <= sum_A v_i 1[2 drift > |w.(g(x) - g(x_i))| / ||w||]

        The sum on the right is the weight of the entries that x passes when it moves by 2 drift
        along the head and against it, which is how it is counted here.

        What is comparable: the proposition is about old vectors, not about a cache being a sample.
        So both ranks are among the cache's own rows, with fresh vectors and with cached ones, and
        scored directly. It is silent on ranks by likeness.

        Departs from the paper: eps L, the Lipschitz bound on how far a vector moves, is unknown,
        and the largest distance that one did move stands in its place. What training drops from
        vectors, and how it mirrors images, is part of that distance. The weights v are those that
        the method uses; the paper counts, so its numbers are these times |A|.
        """
        numbers = self.numbers.vectors.squeeze(1)
        there, fresh = numbers >= 0, self.queues.vectors.double()  # a grade may have no rows
        fresh[there] = encode(self.parts, numbers[there])
        distances = (fresh - self.queues.vectors).norm(dim=1)
        drift = distances[: self.queues.n_negative].max()
        cached = self.queues_now
        renewed = _cache_of(self.queues, fresh, self.queues.shares)
        moved = 2 * drift * head / head.norm().clamp(min=torch.finfo(head.dtype).tiny)

        def ranks(cache: RankCache, rows: Tensor) -> Tensor:
            return cache.ranks(rows, head, by_likeness=False)

        changes = abs(ranks(renewed, vectors) - ranks(cached, vectors))
        bounds = ranks(renewed, vectors - moved) - ranks(renewed, vectors + moved)
        held = (changes <= bounds + ROUNDING).all(dim=0).double()
        return {
            "drift": rounded(float(drift)),
            "change": _mean(_means(changes, asked)),
            "bound": _mean(_means(bounds, asked)),
            "bound_holds": rounded(float(held.mean())),
        }

    @property
    def queues_now(self) -> RankCache:
        """With the weights that the method uses."""
        return _cache_of(self.queues, self.queues.vectors, self.queues.shares)

    def _cache(self, weights: str) -> RankCache:
        return _cache_of(self.queues, self.queues.vectors, self.shares[weights])


def _cache_of(queues: RankCache, vectors: Tensor, shares: Tensor) -> RankCache:
    """The same entries with other vectors and shares, in double precision."""
    found = copy(queues)
    found.vectors, found.shares, found.final = vectors.double(), shares.double(), None
    return found


def _means(errors: Tensor, asked: Tensor) -> list[float | None]:
    """Of each threshold, over the rows asked for; None without any."""
    sums, counts = (errors * asked).sum(dim=1), asked.sum(dim=1)
    pairs = zip(sums.tolist(), counts.tolist(), strict=True)
    return [rounded(total / count) if count else None for total, count in pairs]


def _mean(values: list[float | None]) -> float:
    there = [value for value in values if value is not None]
    return rounded(sum(there) / max(1, len(there)))


def _finding(
    config: RanksConfig,
    epochs: list[dict[str, Any]],
    estimates: dict[str, list[tuple[float, float]]],
) -> Finding:
    last = epochs[-1]
    summary = {f"mean absolute error, {name}": value for name, value in last["error"].items()}
    summary["change by cached, not fresh vectors"] = last["change"]
    summary["bound on that change (Proposition 2)"] = last["bound"]
    summary["share of rows within the bound, at worst"] = min(e["bound_holds"] for e in epochs)
    errors = [
        Line(name, [(e["epoch"], e["error"][name]) for e in epochs]) for name in last["error"]
    ]
    change = Line("cached against fresh", [(e["epoch"], e["change"]) for e in epochs])
    bound = Line("bound on that", [(e["epoch"], e["bound"]) for e in epochs])
    dots = [Line(name, points, "dots") for name, points in estimates.items()]
    trained, unit = "epochs trained", "(share of negatives)"
    charts = {
        "ranks": Chart(
            "Ranks told from the cache, against true ones",
            trained,
            f"mean absolute error {unit}",
            [*errors, change],
        ),
        "ranks-bound": Chart(
            "How far old vectors move ranks, and Proposition 2's bound",
            trained,
            f"mean {unit}",
            [change, bound],
        ),
        "ranks-estimates": Chart(
            "Ranks at the end of training, at the highest threshold",
            f"true rank {unit}",
            f"rank told from the cache {unit}",
            [*dots, Line("equal", [(0.0, 0.0), (1.0, 1.0)])],
            ends=(0.0, 1.0),
        ),
    }
    return Finding(summary, {"settings": asdict(config), "epochs": epochs}, charts)
