"""RG2: the softmax ranking loss made quadratic, solved for every rank and threshold at once; [rg2].

One decomposition for a pair of exponents gives a path of solutions. The pairs lie on a line, which
is climbed from its middle; the points of all paths race on the validation queries (``race``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from rankfold.distributed.collectives import sum_over_ranks
from rankfold.errors import UserError
from rankfold.kernels.topk import top_k
from rankfold.methods.closed_form.racing import Stage, mean, race, stages
from rankfold.methods.closed_form.spectral import (
    CANDIDATE_EXPONENT,
    QUERY_EXPONENT,
    TOLERANCE,
    Factors,
    factors,
    fold,
    from_tensors,
    to_tensors,
)
from rankfold.methods.pair_weights import training_rows, weighed
from rankfold.objectives.quadratic import Objective
from rankfold.objectives.rg import rg2, row_sizes, target_line
from rankfold.solvers.path import Point, path_scores, queries_at_once
from rankfold.solvers.shards import Shards, divide
from rankfold.solvers.spectral import Decomposition, Target, decompose, expected_share
from rankfold.types import Dataset, Interactions, Method, Model, Run, Step

EXPONENTS = ((-0.5, 0.0), (-0.375, 0.25), (-0.375, 0.35), (-0.375, 0.425))  # plain, weighted
RANKS = (0.25, 0.5, 1.0)  # shares of the width
THRESHOLDS = (0.0, 0.5, 0.9)  # shares of the last kept singular value
DISCOUNTS = (0.0, 0.1, 0.2, 0.3)  # exponents of the candidates' counts
DEFAULTS = {
    "query_exponent": QUERY_EXPONENT,
    "candidate_exponent": CANDIDATE_EXPONENT,
    "threshold": 0.5,
    "discount": 0.15,
}
KEPT = 2  # decompositions, the best by the first sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What is not given is chosen on validation; without validation pairs, the stated defaults."""

    width: int = 256  # the largest rank
    query_exponent: float | None = None  # -.5 is the paper's; default -.375
    candidate_exponent: float | None = None  # 0 is the paper's; default .35
    rank: int | None = None  # default: the width
    threshold: float | None = None  # a share of the last kept singular value; default .5
    discount: float | None = None  # of popularity: an exponent of a candidate's count; default .15
    tolerance: float = TOLERANCE  # of the decomposition's residual
    path_queries: int = 400  # validation queries that score the whole path
    weights: Literal["none", "grade"] = "none"  # grade: as confidence weights

    def __post_init__(self) -> None:
        for name in ("width", "rank", "path_queries"):
            given = getattr(self, name)
            if given is not None and given < 1:
                raise UserError(f"{name} is {given}", hint="it is at least 1")
        if not 0 < self.tolerance < 1:
            raise UserError(f"tolerance is {self.tolerance}", hint="it lies between 0 and 1")
        if self.threshold is not None and not 0 <= self.threshold < 1:
            raise UserError(f"threshold is {self.threshold}", hint="it is 0 or more, below 1")
        for name in ("query_exponent", "candidate_exponent", "discount"):
            given = getattr(self, name)
            if given is not None and not -2 <= given <= 2:
                raise UserError(f"{name} is {given}", hint="it lies between -2 and 2")


class Solved(NamedTuple):
    """What one pair of exponents gives."""

    objective: Objective
    found: Decomposition
    products: list[Tensor]  # T' V for the queries of each stage


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """Decompose for some pairs of exponents, choose on validation; a step per pass."""
    search = Search(training_rows(data, config.weights, run.device), config, run)
    before = run.resume  # None once its pair of exponents has come
    number = 0 if before is None else int(before["number"])
    began = perf_counter()
    while (place := search.next_place()) is not None:
        inside = None
        if before is not None and int(before["place"]) == place:
            inside, before, began = before, None, perf_counter()
        for found in search.passes(place, inside):
            if found.vectors is None and before is None:
                number += 1
                state = {"place": torch.tensor(place), **found.state}
                seconds = perf_counter() - began
                done = len(search.tried) + expected_share(found.columns, config.width)
                yield Step(
                    number, found.residual, seconds, None, state.copy, False,
                    done / len(search.exponents),
                    divided=() if search.shards is None else ("space", "outside"),
                )  # fmt: skip
                began = perf_counter()
        search.take(place, found)
    model = search.best()
    residual = model.notes["residual"]
    yield Step(number + 1, residual, perf_counter() - began, model, dict, final=True)


def fold_in(model: Model, rows: Interactions) -> Tensor:
    """Vectors of new queries from their candidates, in closed form; [B, D]."""
    found = from_tensors(model.tensors)
    rows = weighed(rows.to(found.candidates.device), model.config["weights"])
    return _fold(found, rows, model.config["query_exponent"])


METHOD = Method(
    summary="softmax ranking loss to second order: the path of its global optima, best kept",
    config=Config,
    data_kind="interactions",
    fit=fit,
    fold_in=fold_in,
    paper="rg2",
    self_tuning=True,
    distributed=True,
)


class Search:
    """The data, the settings, what is to be tried and what was found."""

    def __init__(self, rows: Interactions, config: Config, run: Run) -> None:
        if run.judge is not None and sum_over_ranks(len(run.judge.queries), run.comm) == 0:
            run = replace(run, judge=None)
        self.rows, self.run = rows, run
        self.config = config if run.judge is not None else _with_defaults(config)
        self.defaulted = self.config != config
        self.counts = run.comm.sum(rows.candidate_counts()).clamp(min=1).double()
        self.exponents = _exponents(self.config)
        self.shards = divide(rows, min(config.width, rows.n_candidates), run)
        self.stages: list[Stage] = []
        free = any(getattr(self.config, name) is None for name in ("rank", *DEFAULTS))
        if run.judge is not None and free:
            self.stages = list(stages(run.judge, config.path_queries, run.comm, self.shards))
        self.tried: dict[int, float] = {}  # the best score of each pair of exponents
        self.solved: dict[int, Solved] = {}  # the best of them
        self.values: dict[Point, list[Tensor]] = {}  # of the metric, a tensor for each stage

    def next_place(self) -> int | None:
        """From the middle of the line of exponents on to the neighbours of the best."""
        if not self.tried:
            return len(self.exponents) // 2
        best = max(self.tried, key=self.tried.__getitem__)
        for place in (best + 1, best - 1):
            if place in range(len(self.exponents)) and place not in self.tried:
                return place
        return None

    def passes(self, place: int, inside: Mapping[str, Tensor] | None) -> Iterator[Decomposition]:
        target = Target(self.objective(place), self.run.memory_budget, self.shards)
        rng = torch.Generator().manual_seed(self.run.rng.initial_seed() + place)
        tolerance = self.config.tolerance
        return decompose(target, self.config.width, rng, tolerance=tolerance, resume=inside)

    def objective(self, place: int) -> Objective:
        e, beta = self.exponents[place]
        return rg2(self.rows, 0.0, exponent=e, candidate_exponent=beta, comm=self.run.comm)

    def take(self, place: int, found: Decomposition) -> None:
        """Measure the path of a decomposition in the first stage; keep the best."""
        objective = self.objective(place)
        self.solved[place] = Solved(objective, found, self.products(objective, found))
        self.tried[place] = 0.0
        if self.stages and len(found.values) > 0:
            best = race(self.points(place), self.values, self.measure, n_stages=1)
            self.tried[place] = mean(self.values[best][0])[0]
        order = sorted(self.solved, key=lambda place: -self.tried[place])
        self.solved = {place: self.solved[place] for place in order[:KEPT]}

    def products(self, objective: Objective, found: Decomposition) -> list[Tensor]:
        if not self.stages:
            return []
        assert found.vectors is not None
        sizes = [len(stage.queries) for stage in self.stages]
        queries = torch.cat([stage.queries for stage in self.stages]).to(found.vectors.device)
        target = Target(objective, self.run.memory_budget, self.shards)
        return list(target.of_queries(found.vectors, queries).split(sizes))

    def points(self, place: int) -> list[Point]:
        """The path of a decomposition, at a middle discount."""
        largest = max(1, len(self.solved[place].found.values))
        rank, threshold = self.config.rank, self.config.threshold
        ranks = [max(1, round(share * largest)) for share in RANKS]
        sizes = sorted(set(ranks)) if rank is None else [min(rank, largest)]
        thresholds = THRESHOLDS if threshold is None else [threshold]
        discount = self.discounts()[len(self.discounts()) // 2]
        return [Point(place, size, at, discount) for size in sizes for at in thresholds]

    def discounts(self) -> list[float]:
        return list(DISCOUNTS) if self.config.discount is None else [self.config.discount]

    def measure(self, points: list[Point], stage: int) -> dict[Point, Tensor]:
        """The metric at some points for the queries of a stage, those of all processes."""
        ids: dict[Point, list[Tensor]] = {point: [] for point in points}
        for place in sorted({point.place for point in points}):
            its_own = [point for point in points if point.place == place]
            for point, scores in self.scores(place, its_own, stage):
                ids[point].append(self.best_ids(scores))
        return {point: self.judged(parts, stage) for point, parts in ids.items()}

    def scores(self, place: int, points: list[Point], stage: int) -> Iterator[tuple[Point, Tensor]]:
        """The scores at some points of a path, of the candidates that this process has."""
        objective, found, every = self.solved[place]
        assert found.vectors is not None
        device = found.vectors.device
        products, seen = every[stage], self.stages[stage].seen.to(device)
        if self.shards is not None:
            products = self.shards.comm.gather(products)
        root = objective.candidate_weight.rsqrt()
        scales = {
            discount: self.here(root * self.counts**-discount).float()
            for discount in {point.discount for point in points}
        }
        most = queries_at_once(self.largest_share(), self.run.memory_budget)
        return path_scores(
            products, found.values.to(device), found.vectors, points, scales, seen, most
        )

    def largest_share(self) -> int:
        """The candidates of the process that has most: all take as many queries at a time."""
        n = len(self.counts)
        return n if self.shards is None else -(-n // self.shards.comm.size)

    def here(self, numbers: Tensor) -> Tensor:
        """Of a number per candidate, those of the candidates that this process has."""
        return numbers if self.shards is None else numbers[self.shards.rows]

    def best_ids(self, scores: Tensor) -> Tensor:
        """The best candidates of all processes."""
        assert self.run.judge is not None
        depth, n = self.run.judge.depth, len(self.counts)
        if self.shards is None:
            return top_k(scores, min(depth, n)).ids
        here = top_k(scores, min(depth, self.shards.size))
        return self.shards.merge(here, min(depth, n)).ids

    def judged(self, ids: list[Tensor], stage: int) -> Tensor:
        """The values of the queries of all processes, as one would have them."""
        assert self.run.judge is not None
        queries, _, own = self.stages[stage]
        none = len(queries) == 0
        values = torch.zeros(0) if none else self.run.judge.values(queries, torch.cat(ids)[own])
        return self.run.comm.gather(values)

    def best(self) -> Model:
        """The model of the best point, then at its best discount."""
        if not self.values:
            return self.model(self.points(next(iter(self.solved)))[-1])
        points = [point for point in self.values if point.place in self.solved]
        best = race(points, self.values, self.measure, len(self.stages))
        alike = [best._replace(discount=discount) for discount in self.discounts()]
        return self.model(race(alike, self.values, self.measure, len(self.stages)))

    def model(self, point: Point) -> Model:
        found, solution = self.solved[point.place].found, self.solution(point)
        e, beta = self.exponents[point.place]
        chosen = replace(
            self.config,
            query_exponent=e,
            candidate_exponent=beta,
            rank=point.rank,
            threshold=point.threshold,
            discount=point.discount,
        )
        notes: dict[str, Any] = {"residual": found.residual, "columns": found.columns}
        if len(self.values) > 1:
            path = {one: self.note(one) for one in self.values}
            notes |= {"chosen_by": "validation", "path": list(path.values())}
            notes |= {"score": path[point]["score"]}
        elif self.defaulted:
            notes |= {"chosen_by": "the defaults"}
        queries = _fold(solution, self.rows, e, self.shards)
        tensors = {"queries": queries, **to_tensors(solution)}
        return Model("rg2", asdict(chosen), tensors, notes)

    def solution(self, point: Point) -> Factors:
        objective, found, _ = self.solved[point.place]
        assert found.vectors is not None
        values, vectors = found.values[: point.rank], found.vectors[:, : point.rank]
        tau = point.threshold * float(values[-1:].sum())
        return factors(objective, values, vectors, tau, self.counts**point.discount, self.shards)

    def note(self, point: Point) -> dict[str, Any]:
        """A point and its score on all queries that it was measured on."""
        e, beta = self.exponents[point.place]
        settings = point._asdict()
        del settings["place"]
        score, error = mean(torch.cat(self.values[point]))
        exponents = {"query_exponent": e, "candidate_exponent": beta}
        return {**exponents, **settings, "score": score, "error": error}


def _with_defaults(config: Config) -> Config:
    """Without validation: what is not given is what is usually good."""
    given = {name: value for name, value in asdict(config).items() if value is not None}
    return Config(**{"rank": config.width, **DEFAULTS, **given})


def _exponents(config: Config) -> list[tuple[float, float]]:
    """The pairs to try: those that agree with what is given, or what is given alone."""
    e, beta = config.query_exponent, config.candidate_exponent
    if e is not None and beta is not None:
        return [(e, beta)]
    free = [pair for pair in EXPONENTS if e in (None, pair[0]) and beta in (None, pair[1])]
    whole = _with_defaults(config)
    assert whole.query_exponent is not None
    assert whole.candidate_exponent is not None
    return free or [(whole.query_exponent, whole.candidate_exponent)]


def _fold(
    found: Factors, rows: Interactions, exponent: float, shards: Shards | None = None
) -> Tensor:
    slope, power = target_line(row_sizes(rows), rows.n_candidates, exponent)
    return fold(found, rows, slope, -power, shards)
