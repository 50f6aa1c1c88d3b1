"""The search for the best point on the paths of ``rg2``.

One decomposition for a pair of exponents gives a path of solutions. The pairs of exponents lie on a
line, which is searched uphill from its middle. On a path, weights of the tail with discounts and
ranks with thresholds move by turns: on a sample of the validation queries, then on a larger one,
and from the best points of the best two pairs on more of them (``race``). The samples may mislead
about pairs. So if a neighbour of the winner's pair was not tried, the search goes on there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rankfold.distributed.collectives import sum_over_ranks
from rankfold.errors import UserError
from rankfold.methods.closed_form import spectral, tail
from rankfold.methods.closed_form.path_grid import PathGrid, distance
from rankfold.methods.closed_form.path_scores import PathScores, Solved
from rankfold.methods.closed_form.racing import (
    MAX_ERRORS,
    RacingStage,
    blend,
    choose,
    mean,
    race,
    stages,
)
from rankfold.objectives.quadratic import Objective
from rankfold.objectives.rg import rg2, row_sizes, target_line
from rankfold.solvers.path import PathPoint, popularity
from rankfold.solvers.progress import finished
from rankfold.solvers.shards import Shards, divide
from rankfold.solvers.spectral import Decomposition, Target, decompose
from rankfold.types import Interactions, Model, Run, history_tensors

if TYPE_CHECKING:
    from rankfold.methods.closed_form.rg2 import Config

EXPONENTS = (  # plain, then weighted
    (-0.5, 0.0), (-0.375, 0.25), (-0.375, 0.35), (-0.25, 0.35), (-0.25, 0.45)
)  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "query_exponent": spectral.QUERY_EXPONENT,
    "candidate_exponent": spectral.CANDIDATE_EXPONENT,
    "threshold": 0.5,
    "discount": 0.1,
}
_FREE = ("rank", "tail_weight", "popularity", *DEFAULTS)  # the first three follow from the data
_NOISY_TAIL = 2.0  # weight of a tail where no component stands out
_PRIOR_PAIRS, _MOST_POPULARITY = 6.0, 2.0  # of a query whose popularity has the weight 1
_MAX_DECOMPOSITIONS = 2  # kept in memory, the best by the first sample
_FIRST_STAGES, _UPHILL_STAGES = 3, 4  # of the race: of each decomposition, of the best ones
_MOST_STEPS = 16


class PathSearch:
    """The search for the best point: data, settings, exponents to try and results so far."""

    def __init__(
        self, rows: Interactions, config: Config, run: Run, given: Interactions | None = None
    ) -> None:
        if run.judge is not None and sum_over_ranks(len(run.judge.queries), run.comm) == 0:
            run = replace(run, judge=None)
        self.rows, self.run = rows, run
        self.config = config if run.judge is not None else _with_defaults(config)
        self.defaulted = run.judge is None and any(getattr(config, n) is None for n in _FREE)
        self.counts = run.comm.sum(rows.candidate_counts()).clamp(min=1).double()
        self.exponents = _exponents(self.config)
        self.shards = divide(rows, min(config.width, rows.n_candidates), run)
        if given is not None and self.shards is not None:
            raise UserError(
                "rg2 cannot fold in held-out queries while candidates are divided among processes",
                hint="raise candidate_memory, or prepare without --fold-in",
            )
        self.stages: list[RacingStage] = []
        free = any(getattr(self.config, name) is None for name in _FREE)
        if run.judge is not None and free:
            self.stages = list(stages(run.judge, config.path_queries, run.comm, self.shards))
        # the best score so far, by the step it is known at
        self.best_scores: list[dict[str, Any]] = []
        self.tried: dict[int, float] = {}  # the best score of each pair of exponents
        self.scores = PathScores(
            rows, given, self.counts, self.stages, self.config, run, self.shards
        )
        self.leaders: list[PathPoint] = []  # the best point of each pair, by the first stages
        self.winner: PathPoint | None = None  # by many queries, of all pairs so far
        self.defaults: dict[int, PathPoint] = {}  # by place
        self.values: dict[PathPoint, list[Tensor]] = {}  # of the metric, a tensor for each stage

    def next_place(self) -> int | None:
        """The next pair of exponents: the middle one, then the neighbours of the best.

        It is the best by the first stages, until its neighbours are known, then by many queries.
        """
        if not self.tried:
            return len(self.exponents) // 2
        best = max(self.tried, key=self.tried.__getitem__)
        missing = self.untried_beside(best) if self.winner is None else []
        if not missing and self.leaders and len(self.tried) < len(self.exponents):
            self.winner = self.leader_by_many()
            missing = self.untried_beside(self.winner.place)
        return missing[0] if missing else None

    def untried_beside(self, place: int) -> list[int]:
        near = (place + 1, place - 1)
        return [one for one in near if one in range(len(self.exponents)) and one not in self.tried]

    def passes(self, place: int, inside: Mapping[str, Tensor] | None) -> Iterator[Decomposition]:
        target = Target(self.objective(place), self.run.memory_budget, self.shards)
        rng = torch.Generator().manual_seed(self.run.rng.initial_seed())  # as with these given
        tolerance = self.config.tolerance
        return decompose(target, self.config.width, rng, tolerance=tolerance, resume=inside)

    def objective(self, place: int) -> Objective:
        e, beta = self.exponents[place]
        return rg2(self.rows, 0.0, exponent=e, candidate_exponent=beta, comm=self.run.comm)

    def take(self, place: int, spectrum: Decomposition) -> None:
        """Measure the path of a decomposition in the first stages. Keep the best."""
        grid = PathGrid.of(place, max(1, len(spectrum.values)), self.config)
        self.scores.solved[place] = Solved(self.objective(place), spectrum, grid)
        self.tried[place] = 0.0
        if self.stages and len(spectrum.values) > 0:
            before = self.winner or (self.leaders[-1] if self.leaders else None)
            starts = grid.starts() if before is None else [grid.nearest(before)]
            tops = [self.uphill(start, n_stages=1) for start in starts]
            top = self.uphill(self.leader(tops, n_stages=1), _FIRST_STAGES)
            self.leaders.append(top)
            self.tried[place] = self.score(top, _FIRST_STAGES)
        order = sorted(self.scores.solved, key=lambda place: -self.tried[place])
        if self.winner is not None:
            order = [self.winner.place, place]
        self.scores.keep(order[:_MAX_DECOMPOSITIONS])

    def best(self) -> Model:
        """The model of the best point, or of the mean of those that may be."""
        if not self.leaders:
            return self.model(self.default(next(iter(self.scores.solved))))
        best = self.leader_by_many()
        grid, measure = self.scores.solved[best.place].grid, self.scores.measure
        near = [*grid.mixes(best), *grid.solutions(best), *grid.priors(best)]
        points, n_stages = dict.fromkeys(near), len(self.stages)
        chosen = choose(points, self.values, measure, n_stages, blend, self.steps, MAX_ERRORS)
        return self.model(finished(chosen))

    def default(self, place: int) -> PathPoint:
        """The point without validation, from which few queries do not lead far.

        With sigma the singular values, r of them above noise, and n pairs of a mean query::

            tail_weight = 2 sigma_{r + 1} / sigma_1        popularity = 6 / n, at most 2
        """
        if place not in self.defaults:
            solved, given = self.scores.solved[place], self.config
            rank, values = self.signal_rank(solved), solved.spectrum.values
            noise = float(values[min(rank, len(values) - 1)] / values[0]) if len(values) > 0 else 1
            n_pairs = sum_over_ranks(self.rows.n_pairs, self.run.comm)
            n_queries = sum_over_ranks(int((self.rows.counts() > 0).sum()), self.run.comm)
            popular = min(_MOST_POPULARITY, _PRIOR_PAIRS * n_queries / max(1, n_pairs))
            own = PathPoint(
                place,
                rank if given.rank is None else solved.grid.ranks[0],
                DEFAULTS["threshold"] if given.threshold is None else given.threshold,
                DEFAULTS["discount"] if given.discount is None else given.discount,
                _NOISY_TAIL * noise if given.tail_weight is None else given.tail_weight,
                popular if given.popularity is None else given.popularity,
            )
            self.defaults[place] = own if given.tail != "none" else own._replace(tail_weight=0.0)
        return self.defaults[place]

    def steps(self, point: PathPoint) -> float:
        """The distance of a point from the default, about in steps of the grid."""
        return distance(point, self.default(point.place))

    def signal_rank(self, solved: Solved) -> int:
        """The number of components that stand out from those of a random matrix.

        An M x N matrix of independent entries has no singular value above about M^-1/2 + N^-1/2
        times the root of the sum of their squares: the edge of Marchenko and Pastur.
        """
        n_queries = sum_over_ranks(int((self.rows.counts() > 0).sum()), self.run.comm)
        n_candidates = int((self.run.comm.sum(self.rows.candidate_counts()) > 0).sum())
        width = max(1, n_queries) ** -0.5 + max(1, n_candidates) ** -0.5
        edge = solved.objective.constant**0.5 * width
        return max(solved.grid.ranks[0], int((solved.spectrum.values > edge).sum()))

    def leader_by_many(self) -> PathPoint:
        """The best point of the decompositions that are kept, by many queries."""
        known = [point for point in self.leaders if point.place in self.scores.solved]
        tops = [self.uphill(point, _UPHILL_STAGES) for point in known]
        return self.leader(tops, len(self.stages))

    def uphill(self, point: PathPoint, n_stages: int) -> PathPoint:
        """The best point on the way of steps to better neighbours, until there is none."""
        grid = self.scores.solved[point.place].grid
        for _ in range(_MOST_STEPS):
            before = point
            point = self.leader(grid.mixes(point), n_stages)
            point = self.leader(grid.solutions(point), n_stages)
            point = self.leader(grid.priors(point), n_stages)
            if point == before:
                break
        return point

    def score(self, point: PathPoint, n_stages: int) -> float:
        """The mean of the metric over the queries of some stages."""
        known = self.values.setdefault(point, [])
        for stage in range(len(known), min(n_stages, len(self.stages))):
            known.append(self.scores.measure([point], stage)[point])
        return mean(torch.cat(known[:n_stages]))[0]

    def leader(self, points: list[PathPoint], n_stages: int) -> PathPoint:
        """The best point by the queries of some stages."""
        n_stages = min(n_stages, len(self.stages))
        work = race(points, self.values, self.scores.measure, n_stages, self.steps)
        return next(iter(finished(work)))

    def model(self, point: PathPoint) -> Model:
        spectrum, solution = self.scores.solved[point.place].spectrum, self.solution(point)
        e, beta = self.exponents[point.place]
        chosen = replace(
            self.config,
            query_exponent=e,
            candidate_exponent=beta,
            rank=point.rank,
            threshold=point.threshold,
            discount=point.discount,
            tail_weight=self.config.tail_weight
            if self.config.tail == "none"
            else point.tail_weight,
            popularity=point.popularity,
        )
        notes: dict[str, Any] = {"residual": spectrum.residual, "columns": spectrum.columns}
        if len(self.values) > 1:
            path = {one: self.note(one) for one in self.values}
            notes |= {"chosen_by": "validation", "path": list(path.values())}
            score = {"score": path[point]["score"]}
            notes |= {**score, "scores": [*self.best_scores[:-1], self.best_scores[-1] | score]}
        elif self.defaulted:
            notes |= {"chosen_by": "the defaults"}
        queries = fold(solution, self.rows, e, self.shards)
        tensors = {"queries": queries, **spectral.to_tensors(solution)}
        if point.tail_weight > 0:
            factor = self.scores.mix(point).tail
            tensors |= tail.weighted(self.scores.neighbours, factor, self.counts**point.discount)
            tensors |= history_tensors(self.rows)
        return Model("rg2", asdict(chosen), tensors, notes)

    def solution(self, point: PathPoint) -> spectral.Factors:
        objective, spectrum, *_ = self.scores.solved[point.place]
        assert spectrum.vectors is not None
        values, vectors = spectrum.values[: point.rank], spectrum.vectors[:, : point.rank]
        tau = point.threshold * float(values[-1:].sum())
        found = spectral.factors(
            objective, values, vectors, tau, self.counts**point.discount, self.shards
        )
        if point.popularity == 0:
            return found
        own = self.scores.here(popularity(self.counts))
        return spectral.with_constant(found, self.scores.mix(point).popularity * own)

    def note(self, point: PathPoint) -> dict[str, Any]:
        """A point and its score on all queries it was measured on."""
        e, beta = self.exponents[point.place]
        settings = point._asdict()
        del settings["place"]
        score, error = mean(torch.cat(self.values[point]))
        exponents = {"query_exponent": e, "candidate_exponent": beta}
        return {**exponents, **settings, "score": score, "error": error}


def _with_defaults(config: Config) -> Config:
    """The settings without validation that do not follow from the data."""
    return replace(config, **{k: v for k, v in DEFAULTS.items() if getattr(config, k) is None})


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


def fold(
    solution: spectral.Factors, rows: Interactions, exponent: float, shards: Shards | None = None
) -> Tensor:
    """The vectors of queries from their pairs; [M, D]."""
    slope, power = target_line(row_sizes(rows), rows.n_candidates, exponent)
    return spectral.fold(solution, rows, slope, -power, shards)
