"""Alternating least squares: the engine that its methods share. They differ in the objective.

A sweep is a candidate step and a query step. Each runs a few steps of conjugate gradients from the
result of the last sweep, or solves exactly by Cholesky. From the second sweep on it goes further
than the solution, by over-relaxation.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.distributed.collectives import SINGLE_PROCESS, sum_over_ranks
from rankfold.errors import UserError
from rankfold.kernels.sparse import transposed
from rankfold.methods.als.settings_search import SWEEPS, WARM_UP, choose
from rankfold.methods.closed_form.spectral import (
    CANDIDATE_EXPONENT,
    QUERY_EXPONENT,
    TOLERANCE,
    factors,
)
from rankfold.methods.noise_defaults import Noise, noise_of
from rankfold.methods.pair_weights import training_rows, weighted_pairs
from rankfold.objectives.quadratic import Half, Objective, candidate_half, query_half, value
from rankfold.objectives.rg import released_candidate_half, released_query_half, rg2
from rankfold.solvers.als import balanced, half_step, sweep
from rankfold.solvers.conjugate_gradients import by_conjugate_gradients
from rankfold.solvers.least_squares import Solve, by_cholesky
from rankfold.solvers.shards import Shards, divide, shards_of
from rankfold.solvers.spectral import Target, decompose
from rankfold.types import Choices, Comm, Dataset, Interactions, Method, Model, Opened, Run, Step

_FOLD_STEPS = 20  # of conjugate gradients, for the vectors of new queries
_FINAL_STEPS = 6  # the same, for the final query vectors, which begin at those of the last sweep
_RELAXATION = 1.5  # of the sweeps after the first: they converge in about half as many
RG_GRID = Choices((1.0, 0.5, 0.1, 0.05, 0.01, 0.005, 0.001, 0.0))  # of [rg2], appendix B.3

Start = Literal["random", "spectral"]


class AlsConfig(Settings):
    """Settings of every method that is solved by alternating least squares."""

    width: int = setting(64, at_least=1, help="length of the vectors")
    reg: float | None = setting(
        None, at_least=0, help="regularisation (lambda); none: by noise and validation"
    )
    sweeps: int = setting(16, at_least=1, help="largest number of sweeps; validation stops earlier")
    inner: Literal["cg", "cholesky"] = setting("cg", help="conjugate gradients, or exact solves")
    steps: int = setting(2, at_least=1, help="steps of conjugate gradients in a sweep")
    start: Start = setting("random", help="first candidates: random, or from spectral rg2")
    weights: Literal["none", "grade"] = setting("none", help="grade: grades are confidences")
    used_with: ClassVar = {"steps": ("inner", "cg")}
    OPEN: ClassVar[tuple[str, ...]] = ()  # settings that follow from the data if they are None

    @property
    def is_open(self) -> bool:
        return any(getattr(self, name) is None for name in self.OPEN)

    def for_data(self, rows: Interactions, comm: Comm) -> Self:
        return self.suited(noise_of(rows, comm)) if self.is_open else self

    def suited(self, _noise: Noise) -> Self:
        """The settings for this noise."""
        return self


class LeastSquares(NamedTuple):
    """An objective and its two halves. Those of a released variant differ from the objective's."""

    objective: Objective
    query_half: Half
    candidate_half: Callable[[Interactions], Half]  # of the transposed pairs


Vectors = tuple[Tensor, Tensor]  # of the queries and of the candidates
Halves = tuple[Half, Half]
MakeProblem = Callable[[Interactions, Any, Comm], LeastSquares]  # of pairs, settings, processes


def exact(o: Objective) -> LeastSquares:
    return LeastSquares(o, query_half(o), lambda columns: candidate_half(o, columns))


def released(o: Objective, reg: float, beta: float) -> LeastSquares:
    half = released_query_half(o, reg, beta)
    return LeastSquares(o, half, lambda columns: released_candidate_half(o, columns, beta))


def method(
    name: str, make: MakeProblem, config: type[AlsConfig], summary: str, **declared: Any
) -> Method:
    """A method from its problem; ``declared``: further fields of ``Method``."""

    def fit(data: Dataset, settings: AlsConfig, run: Run) -> Iterator[Step]:
        return alternate(name, make, data, settings, run)

    def open_model(model: Model) -> Opened:
        settings, candidates = config(**model.config), model.tensors["candidates"]
        return Opened(histories=partial(folded, make, settings, candidates))

    return Method(
        summary=summary,
        config=config,
        data_kind="interactions",
        fit=fit,
        open=open_model,
        answers=("histories",),
        finalize=partial(finalize, make, config),
        own_threads=True,
        distributed=True,
        **declared,
    )


def finalize(
    make: MakeProblem, config: type[AlsConfig], model: Model, rows: Interactions, run: Run
) -> Model:
    """The model with final query vectors."""
    settings = config(**model.config)
    queries = _final_queries(make, settings, model.tensors, rows, run)
    return replace(model, tensors={**model.tensors, "queries": queries})


class _Sweeps(NamedTuple):
    """The parts that all sweeps of a fit share, whichever settings are chosen."""

    make: MakeProblem
    rows: Interactions
    columns: Interactions
    shards: Shards | None
    solve: Solve
    comm: Comm

    def halves(self, settings: AlsConfig) -> Halves:
        problem = self.make(self.rows, settings, self.comm)
        return problem.query_half, problem.candidate_half(self.columns)

    def run(self, halves: Halves, vectors: Vectors, numbers: Iterable[int]) -> Vectors:
        """The vectors after the sweeps with these numbers."""
        for number in numbers:
            relaxation = 1.0 if number == 0 else _RELAXATION  # the start is far from the solution
            vectors = sweep(halves, *vectors, self.solve, self.shards, relaxation)
        return vectors


def alternate(
    name: str, make: MakeProblem, data: Dataset, config: AlsConfig, run: Run
) -> Iterator[Step]:
    """Run ``config.sweeps`` sweeps, a step after each. The query step comes last.

    Settings that were left open follow from the data and, with validation pairs, from a choice.
    """
    rows = training_rows(data, config.weights, run.device)
    noise, given = noise_of(rows, run.comm) if config.is_open else None, run.resume
    if noise is not None and given is not None:
        noise = noise.moved(*given["factors"].tolist())
    settings = config if noise is None else config.suited(noise)
    o = make(rows, settings, run.comm).objective
    shards = _candidate_shards(o.rows, config, run, None if given is None else given["candidates"])
    columns = o.rows  # shards store them by candidate
    if shards is None:
        columns = transposed(o.rows, run.memory_budget)
    sweeps = _Sweeps(make, rows, columns, shards, _solve(config, config.steps), run.comm)
    halves = sweeps.halves(settings)
    if given is None:
        number, candidates = 0, _starting_candidates(o, config, run, shards)
        queries = half_step(halves[0], candidates, _solve(config, _FOLD_STEPS), None, shards)
        vectors = balanced(halves, queries, candidates, shards)
    else:
        candidates = _own_candidates(given["candidates"], rows.n_candidates, run, shards)
        number, vectors = int(given["number"]), (given["queries"].to(run.device), candidates)
    n_pairs = sum_over_ranks(rows.n_pairs, run.comm)
    tables = ("queries",) if shards is None else ("queries", "candidates")
    while number < config.sweeps:
        if number == WARM_UP and noise is not None and run.validate is not None:
            noise = _choose(name, sweeps, config, noise, vectors, run.validate)
            settings = config.suited(noise)
            o, halves = make(rows, settings, run.comm).objective, sweeps.halves(settings)
            vectors = balanced(halves, *vectors, shards)
        vectors = sweeps.run(halves, vectors, [number])
        number += 1
        loss = value(o, *vectors, shards) / max(1, n_pairs)
        model = _model(name, settings, vectors)
        state = dict(model.tensors)
        if noise is not None:
            state["factors"] = torch.tensor(noise.factors, dtype=torch.float64)
        yield Step(number, loss, model, state.copy, number == config.sweeps, divided=tables)


def _choose(
    name: str,
    sweeps: _Sweeps,
    config: AlsConfig,
    noise: Noise,
    start: Vectors,
    validate: Callable[[Model], float],
) -> Noise:
    """The noise whose settings have the best validation score a few sweeps after ``start``."""
    done = set()

    def score(noise: Noise) -> float:
        settings = config.suited(noise)
        if settings in done:  # what moved was given, or is at its bound
            return -math.inf
        done.add(settings)
        halves = sweeps.halves(settings)
        vectors = balanced(halves, *start, sweeps.shards)
        vectors = sweeps.run(halves, vectors, range(WARM_UP, WARM_UP + SWEEPS))
        return validate(_model(name, settings, vectors))

    return choose(noise, score)


def _model(name: str, settings: AlsConfig, vectors: Vectors) -> Model:
    queries, candidates = vectors
    return Model(name, asdict(settings), {"queries": queries, "candidates": candidates})


def _candidate_shards(
    rows: Interactions, config: AlsConfig, run: Run, before: Tensor | None = None
) -> Shards | None:
    """The division of the candidates, if they do not fit or those of a checkpoint are divided."""
    was_divided = before is not None and _is_divided(before, rows.n_candidates, run.comm)
    shards = (shards_of if was_divided else divide)(rows, config.width, run)
    if shards is not None and config.inner == "cholesky":
        raise UserError(
            "inner=cholesky needs all candidates on every process, and they exceed its memory",
            hint="use inner=cg, or a larger --candidate-memory",
        )
    return shards


def _is_divided(table: Tensor, n: int, comm: Comm) -> bool:
    """Whether each process has only its share of n rows."""
    return comm.size > 1 and sum_over_ranks(len(table), comm) == n


def _own_candidates(table: Tensor, n: int, run: Run, shards: Shards | None) -> Tensor:
    """The rows of a table of n candidates that this process needs.

    A checkpoint may have been divided in another way.
    """
    is_complete = not _is_divided(table, n, run.comm)
    if shards is None:
        return (table if is_complete else run.comm.gather(table)).to(run.device)
    return (table[shards.rows] if is_complete else table).to(run.device)


def _starting_candidates(
    o: Objective, config: AlsConfig, run: Run, shards: Shards | None = None
) -> Tensor:
    """Small random vectors, or those of the spectral RG2, scaled to the targets; [N, D].

    Vectors of both sides have the square root of a pair's target, pull / (extra + a), as length. If
    one side were too short, the regularisers would keep scores low until the lengths are equal.
    """
    n, n_candidates = sum_over_ranks(o.rows.n_queries, o.comm), o.rows.n_candidates
    pull, weight = (sum_over_ranks(one.sum(), o.comm) / n for one in (o.pull, o.query_weight))
    target: float = pull / (o.extra + weight)
    length = max(target, 0.0) ** 0.5
    if config.start == "random":
        scale = torch.tensor(0.1 * length / config.width**0.5)
        if shards is not None:
            return shards.start(config.width, run.rng, run.device).mul_(scale)
        drawn = torch.randn(n_candidates, config.width, generator=run.rng)
        return drawn.mul_(scale).to(run.device)
    exponents = {"exponent": QUERY_EXPONENT, "candidate_exponent": CANDIDATE_EXPONENT}
    separable = rg2(o.rows, 0.0, **exponents, comm=o.comm)
    matrix = Target(separable, run.memory_budget, shards)
    *_, last = decompose(matrix, config.width, run.rng, tolerance=TOLERANCE)
    assert last.vectors is not None
    candidates = factors(separable, last.values, last.vectors, 0.0, shards=shards).candidates
    among = SINGLE_PROCESS if shards is None else shards.comm
    size = among.sum(candidates.norm(dim=1).sum()).div(n_candidates).clamp(min=1e-30)
    return candidates.mul_(0.5 * length / size)


def folded(make: MakeProblem, config: AlsConfig, candidates: Tensor, rows: Interactions) -> Tensor:
    """Vectors of queries from their candidates: a query step without a start; [B, D]."""
    rows = weighted_pairs(rows.to(candidates.device), config.weights)
    half = make(rows, config, SINGLE_PROCESS).query_half
    return half_step(half, candidates, _solve(config, _FOLD_STEPS), None)


def _final_queries(
    make: MakeProblem, config: AlsConfig, last: Mapping[str, Tensor], rows: Interactions, run: Run
) -> Tensor:
    """Final vectors of the queries of a fit, whose candidates may be divided; [M, D]."""
    pairs = weighted_pairs(rows.to(run.device), config.weights)
    half = make(pairs, config, SINGLE_PROCESS).query_half
    shards = _candidate_shards(half.rows, config, run, last["candidates"])
    own = _own_candidates(last["candidates"], rows.n_candidates, run, shards)
    start = last["queries"].to(own.device)
    return half_step(half, own, _solve(config, _FINAL_STEPS), start, shards)


def _solve(config: AlsConfig, steps: int) -> Solve:
    return by_cholesky if config.inner == "cholesky" else by_conjugate_gradients(steps)
