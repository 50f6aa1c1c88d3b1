"""How fast ALS, Newton-CG and Adam reach the optimum of RG2; Theorem 26 and Table 2 of [rg2].

All three minimise the same function from the same start: RG2 with the weighted regulariser, whose
global minimum is known from one decomposition. Newton-CG and Adam see the vectors scaled by
sqrt(|I_x| / |D|) and sqrt(1 / N), which turns the regulariser into a plain one. Adam takes the
gradient of all pairs.

A gap is F - F*, relative to that at the start. ALS has a linear rate rho: the ratio of two gaps in
a row. Theorem 26 promises, for constants mu and L of the two half-problems and some M >= 0::

    rho <= 2 L (M + mu) / (mu^2 + 2 L (M + mu)),   at least 2 L / (mu + 2 L)

mu and L are the smallest and the largest curvature of a vector at the optimum.
"""

import math
import warnings
from collections.abc import Iterator
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import jvp

from rankfold.config import Settings, setting
from rankfold.methods.closed_form.spectral import factors
from rankfold.objectives.quadratic import Objective, value
from rankfold.objectives.rg import rg2
from rankfold.solvers.als import query_step
from rankfold.solvers.least_squares import by_cholesky
from rankfold.solvers.newton_cg import NewtonLimits, newton_cg
from rankfold.solvers.ranking_loss import RankingLoss, hessian_product, loss_and_gradient
from rankfold.solvers.spectral import Target, decompose
from rankfold.tasks.diagnose.figures import mean_of
from rankfold.tasks.diagnose.negatives import Vectors, minimise, starting_vectors
from rankfold.tasks.diagnose.result import RG2, Chart, Diagnosis, DiagnosisResult, Line
from rankfold.tasks.diagnose.subject import DiagnosedData
from rankfold.types import Interactions, Progress

_DIGITS = 1e-12  # gaps below, relative to the start, are rounding
_GOAL = 0.01  # a gap to reach, for the comparison
_POLISH = 4  # sweeps after the decomposition, which is in single precision
_BUDGET = 2**28


class ConvergenceConfig(Settings):
    queries: int = setting(1000, at_least=2, help="queries with training pairs, drawn by the seed")
    width: int = setting(16, at_least=1, help="length of the vectors")
    reg: float = setting(0.1, above=0, help="regularisation (lambda)")
    sweeps: int = setting(40, at_least=3, help="sweeps of alternating least squares")
    newton: int = setting(15, at_least=1, help="steps of Newton-CG")
    products: int = setting(50, at_least=1, help="most products with the curvature in a step")
    adam: int = setting(200, at_least=1, help="steps of Adam")
    lr: float = setting(1.0, above=0, help="rate of Adam, relative to the start, falling to 0")


class Passed(NamedTuple):
    """The value after a step, and the seconds since the start."""

    value: float
    seconds: float


def measure(
    config: ConvergenceConfig, subject: DiagnosedData, progress: Progress
) -> DiagnosisResult:
    """The gaps of the three solvers by step and by second."""
    train = subject.data.split("train")
    rows = train.select(subject.queries(config.queries, train))
    o = rg2(rows, config.reg)
    progress("convergence: the optimum", 0.0)
    best = optimum(o, config.width, subject.seed)
    start = starting_vectors(rows, config.width, subject.seed)
    runs = {"als": list(by_als(o, start, config.sweeps))}
    progress("convergence: newton-cg", 0.3)
    runs["newton-cg"] = list(by_newton(o, config.reg, start, config))
    progress("convergence: adam", 0.6)
    runs["adam"] = list(by_adam(o, config.reg, start, config))
    least = min([value(o, *best), *(one.value for run in runs.values() for one in run)])
    return _result(runs, least, curvatures(o, best))


def optimum(o: Objective, width: int, seed: int) -> Vectors:
    """The global minimiser: one decomposition, then a few sweeps in double precision."""
    rng = torch.Generator().manual_seed(seed)
    total = float(o.query_weight.sum()) * float(o.candidate_weight.sum())
    reg = float(o.candidate_reg[0] / (o.query_weight.sum() * o.candidate_weight[0]))
    *_, last = decompose(Target(o, _BUDGET), width, rng, tolerance=1e-5)
    assert last.vectors is not None
    candidates = factors(o, last.values, last.vectors, reg * total**0.5).candidates.double()
    queries = query_step(o, candidates, by_cholesky, None)
    return minimise(o, (queries, candidates), _POLISH)


def by_als(o: Objective, start: Vectors, sweeps: int) -> Iterator[Passed]:
    """The start, then every sweep with exact solves."""
    yield Passed(value(o, *start), 0.0)
    seconds, began = 0.0, perf_counter()
    seen: list[Passed] = []

    def note(vectors: Vectors) -> None:
        nonlocal seconds, began
        seconds += perf_counter() - began
        seen.append(Passed(value(o, *vectors), seconds))
        began = perf_counter()

    minimise(o, start, sweeps, note)
    yield from seen


def by_newton(
    o: Objective, reg: float, start: Vectors, config: ConvergenceConfig
) -> Iterator[Passed]:
    """The start, then every step of Newton's method with the Hessian."""
    scales = scales_of(o.rows)
    params = {"queries": start[0] * scales[0], "candidates": start[1] * scales[1]}
    yield Passed(value(o, *start), 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch's own imports
        jvp(torch.sin, (torch.ones(1),), (torch.ones(1),))  # the first call imports for seconds
    seconds, began = 0.0, perf_counter()
    steps = newton_cg(
        lambda p: (p["queries"] / scales[0], p["candidates"] / scales[1]),
        params,
        o.rows,
        reg,
        steps=config.newton,
        curvature=hessian_product,
        limits=NewtonLimits(steps=config.products),
    )
    for one in steps:
        seconds += perf_counter() - began
        vectors = one.params["queries"] / scales[0], one.params["candidates"] / scales[1]
        yield Passed(value(o, *vectors), seconds)
        began = perf_counter()


def by_adam(
    o: Objective, reg: float, start: Vectors, config: ConvergenceConfig
) -> Iterator[Passed]:
    """The start, then every step of Adam on the gradient of all pairs."""
    scales = scales_of(o.rows)
    flat = torch.cat([(v * s).flatten() for v, s in zip(start, scales, strict=True)])
    shapes = [vectors.shape for vectors in start]

    def vectors_of(params: Tensor) -> Vectors:
        parts = params.split([shape.numel() for shape in shapes])
        queries, candidates = (
            part.view(shape) / scale
            for part, shape, scale in zip(parts, shapes, scales, strict=True)
        )
        return queries, candidates

    problem = RankingLoss(vectors_of, o.rows, o.rows.transpose(), reg)
    parameter = torch.nn.Parameter(flat.clone())
    size = float(flat.abs().mean())  # so that the rate does not depend on the scale of vectors
    optimiser = torch.optim.Adam([parameter], lr=config.lr * size)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, config.adam)
    yield Passed(value(o, *start), 0.0)
    seconds = 0.0
    for _ in range(config.adam):
        began = perf_counter()
        _, parameter.grad = loss_and_gradient(problem, parameter.detach())
        optimiser.step()
        schedule.step()
        seconds += perf_counter() - began
        yield Passed(value(o, *vectors_of(parameter.detach())), seconds)


def scales_of(rows: Interactions) -> Vectors:
    """sqrt(|I_x| / |D|) [M, 1], and sqrt(1 / N)."""
    sizes = rows.counts().double().clamp(min=1)[:, None]
    return (sizes / rows.n_pairs).sqrt(), torch.tensor(rows.n_candidates**-0.5).double()


def curvatures(o: Objective, best: Vectors) -> tuple[float, float]:
    """Mu and L: the least and the largest eigenvalue of a vector's half-problem, at the optimum.

    A query's matrix is 2 (|I_x| Q^T Q + reg_x I), a candidate's 2 (P^T W P + reg_y I).
    """
    queries, candidates = best
    of_candidates = torch.linalg.eigvalsh(candidates.T @ candidates)
    of_queries = torch.linalg.eigvalsh(queries.T @ (queries * o.query_weight[:, None]))
    kept = o.query_weight > 0
    sizes, reg = o.query_weight[kept], o.query_reg[kept]
    low = [float((sizes * of_candidates[0].clamp(min=0) + reg).min())]
    high = [float((sizes * of_candidates[-1] + reg).max())]
    low.append(float(of_queries[0].clamp(min=0) + o.candidate_reg.min()))
    high.append(float(of_queries[-1] + o.candidate_reg.max()))
    return 2 * min(low), 2 * max(high)


def ratios_of(gaps: list[float]) -> list[float]:
    """Ratios of gaps in a row, in the second half of the steps above rounding."""
    known = [one for one in gaps if one > _DIGITS]
    tail = known[len(known) // 2 :]
    return [b / a for a, b in pairwise(tail)]


def _result(
    runs: dict[str, list[Passed]], least: float, curvature: tuple[float, float]
) -> DiagnosisResult:
    whole = max(runs["als"][0].value - least, 1e-300)
    gaps = {name: [(one.value - least) / whole for one in run] for name, run in runs.items()}
    ratios = ratios_of(gaps["als"]) or [0.0]
    logs = mean_of(torch.tensor(ratios, dtype=torch.float64).clamp(min=1e-300).log())
    rate = logs.each(math.exp)
    mu, smooth = curvature
    promised = 2 * smooth / (mu + 2 * smooth)
    steps = {
        name: next((i for i, g in enumerate(one) if g <= _GOAL), None) for name, one in gaps.items()
    }
    seconds = {
        name: None if step is None else runs[name][step].seconds for name, step in steps.items()
    }
    figures: dict[str, Any] = {
        "contraction of ALS per sweep": rate,
        "the least that Theorem 26 can promise": promised,
        "condition number L / mu of the half-problems": smooth / mu,
    }
    for name, one in gaps.items():
        figures[f"{name}: relative gap at the end"] = max(one[-1], 0.0)
        step, time = steps[name], seconds[name]
        if step is not None and time is not None:
            figures[f"{name}: steps to a gap of {_GOAL:g}"] = float(step)
            figures[f"{name}: seconds to a gap of {_GOAL:g}"] = time
    reached = {name: time for name, time in seconds.items() if time is not None}
    fastest = min(reached, key=lambda name: reached[name]) if reached else None
    follows = (
        f"ALS multiplies the gap by {rate.value:.2g} per sweep, where Theorem 26 promises no less "
        f"than {promised:.6g}: take sweeps from this curve and not from the theorem. "
        + (
            f"{fastest} is first at a gap of {_GOAL:g}"
            if fastest
            else f"No solver reaches a gap of {_GOAL:g}"
        )
        + "; rg2-plain needs none of them, its decomposition is the optimum."
    )
    details = {
        "least": least,
        "promised": promised,
        "gaps": {name: [max(g, 0.0) for g in one] for name, one in gaps.items()},
        "seconds": {name: [one.seconds for one in run] for name, run in runs.items()},
    }
    shown = {name: [max(g, _DIGITS) for g in one] for name, one in gaps.items()}
    by_step = [Line.through(name, range(len(one)), one) for name, one in shown.items()]
    by_second = [
        Line.through(name, [one.seconds for one in runs[name]], shown[name]) for name in shown
    ]
    unit = "gap to the optimum, relative to the start"
    charts = {
        "convergence": Chart("Gap by sweep or step", "sweeps or steps", unit, by_step, log="y"),
        "convergence-seconds": Chart("Gap by time", "seconds", unit, by_second, log="y"),
    }
    return DiagnosisResult.of(figures, follows, details, charts)


DIAGNOSIS = Diagnosis(
    "How fast do ALS, Newton-CG and Adam reach the optimum of RG2 here?", RG2, measure
)
