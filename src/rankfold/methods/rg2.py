"""RG2: the softmax ranking loss made quadratic, solved for every rank and threshold at once; [rg2].

One decomposition for each pair of exponents gives a path of solutions. All of it is scored on a
sample of the validation queries, and what comes close to the best on four times as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.kernels.topk import LARGEST_BLOCK, top_k
from rankfold.methods.spectral import (
    CANDIDATE_EXPONENT,
    QUERY_EXPONENT,
    TOLERANCE,
    Factors,
    factors,
    fold,
    from_tensors,
    to_tensors,
)
from rankfold.methods.weighing import training_rows, weighed
from rankfold.objectives.quadratic import Objective, in_all
from rankfold.objectives.rg import rg2, row_sizes, target_line
from rankfold.solvers.path import Point, path_scores
from rankfold.solvers.shards import Shards, divide
from rankfold.solvers.spectral import Decomposition, Target, decompose, expected_share
from rankfold.types import Dataset, Interactions, Judge, Method, Model, Run, Step

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
QUERIES = 128  # ranked at a time: their score blocks stay in a CPU's cache
DOUBT = 2.0  # standard errors of the difference within which a point comes close to the best
FURTHER = 3  # times the sample, for those that come close


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
    path_queries: int = 800  # validation queries that score the whole path
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


class Entry(NamedTuple):
    """A point of the path and its score on the sample."""

    place: int  # of its exponents
    rank: int
    threshold: float
    discount: float
    score: float = 0.0  # 0 without validation
    error: float = 0.0  # standard error of the score


class Asked(NamedTuple):
    """Queries to be ranked, and those of them that this process is to judge."""

    vectors: Tensor  # [B, K]
    hidden: Tensor  # 0, or -inf for candidates not to be returned, [B, whole blocks]
    queries: Tensor  # of this process, rows of the data
    places: Tensor  # where they stand among the B


class Solved(NamedTuple):
    """One decomposition and the path that it gives."""

    found: Decomposition
    best: Entry
    values: dict[Point, Tensor]  # of the metric, for each sampled query


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """Decompose for each pair of exponents, choose on validation; a step per pass."""
    search = Search(training_rows(data, config.weights, run.device), config, run)
    number, first, inside = 0, 0, run.resume
    if inside is not None:
        number, first = int(inside["number"]), int(inside["place"])
    for place in range(first):  # solved before the fit was stopped
        *_, found = search.passes(place, None)
        search.take(place, found)
    began = perf_counter()
    for place in range(first, len(search.exponents)):
        for found in search.passes(place, inside):
            if found.vectors is None:
                number += 1
                state = {"place": torch.tensor(place), **found.state}
                seconds = perf_counter() - began
                share = (place + expected_share(found.columns, config.width)) / len(
                    search.exponents
                )
                yield Step(
                    number, found.residual, seconds, None, state.copy, False, share,
                    divided=() if search.shards is None else ("space", "outside"),
                )  # fmt: skip
                began = perf_counter()
        search.take(place, found)
        inside = None
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
    selects_itself=True,
    divides=True,
)


class Search:
    """The data, the settings, what is to be tried and what was found."""

    def __init__(self, rows: Interactions, config: Config, run: Run) -> None:
        self.rows, self.run = rows, run
        self.config = config if run.judge is not None else _with_defaults(config)
        self.defaulted = self.config != config
        self.counts = run.comm.sum(rows.candidate_counts()).clamp(min=1).double()
        self.exponents = _exponents(self.config)
        self.shards = divide(rows, min(config.width, rows.n_candidates), run)
        self.entries: list[Entry] = []
        self.solved: list[Solved] = []  # the best two

    def objective(self, place: int) -> Objective:
        e, beta = self.exponents[place]
        return rg2(self.rows, 0.0, exponent=e, candidate_exponent=beta, comm=self.run.comm)

    def passes(self, place: int, inside: Mapping[str, Tensor] | None) -> Iterator[Decomposition]:
        target = Target(self.objective(place), self.run.memory_budget, self.shards)
        rng = torch.Generator().manual_seed(self.run.rng.initial_seed() + place)
        tolerance = self.config.tolerance
        return decompose(target, self.config.width, rng, tolerance=tolerance, resume=inside)

    def take(self, place: int, found: Decomposition) -> None:
        """Score the path of a decomposition at a middle discount; keep the best two."""
        points, discounts = self.points(len(found.values)), self.discounts()
        discount = discounts[len(discounts) // 2]
        alone = len(points) * len(discounts) * len(self.exponents) == 1
        if self.run.judge is None or alone or len(found.values) == 0:
            self.solved = [Solved(found, Entry(place, *points[-1], discount), {})]
            self.entries = [self.solved[0].best]
            return
        queries = self.sample(self.run.judge)
        values = self.along_path(place, found, points, discount, self.run.judge, queries)
        entries = [Entry(place, *point, discount, *_mean(v)) for point, v in values.items()]
        best = max(entries, key=lambda entry: entry.score)
        self.entries += entries
        self.solved.append(Solved(found, best, values))
        self.solved = sorted(self.solved, key=lambda solved: -solved.best.score)[:2]

    def points(self, largest: int) -> list[Point]:
        largest, rank, threshold = max(1, largest), self.config.rank, self.config.threshold
        ranks = [max(1, round(share * largest)) for share in RANKS]
        sizes = sorted(set(ranks)) if rank is None else [min(rank, largest)]
        thresholds = THRESHOLDS if threshold is None else [threshold]
        return [Point(size, threshold) for size in sizes for threshold in thresholds]

    def discounts(self) -> list[float]:
        return list(DISCOUNTS) if self.config.discount is None else [self.config.discount]

    def along_path(
        self,
        place: int,
        found: Decomposition,
        points: list[Point],
        discount: float,
        judge: Judge,
        queries: Tensor,
    ) -> dict[Point, Tensor]:
        """The metric of every one of the queries at every point."""
        assert found.vectors is not None
        objective = self.objective(place)
        target = Target(objective, self.run.memory_budget, self.shards)
        scale = objective.candidate_weight.rsqrt() * self.counts**-discount
        candidates = found.vectors * self.here(scale).float()[:, None]
        singular = found.values.to(candidates.device)
        values: dict[Point, list[Tensor]] = {point: [] for point in points}
        products = target.of_queries(found.vectors, queries.to(candidates.device))
        for asked in self.asked(judge, queries, products):
            for point, scores in path_scores(
                asked.vectors, singular, candidates, points, asked.hidden
            ):
                values[point].append(self.judged(judge, asked, scores))
        return {point: self.of_all(parts) for point, parts in values.items()}

    def here(self, numbers: Tensor) -> Tensor:
        """Of a number per candidate, those of the candidates that this process has."""
        return numbers if self.shards is None else numbers[self.shards.rows]

    def asked(self, judge: Judge, queries: Tensor, vectors: Tensor) -> Iterator[Asked]:
        """Some queries of this process at a time or, where candidates are divided, of all."""
        seen, own = judge.hidden(queries), torch.arange(len(queries))
        if self.shards is not None:
            counts = self.shards.comm.gather(torch.tensor([len(queries)]))
            own += counts[: self.shards.comm.rank].sum()
            seen, vectors = self.shards.seen(seen), self.shards.comm.gather(vectors)
        for start in range(0, len(vectors), QUERIES):
            stop = min(start + QUERIES, len(vectors))
            mine = (own >= start) & (own < stop)
            hidden = _hidden(seen.part(start, stop).to(vectors.device))
            yield Asked(vectors[start:stop], hidden, queries[mine], own[mine] - start)

    def judged(self, judge: Judge, asked: Asked, scores: Tensor) -> Tensor:
        """The metric of those of the queries that are of this process."""
        n = len(self.counts) if self.shards is None else self.shards.size
        best = top_k(scores, min(judge.depth, n))
        if self.shards is not None:
            best = self.shards.merge(best, min(judge.depth, len(self.counts)))
        return judge.values(asked.queries, best.ids[asked.places.to(best.ids.device)])

    def of_all(self, values: list[Tensor]) -> Tensor:
        """The values of the queries of all processes, as one would have them."""
        return self.run.comm.gather(torch.cat(values) if values else torch.zeros(0))

    def sample(self, judge: Judge) -> Tensor:
        """The validation queries that score the path, evenly from all."""
        return self.evenly(judge.queries, self.config.path_queries)

    def further(self, judge: Judge) -> Tensor:
        """More of them, evenly from the rest."""
        rest = judge.queries[~torch.isin(judge.queries, self.sample(judge))]
        return self.evenly(rest, FURTHER * self.config.path_queries)

    def evenly(self, queries: Tensor, n: int) -> Tensor:
        """About n of the queries of all processes: those that are here."""
        counts = self.run.comm.gather(torch.tensor([len(queries)]))
        before = int(counts[: self.run.comm.rank].sum())
        step = max(1, int(counts.sum()) // n)
        return queries[(step // 2 - before) % step :: step]

    def closest(self, judge: Judge) -> Solved:
        """The best by the sample and, where others come close to it, by more queries.

        Their entries then hold the scores of both together.
        """
        leader = self.solved[0]
        best = leader.values[Point(leader.best.rank, leader.best.threshold)]
        found = []
        for solved in self.solved:
            gaps = {point: _mean(best - values) for point, values in solved.values.items()}
            close = [point for point, (gap, error) in gaps.items() if gap <= DOUBT * error]
            found.append((solved, close))
        queries = self.further(judge)
        n_queries = in_all(len(queries), self.run.comm)
        if sum(len(close) for _, close in found) == 1 or n_queries == 0:
            return leader
        raced = [self.race(solved, close, judge, queries) for solved, close in found if close]
        return max(raced, key=lambda solved: solved.best.score)

    def race(self, solved: Solved, points: list[Point], judge: Judge, queries: Tensor) -> Solved:
        """The best of some points of a path by more queries."""
        place, discount = solved.best.place, solved.best.discount
        more = self.along_path(place, solved.found, points, discount, judge, queries)
        both = {point: torch.cat([solved.values[point], more[point]]) for point in points}
        entries = {point: Entry(place, *point, discount, *_mean(v)) for point, v in both.items()}
        at = {entry[:4]: entry for entry in entries.values()}
        self.entries = [at.get(entry[:4], entry) for entry in self.entries]
        return solved._replace(best=max(entries.values(), key=lambda entry: entry.score))

    def discounted(self, solved: Solved, judge: Judge) -> Entry:
        """The best discount at the best point of a path: it only scales the scores' columns."""
        solution = self.solution(solved.best, solved.found)
        e, _ = self.exponents[solved.best.place]
        values: dict[float, list[Tensor]] = {discount: [] for discount in self.discounts()}
        queries, n = self.sample(judge), len(solution.candidates)
        vectors = self.fold(solution, queries.to(self.rows.offsets.device), e)
        for asked in self.asked(judge, queries, vectors):
            scores = asked.hidden
            scores[:, :n].addmm_(asked.vectors, solution.candidates.T)
            for discount, parts in values.items():
                now, over = scores.clone(), solved.best.discount - discount
                now[:, :n] *= self.here(self.counts**over).float()
                parts.append(self.judged(judge, asked, now))
        entries = [
            Entry(*solved.best[:3], discount, *_mean(self.of_all(parts)))
            for discount, parts in values.items()
        ]
        self.entries += [one for one in entries if one.discount != solved.best.discount]
        return max(entries, key=lambda entry: entry.score)

    def fold(self, solution: Factors, queries: Tensor, exponent: float) -> Tensor:
        """Vectors of some queries of this process."""
        if self.shards is not None:
            return _fold(solution, self.rows, exponent, self.shards)[queries]
        return _fold(solution, self.rows.select(queries), exponent)

    def best(self) -> Model:
        """The model of the best point, at its best discount."""
        judge, solved = self.run.judge, self.solved[0]
        if judge is None or not solved.values:
            return self.model(solved.best, solved.found)
        solved = self.closest(judge)
        several = len(self.discounts()) > 1
        entry = self.discounted(solved, judge) if several else solved.best
        return self.model(entry, solved.found)

    def solution(self, entry: Entry, found: Decomposition) -> Factors:
        assert found.vectors is not None
        values, vectors = found.values[: entry.rank], found.vectors[:, : entry.rank]
        tau = entry.threshold * float(values[-1:].sum())
        over = self.counts**entry.discount
        return factors(self.objective(entry.place), values, vectors, tau, over, self.shards)

    def model(self, entry: Entry, found: Decomposition) -> Model:
        solution = self.solution(entry, found)
        e, beta = self.exponents[entry.place]
        chosen = replace(
            self.config,
            query_exponent=e,
            candidate_exponent=beta,
            rank=entry.rank,
            threshold=entry.threshold,
            discount=entry.discount,
        )
        notes: dict[str, Any] = {"residual": found.residual, "columns": found.columns}
        if self.run.judge is not None and len(self.entries) > 1:
            path = [self.note(one) for one in self.entries]
            notes |= {"chosen_by": "validation", "path": path}
        elif self.defaulted:
            notes |= {"chosen_by": "the defaults"}
        queries = _fold(solution, self.rows, e, self.shards)
        tensors = {"queries": queries, **to_tensors(solution)}
        return Model("rg2", asdict(chosen), tensors, notes)

    def note(self, entry: Entry) -> dict[str, Any]:
        e, beta = self.exponents[entry.place]
        rest = {name: value for name, value in entry._asdict().items() if name != "place"}
        return {"query_exponent": e, "candidate_exponent": beta, **rest}


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


def _mean(values: Tensor) -> tuple[float, float]:
    """The mean and its standard error."""
    spread = float(values.double().std()) if len(values) > 1 else 0.0
    return float(values.double().mean()), spread / len(values) ** 0.5


def _hidden(seen: Interactions) -> Tensor:
    """Zeros, and -inf for the pairs and beyond the last candidate; [B, whole blocks]."""
    n = seen.n_candidates
    length = -(-n // LARGEST_BLOCK) * LARGEST_BLOCK
    hidden = torch.zeros(seen.n_queries, length, device=seen.offsets.device)
    hidden[:, n:] = -torch.inf
    hidden[seen.query_of_pair().long(), seen.candidates.long()] = -torch.inf
    return hidden
