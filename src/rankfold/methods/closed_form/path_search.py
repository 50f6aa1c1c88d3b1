"""The search for the best point on the paths of ``rg2``.

One decomposition for a pair of exponents gives a path of solutions. The pairs of exponents lie on a
line, which is searched uphill from its middle. The points of all paths are compared on the
validation queries (``race``): first without the tail, then with tails of several weights, then
ranks and thresholds again beside the tail, then discounts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from rankfold.distributed.collectives import sum_over_ranks
from rankfold.errors import UserError
from rankfold.kernels.sparse import row_sums
from rankfold.kernels.threads import in_threads
from rankfold.kernels.topk import top_k
from rankfold.methods.closed_form import spectral, tail
from rankfold.methods.closed_form.racing import (
    RacingStage,
    blend,
    histories_of,
    mean,
    race,
    settle,
    stages,
)
from rankfold.objectives.quadratic import Objective
from rankfold.objectives.rg import rg2, row_sizes, target_line
from rankfold.solvers.neighbours import Neighbours
from rankfold.solvers.path import PathPoint, Tail, path_scores, queries_at_once
from rankfold.solvers.shards import Shards, divide
from rankfold.solvers.spectral import Decomposition, Target, decompose
from rankfold.types import Interactions, Model, Run, history_tensors

if TYPE_CHECKING:
    from rankfold.methods.closed_form.rg2 import Config

EXPONENTS = (  # plain, then weighted
    (-0.5, 0.0), (-0.375, 0.25), (-0.375, 0.35), (-0.25, 0.35), (-0.25, 0.45)
)  # fmt: skip
_RANKS = (0.25, 0.5, 1.0)  # shares of the width
_THRESHOLDS = (0.0, 0.5, 0.9)  # shares of the last kept singular value
_DISCOUNTS = (0.0, 0.1, 0.2, 0.3)  # exponents of the candidates' counts
DEFAULTS = {
    "query_exponent": spectral.QUERY_EXPONENT,
    "candidate_exponent": spectral.CANDIDATE_EXPONENT,
    "threshold": 0.5,
    "discount": 0.15,
    "tail_weight": 0.5,
}
_TINY = 1e-30  # of what divides
_MAX_DECOMPOSITIONS = 2  # kept in memory, the best by the first sample


class _Solved(NamedTuple):
    """The solution of one pair of exponents."""

    objective: Objective
    spectrum: Decomposition
    products: list[Tensor]  # T' V for the queries of each stage


class PathSearch:
    """The search for the best point: data, settings, exponents to try and results so far."""

    def __init__(
        self, rows: Interactions, config: Config, run: Run, given: Interactions | None = None
    ) -> None:
        if run.judge is not None and sum_over_ranks(len(run.judge.queries), run.comm) == 0:
            run = replace(run, judge=None)
        self.rows, self.run = rows, run
        self.given = given  # the histories of validation queries that are not in ``rows``
        self.config = config if run.judge is not None else _with_defaults(config)
        self.defaulted = self.config != config
        self.counts = run.comm.sum(rows.candidate_counts()).clamp(min=1).double()
        self.exponents = _exponents(self.config)
        self.shards = divide(rows, min(config.width, rows.n_candidates), run)
        if given is not None and self.shards is not None:
            raise UserError(
                "rg2 cannot fold in held-out queries while candidates are divided among processes",
                hint="raise candidate_memory, or prepare without --fold-in",
            )
        self.has_tail = config.tail != "none"
        self.stages: list[RacingStage] = []
        free = any(getattr(self.config, name) is None for name in ("rank", *DEFAULTS))
        if run.judge is not None and free:
            self.stages = list(stages(run.judge, config.path_queries, run.comm, self.shards))
        self.course: list[dict[str, Any]] = []  # the best score so far, by the step it is known at
        self.tried: dict[int, float] = {}  # the best score of each pair of exponents
        self.solved: dict[int, _Solved] = {}  # the solutions of the best pairs
        self.spreads: dict[int, Tensor] = {}  # of the factors' scores, for each place
        self.values: dict[PathPoint, list[Tensor]] = {}  # of the metric, a tensor for each stage

    def next_place(self) -> int | None:
        """The next pair of exponents: the middle one, then the neighbours of the best."""
        if not self.tried:
            return len(self.exponents) // 2
        best = max(self.tried, key=self.tried.__getitem__)
        for place in (best + 1, best - 1):
            if place in range(len(self.exponents)) and place not in self.tried:
                return place
        return None

    def passes(self, place: int, inside: Mapping[str, Tensor] | None) -> Iterator[Decomposition]:
        target = Target(self.objective(place), self.run.memory_budget, self.shards)
        rng = torch.Generator().manual_seed(self.run.rng.initial_seed())  # as with these given
        tolerance = self.config.tolerance
        return decompose(target, self.config.width, rng, tolerance=tolerance, resume=inside)

    def objective(self, place: int) -> Objective:
        e, beta = self.exponents[place]
        return rg2(self.rows, 0.0, exponent=e, candidate_exponent=beta, comm=self.run.comm)

    def take(self, place: int, spectrum: Decomposition) -> None:
        """Measure the path of a decomposition in the first stage. Keep the best."""
        objective = self.objective(place)
        self.solved[place] = _Solved(objective, spectrum, self.products(objective, spectrum))
        self.tried[place] = 0.0
        if self.stages and len(spectrum.values) > 0:
            best = next(iter(race(self.points(place), self.values, self.measure, n_stages=1)))
            self.tried[place] = mean(self.values[best][0])[0]
        order = sorted(self.solved, key=lambda place: -self.tried[place])
        self.solved = {place: self.solved[place] for place in order[:_MAX_DECOMPOSITIONS]}

    def products(self, objective: Objective, spectrum: Decomposition) -> list[Tensor]:
        """T' V for the queries of each stage, up to a factor per query."""
        if not self.stages:
            return []
        assert spectrum.vectors is not None
        if self.shards is None:
            return [linear(objective, spectrum.vectors, rows) for rows in self.histories]
        return [self.divided_products(objective, spectrum, one.queries) for one in self.stages]

    def divided_products(
        self, objective: Objective, spectrum: Decomposition, queries: Tensor
    ) -> Tensor:
        """``linear`` of some queries of this process, where candidates are divided."""
        assert spectrum.vectors is not None
        target = Target(objective, self.run.memory_budget, self.shards)
        products = target.multiply_queries(spectrum.vectors, queries)
        return products / target.pull[queries].clamp(min=_TINY)

    @cached_property
    def histories(self) -> list[Interactions]:
        """The pairs of the queries of each stage; with shards as ``Shards.seen``."""
        parts = histories_of(self.stages, self.rows, self.given)
        return parts if self.shards is None else list(map(self.shards.seen, parts))

    @cached_property
    def neighbours(self) -> Neighbours:
        most, reg = self.config.neighbours, self.config.tail_reg
        table = tail.tail_neighbours(self.rows, self.counts, most, reg, self.run)
        return table if self.shards is not None else Neighbours(*map(self.run.comm.gather, table))

    @cached_property
    def spread(self) -> tail.Spread:
        return tail.Spread(self.rows, self.counts, self.run.comm, self.shards)

    @cached_property
    def spread_of_tail(self) -> float:
        return self.spread.of_tail(self.neighbours)

    def tail_factor(self, point: PathPoint) -> float:
        """The factor of the tail's scores that gives it its relative weight."""
        objective, spectrum, _ = self.solved[point.place]
        assert spectrum.vectors is not None
        if point.place not in self.spreads:
            if self.shards is None:
                products = linear(objective, spectrum.vectors, self.spread.rows)
            else:
                products = self.divided_products(objective, spectrum, self.spread.queries)
            root = self.here(objective.candidate_weight.rsqrt())
            parts = self.spread.of_factors(products, spectrum.vectors, root)
            self.spreads[point.place] = parts.cpu()
        values = spectrum.values[: point.rank].cpu()
        shrunk = (1 - point.threshold * values[-1:] / values).clamp(min=0)
        parts = self.spreads[point.place]
        return point.tail_weight * tail.relative_weight(parts, shrunk, self.spread_of_tail)

    def points(self, place: int) -> list[PathPoint]:
        """The path of a decomposition, at a middle discount."""
        largest = max(1, len(self.solved[place].spectrum.values))
        rank, threshold = self.config.rank, self.config.threshold
        ranks = [max(1, round(share * largest)) for share in _RANKS]
        sizes = sorted(set(ranks)) if rank is None else [min(rank, largest)]
        thresholds = _THRESHOLDS if threshold is None else [threshold]
        discount = self.discounts()[len(self.discounts()) // 2]
        return [PathPoint(place, size, at, discount) for size in sizes for at in thresholds]

    def discounts(self) -> list[float]:
        return list(_DISCOUNTS) if self.config.discount is None else [self.config.discount]

    def tail_weights(self) -> list[float]:
        if not self.has_tail:
            return [0.0]
        given = self.config.tail_weight
        return [0.0, *tail.WEIGHTS] if given is None else [given]

    def measure(self, points: list[PathPoint], stage: int) -> dict[PathPoint, Tensor]:
        """The metric at some points, for the queries of a stage on all processes."""
        ids: dict[PathPoint, dict[int, Tensor]] = {point: {} for point in points}
        n = self.stages[stage].seen.n_queries
        factors = {point: self.tail_factor(point) for point in points if point.tail_weight > 0}
        most = queries_at_once(self.largest_share(), self.run.memory_budget)

        def score(work: tuple[int, int]) -> None:
            place, start = work
            on_path = [point for point in points if point.place == place]
            own = slice(start, min(start + most, n))
            for point, scores in self.scores(place, on_path, stage, own, factors):
                ids[point][start] = self.best_ids(scores)

        places = sorted({point.place for point in points})
        blocks = [(place, start) for place in places for start in range(0, n, most)]
        if self.shards is None and self.counts.device.type == "cpu":
            in_threads(score, blocks)
        else:  # collective calls must have the same order on all processes
            for block in blocks:
                score(block)
        starts = range(0, n, most)
        return {
            point: self.judged([parts[start] for start in starts], stage)
            for point, parts in ids.items()
        }

    def scores(
        self,
        place: int,
        points: list[PathPoint],
        stage: int,
        own: slice,
        factors: Mapping[PathPoint, float],
    ) -> Iterator[tuple[PathPoint, Tensor]]:
        """The scores at some points for some queries of a stage and this process's candidates.

        ``factors`` multiply the tail at points where it has a weight.
        """
        objective, spectrum, all_products = self.solved[place]
        assert spectrum.vectors is not None
        device = spectrum.vectors.device
        products, seen = all_products[stage], self.stages[stage].seen
        if self.shards is not None:
            products = self.shards.comm.gather(products)
        products, seen = products[own], seen.part(own.start, own.stop).to(device)
        root = objective.candidate_weight.rsqrt()
        scales = {
            discount: self.here(root * self.counts**-discount).float()
            for discount in {point.discount for point in points}
        }
        values, tails = spectrum.values.to(device), None
        if any(point.tail_weight > 0 for point in points):
            histories = self.histories[stage].part(own.start, own.stop)
            scores = tail.dense_scores(self.neighbours, histories, self.shards)
            powers = {d: self.here(self.counts**-d).float() for d in scales}
            tails = Tail(scores, factors, powers)
        size = len(products)
        return path_scores(products, values, spectrum.vectors, points, scales, seen, size, tails)

    def largest_share(self) -> int:
        """The largest number of candidates on a process: all use equal blocks of queries."""
        n = len(self.counts)
        return n if self.shards is None else -(-n // self.shards.comm.size)

    def here(self, numbers: Tensor) -> Tensor:
        """The entries of this process's candidates, from a number per candidate."""
        return numbers if self.shards is None else numbers[self.shards.rows]

    def best_ids(self, scores: Tensor) -> Tensor:
        """The best candidates over all processes."""
        assert self.run.judge is not None
        depth, n = self.run.judge.depth, len(self.counts)
        if self.shards is None:
            return top_k(scores, min(depth, n)).ids
        here = top_k(scores, min(depth, self.shards.size))
        return self.shards.merge(here, min(depth, n)).ids

    def judged(self, ids: list[Tensor], stage: int) -> Tensor:
        """The metric's values for the queries of all processes, in the order of one process."""
        assert self.run.judge is not None
        queries, _, own = self.stages[stage]
        none = len(queries) == 0
        values = torch.zeros(0) if none else self.run.judge.values(queries, torch.cat(ids)[own])
        return self.run.comm.gather(values)

    def best(self) -> Model:
        """The model of the best point: its tail, its rank and threshold beside it, its discount."""
        tails = self.tail_weights()
        if not self.values:
            point = self.points(next(iter(self.solved)))[-1]
            return self.model(point._replace(tail_weight=tails[-1]))
        best = self.blended([point for point in self.values if point.place in self.solved])
        best = self.blended([best._replace(tail_weight=weight) for weight in tails])
        if best.tail_weight > 0:
            others = self.points(best.place)
            others = [point._replace(tail_weight=best.tail_weight) for point in others]
            best = self.blended([best, *others])
        return self.model(self.blended([best._replace(discount=d) for d in self.discounts()]))

    def blended(self, points: list[PathPoint]) -> PathPoint:
        """The mean of the points that may be the best, or the best if it is clearly better."""
        return settle(points, self.values, self.measure, len(self.stages), blend)

    def model(self, point: PathPoint) -> Model:
        spectrum, solution = self.solved[point.place].spectrum, self.solution(point)
        e, beta = self.exponents[point.place]
        chosen = replace(
            self.config,
            query_exponent=e,
            candidate_exponent=beta,
            rank=point.rank,
            threshold=point.threshold,
            discount=point.discount,
            tail_weight=point.tail_weight if self.has_tail else self.config.tail_weight,
        )
        notes: dict[str, Any] = {"residual": spectrum.residual, "columns": spectrum.columns}
        if len(self.values) > 1:
            path = {one: self.note(one) for one in self.values}
            notes |= {"chosen_by": "validation", "path": list(path.values())}
            score = {"score": path[point]["score"]}
            notes |= {**score, "course": [*self.course[:-1], self.course[-1] | score]}
        elif self.defaulted:
            notes |= {"chosen_by": "the defaults"}
        queries = fold(solution, self.rows, e, self.shards)
        tensors = {"queries": queries, **spectral.to_tensors(solution)}
        if point.tail_weight > 0:
            factor = self.tail_factor(point)
            tensors |= tail.weighted(self.neighbours, factor, self.counts**point.discount)
            tensors |= history_tensors(self.rows)
        return Model("rg2", asdict(chosen), tensors, notes)

    def solution(self, point: PathPoint) -> spectral.Factors:
        objective, spectrum, _ = self.solved[point.place]
        assert spectrum.vectors is not None
        values, vectors = spectrum.values[: point.rank], spectrum.vectors[:, : point.rank]
        tau = point.threshold * float(values[-1:].sum())
        return spectral.factors(
            objective, values, vectors, tau, self.counts**point.discount, self.shards
        )

    def note(self, point: PathPoint) -> dict[str, Any]:
        """A point and its score on all queries it was measured on."""
        e, beta = self.exponents[point.place]
        settings = point._asdict()
        del settings["place"]
        score, error = mean(torch.cat(self.values[point]))
        exponents = {"query_exponent": e, "candidate_exponent": beta}
        return {**exponents, **settings, "score": score, "error": error}


def _with_defaults(config: Config) -> Config:
    """The settings without validation: defaults for those that are None."""
    missing: dict[str, Any] = {"rank": config.width, **DEFAULTS}
    return replace(config, **{k: v for k, v in missing.items() if getattr(config, k) is None})


def _exponents(config: Config) -> list[tuple[float, float]]:
    """The pairs to try: those that agree with the given exponents, or the given ones alone."""
    e, beta = config.query_exponent, config.candidate_exponent
    if e is not None and beta is not None:
        return [(e, beta)]
    free = [pair for pair in EXPONENTS if e in (None, pair[0]) and beta in (None, pair[1])]
    filled = _with_defaults(config)
    assert filled.query_exponent is not None
    assert filled.candidate_exponent is not None
    return free or [(filled.query_exponent, filled.candidate_exponent)]


def linear(objective: Objective, vectors: Tensor, rows: Interactions) -> Tensor:
    """T' V for queries with the histories ``rows``, without its factor per query; [B, K].

    With b the candidates' weights and z_y = sqrt(b_y) V_y::

        sum_{y in I_x} r_xy z_y - |I_x|/N sum_y z_y
    """
    scaled = objective.candidate_weight.sqrt().float()[:, None] * vectors
    shares = (row_sizes(rows) / rows.n_candidates).float()[:, None]
    return row_sums(rows, scaled, rows.grades).sub_(shares * scaled.sum(dim=0))


def fold(
    solution: spectral.Factors, rows: Interactions, exponent: float, shards: Shards | None = None
) -> Tensor:
    """The vectors of queries from their pairs; [M, D]."""
    slope, power = target_line(row_sizes(rows), rows.n_candidates, exponent)
    return spectral.fold(solution, rows, slope, -power, shards)
