"""Methods solved by alternating least squares: WRMF, iALS, weighted and sampled RG2 and RGx.

They differ in their objective alone. A sweep is a candidate step and a query step, each by a few
steps of conjugate gradients from where the last sweep ended, or exactly by Cholesky.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS, sum_over_ranks
from rankfold.errors import UserError
from rankfold.kernels.sparse import transposed
from rankfold.methods.closed_form.spectral import (
    CANDIDATE_EXPONENT,
    QUERY_EXPONENT,
    TOLERANCE,
    factors,
)
from rankfold.methods.pair_weights import training_rows, weighed
from rankfold.objectives.implicit import ials, wrmf
from rankfold.objectives.quadratic import Half, Objective, candidate_half, query_half, value
from rankfold.objectives.released import released_candidate_half, released_query_half
from rankfold.objectives.rg import rg2, rg2_sampled, rg2_weighted, rgx, rgx_sampled
from rankfold.solvers.als import half_step, sweep
from rankfold.solvers.shards import Shards, divide, shards_of
from rankfold.solvers.spectral import Target, decompose
from rankfold.solvers.systems import Solve, by_cholesky, by_conjugate_gradients
from rankfold.types import Comm, Dataset, Interactions, Method, Model, Run, Step

FOLD_STEPS = 20  # of conjugate gradients, for the vectors that are kept and for new queries


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeping:
    """What all of them have."""

    width: int = 64
    sweeps: int = 16  # at most; validation stops earlier
    inner: Literal["cg", "cholesky"] = "cg"
    steps: int = 2  # of conjugate gradients
    start: Literal["random", "spectral"] = "random"
    weights: Literal["none", "grade"] = "none"  # grade: as confidence weights

    def __post_init__(self) -> None:
        for name in ("width", "sweeps", "steps", "negatives"):
            if getattr(self, name, 1) < 1:
                raise UserError(f"{name} is {getattr(self, name)}", hint="it is at least 1")
        for name in ("reg", "alpha", "background", "nu"):
            if not 0 <= getattr(self, name, 0.0) < float("inf"):
                raise UserError(f"{name} is {getattr(self, name)}", hint="it is 0 or more")
        if not 0 <= getattr(self, "beta", 0.0) <= 1:
            raise UserError(f"beta is {getattr(self, 'beta', 0.0)}", hint="it lies between 0 and 1")
        if not 0 < getattr(self, "tolerance", 0.5) < 1:
            found = getattr(self, "tolerance", 0.5)
            raise UserError(f"tolerance is {found}", hint="it lies between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class IalsConfig(Sweeping):
    """A square for each pair, a small one for all."""

    reg: float = 0.003  # lambda
    background: float = 0.03  # a0, the weight of a pair that was not chosen
    nu: float = 1.0  # the regulariser's power of a row's weight; 0: plain


@dataclass(frozen=True, slots=True, kw_only=True)
class WrmfConfig(Sweeping):
    """Weight 1 + alpha for a pair, 1 for all others."""

    reg: float = 1.0  # lambda
    alpha: float = 40.0
    nu: float = 0.0  # the regulariser's power of a row's weight; 0: plain


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedConfig(Sweeping):
    """RG2 or RGx with extra weight on the pairs."""

    reg: float = 0.03  # lambda
    alpha: float = 0.02  # extra weight of a pair
    regulariser: Literal["frequency", "weighted", "plain", "matrix"] = "frequency"
    nu: float = 1.0  # the power of the frequency regulariser
    start: Literal["random", "spectral"] = "spectral"
    variant: Literal["exact", "released"] = "exact"  # released: as in the authors' code
    beta: float = 0.1  # of the released variant


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledConfig(Sweeping):
    """RG2 or RGx of the sampled softmax, in expectation."""

    reg: float = 0.03  # lambda
    negatives: int = 1000
    start: Literal["random", "spectral"] = "spectral"


class Problem(NamedTuple):
    """An objective and its two halves; a released variant's are not quite the objective's."""

    objective: Objective
    query_half: Half
    candidate_half: Callable[[Interactions], Half]  # of the transposed pairs


class Make(Protocol):
    """The problem of a method, for pairs and settings."""

    def __call__(self, rows: Interactions, config: Any, comm: Comm = SINGLE_PROCESS) -> Problem: ...


def exact(o: Objective) -> Problem:
    return Problem(o, query_half(o), lambda columns: candidate_half(o, columns))


def released(o: Objective, reg: float, beta: float) -> Problem:
    half = released_query_half(o, reg, beta)
    return Problem(o, half, lambda columns: released_candidate_half(o, columns, beta))


def make_ials(rows: Interactions, config: IalsConfig, comm: Comm = SINGLE_PROCESS) -> Problem:
    return exact(ials(rows, config.reg, config.background, config.nu, comm))


def make_wrmf(rows: Interactions, config: WrmfConfig, comm: Comm = SINGLE_PROCESS) -> Problem:
    return exact(wrmf(rows, config.reg, config.alpha, config.nu, comm))


def make_rg2_weighted(
    rows: Interactions, config: WeightedConfig, comm: Comm = SINGLE_PROCESS
) -> Problem:
    o = _weighted(rows, config, comm)
    return exact(o) if config.variant == "exact" else released(o, config.reg, config.beta)


def make_rgx(rows: Interactions, config: WeightedConfig, comm: Comm = SINGLE_PROCESS) -> Problem:
    o = rgx(_weighted(rows, config, comm))
    return exact(o) if config.variant == "exact" else released(o, config.reg, config.beta)


def _weighted(rows: Interactions, config: WeightedConfig, comm: Comm) -> Objective:
    how: dict[str, Any] = {"regulariser": config.regulariser, "nu": config.nu, "comm": comm}
    return rg2_weighted(rows, config.reg, config.alpha, **how)


def make_rg2_sampled(
    rows: Interactions, config: SampledConfig, comm: Comm = SINGLE_PROCESS
) -> Problem:
    return exact(rg2_sampled(rows, config.reg, config.negatives, comm))


def make_rgx_sampled(
    rows: Interactions, config: SampledConfig, comm: Comm = SINGLE_PROCESS
) -> Problem:
    if rows.grades is not None:
        raise UserError(
            "rgx-sampled knows no grades", hint="leave weights=none, or fit rg2-sampled"
        )
    return exact(rgx_sampled(rows, config.reg, config.negatives, comm))


def make_plain(rows: Interactions, config: Any, comm: Comm = SINGLE_PROCESS) -> Problem:
    return exact(rg2(rows, config.reg, comm=comm))


def method(name: str, make: Make, config: type[Sweeping], summary: str, paper: str) -> Method:
    """A method from its objective."""

    def fit(data: Dataset, settings: Sweeping, run: Run) -> Iterator[Step]:
        return alternate(name, make, data, settings, run)

    def fold_in(model: Model, rows: Interactions) -> Tensor:
        return folded(make, config(**model.config), model.tensors["candidates"], rows)

    def finalize(model: Model, rows: Interactions, run: Run) -> Model:
        settings = config(**model.config)
        queries = settled(make, settings, model.tensors["candidates"], rows, run)
        return replace(model, tensors={**model.tensors, "queries": queries})

    return Method(
        summary=summary,
        config=config,
        data_kind="interactions",
        fit=fit,
        fold_in=fold_in,
        paper=paper,
        finalize=finalize,
        distributed=True,
    )


def alternate(name: str, make: Make, data: Dataset, config: Sweeping, run: Run) -> Iterator[Step]:
    """Sweep until ``config.sweeps``, yielding after each; the query step comes last."""
    rows = training_rows(data, config.weights, run.device)
    problem = make(rows, config, run.comm)
    o, given = problem.objective, run.resume
    shards = divided(o.rows, config, run, None if given is None else given["candidates"])
    columns = o.rows  # shards have them by candidate
    if shards is None:
        columns = transposed(o.rows, run.memory_budget)
    halves = problem.query_half, problem.candidate_half(columns)
    solve = _solve(config, config.steps)
    if given is None:
        number, candidates = 0, starting_candidates(o, config, run, shards)
        queries = half_step(halves[0], candidates, _solve(config, FOLD_STEPS), None, shards)
    else:
        number, queries = int(given["number"]), given["queries"].to(run.device)
        candidates = here(given["candidates"], rows.n_candidates, run, shards)
    n_pairs = sum_over_ranks(rows.n_pairs, run.comm)
    tables = ("queries",) if shards is None else ("queries", "candidates")
    while number < config.sweeps:
        began = perf_counter()
        queries, candidates = sweep(halves, queries, candidates, solve, shards)
        loss = value(o, queries, candidates, shards) / max(1, n_pairs)
        tensors = {"queries": queries, "candidates": candidates}
        number += 1
        seconds, final = perf_counter() - began, number == config.sweeps
        model = Model(name, asdict(config), tensors)
        yield Step(number, loss, seconds, model, tensors.copy, final, divided=tables)


def divided(
    rows: Interactions, config: Sweeping, run: Run, before: Tensor | None = None
) -> Shards | None:
    """How candidates are divided: where they do not fit, or where those of a checkpoint are."""
    kept = before is not None and is_divided(before, rows.n_candidates, run.comm)
    shards = (shards_of if kept else divide)(rows, config.width, run)
    if shards is not None and config.inner == "cholesky":
        raise UserError(
            "inner=cholesky needs all candidates in every process, and they exceed its memory",
            hint="use inner=cg, or a larger --candidate-memory",
        )
    return shards


def is_divided(table: Tensor, n: int, comm: Comm) -> bool:
    """Whether each process has its share of n rows, and not all of them."""
    return comm.size > 1 and sum_over_ranks(len(table), comm) == n


def here(table: Tensor, n: int, run: Run, shards: Shards | None) -> Tensor:
    """Of a table of n candidates the rows that this process works with.

    A checkpoint may have been written where it was divided in another way.
    """
    whole = not is_divided(table, n, run.comm)
    if shards is None:
        return (table if whole else run.comm.gather(table)).to(run.device)
    return (table[shards.rows] if whole else table).to(run.device)


def starting_candidates(
    o: Objective, config: Sweeping, run: Run, shards: Shards | None = None
) -> Tensor:
    """Small random vectors, or those of the spectral RG2, as long as the targets ask for; [N, D].

    Both sides take the square root of a pair's target, pull / (extra + a): were one side too short,
    the regularisers would hold the scores down until the sides have the same length.
    """
    n, n_candidates = sum_over_ranks(o.rows.n_queries, o.comm), o.rows.n_candidates
    pull, weight = (sum_over_ranks(one.sum(), o.comm) / n for one in (o.pull, o.query_weight))
    wanted: float = pull / (o.extra + weight)
    length = max(wanted, 0.0) ** 0.5
    if config.start == "random":
        scale = torch.tensor(0.1 * length / config.width**0.5)
        if shards is not None:
            return shards.start(config.width, run.rng, run.device).mul_(scale)
        drawn = torch.randn(n_candidates, config.width, generator=run.rng)
        return drawn.mul_(scale).to(run.device)
    exponents = {"exponent": QUERY_EXPONENT, "candidate_exponent": CANDIDATE_EXPONENT}
    separable = rg2(o.rows, 0.0, **exponents, comm=o.comm)
    target = Target(separable, run.memory_budget, shards)
    passes = decompose(target, config.width, run.rng, tolerance=TOLERANCE)
    *_, found = passes
    assert found.vectors is not None
    candidates = factors(separable, found.values, found.vectors, 0.0, shards=shards).candidates
    among = SINGLE_PROCESS if shards is None else shards.comm
    size = among.sum(candidates.norm(dim=1).sum()).div(n_candidates).clamp(min=1e-30)
    return candidates.mul_(0.5 * length / size)


def folded(make: Make, config: Sweeping, candidates: Tensor, rows: Interactions) -> Tensor:
    """Vectors of queries from their candidates: the query step from nothing; [B, D]."""
    rows = weighed(rows.to(candidates.device), config.weights)
    half = make(rows, config).query_half
    return half_step(half, candidates, _solve(config, FOLD_STEPS), None)


def settled(
    make: Make, config: Sweeping, candidates: Tensor, rows: Interactions, run: Run
) -> Tensor:
    """The same for the queries of a fit, whose candidates may be divided; [M, D]."""
    half = make(weighed(rows.to(run.device), config.weights), config).query_half
    shards = divided(half.rows, config, run, candidates)
    own = here(candidates, rows.n_candidates, run, shards)
    return half_step(half, own, _solve(config, FOLD_STEPS), None, shards)


def _solve(config: Sweeping, steps: int) -> Solve:
    return by_cholesky if config.inner == "cholesky" else by_conjugate_gradients(steps)


IALS = method(
    "ials",
    make_ials,
    IalsConfig,
    "a square for each pair and a small one for all others, by alternating least squares",
    "rendle2022",
)
WRMF = method(
    "wrmf",
    make_wrmf,
    WrmfConfig,
    "weighted matrix factorisation with confidence 1 + alpha, by alternating least squares",
    "hu2008",
)
RG2_WEIGHTED = method(
    "rg2-weighted",
    make_rg2_weighted,
    WeightedConfig,
    "rg2 with extra weight on the pairs: weighted sweeps from the spectral solution",
    "rg2",
)
RGX = method(
    "rgx",
    make_rgx,
    WeightedConfig,
    "softmax to second order with its interaction term, exactly, extra weight on the pairs",
    "rg2",
)
RG2_SAMPLED = method(
    "rg2-sampled",
    make_rg2_sampled,
    SampledConfig,
    "rg2 of the sampled softmax, in expectation over the negatives",
    "rg2",
)
RGX_SAMPLED = method(
    "rgx-sampled",
    make_rgx_sampled,
    SampledConfig,
    "rgx of the sampled softmax, in expectation over the negatives",
    "rg2",
)
