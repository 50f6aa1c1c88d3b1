"""RG2: the softmax ranking loss made quadratic and solved in closed form; [rg2]."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from time import perf_counter

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.kernels.sparse import csr
from rankfold.objectives.rg2 import rg2_value
from rankfold.solvers.als import candidate_step, query_step
from rankfold.types import Dataset, Interactions, Method, Model, Run, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainConfig:
    """The paper's objective, by alternating least squares."""

    width: int = 64
    reg: float = 0.3  # lambda
    sweeps: int = 30  # at most; validation stops earlier

    def __post_init__(self) -> None:
        for name in ("width", "sweeps"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}", hint="it is at least 1")
        if not 0 <= self.reg < float("inf"):
            raise UserError(f"reg is {self.reg}", hint="reg is 0 or more, usually .001 to 1")


def fit_plain(data: Dataset, config: PlainConfig, run: Run) -> Iterator[Step]:
    """Alternate the exact candidate and query steps, yielding after each sweep.

    The query step comes last, so that a fitted row is what ``fold_in`` gives for its history.
    """
    rows = data.split("train").to(run.device)
    matrix, transposed = csr(rows), csr(rows.transpose())
    if run.resume is None:
        candidates = torch.randn(rows.n_candidates, config.width, generator=run.rng).to(run.device)
        start = 0
    else:
        candidates, start = run.resume["candidates"].to(run.device), int(run.resume["number"])
    queries = query_step(rows, matrix @ candidates, candidates, config.reg)
    for number in range(start + 1, config.sweeps + 1):
        began = perf_counter()
        candidates = candidate_step(rows, transposed @ queries, queries, config.reg)
        sums = matrix @ candidates
        queries = query_step(rows, sums, candidates, config.reg)
        loss = rg2_value(rows, sums, queries, candidates, config.reg)
        yield _step(number, loss, perf_counter() - began, queries, candidates, config)


def _step(
    number: int,
    loss: float,
    seconds: float,
    queries: Tensor,
    candidates: Tensor,
    config: PlainConfig,
) -> Step:
    tensors = {"queries": queries, "candidates": candidates}
    model = Model("rg2-plain", asdict(config), tensors)
    final = number == config.sweeps
    return Step(number, loss, seconds, model, lambda: {"candidates": candidates}, final)


def fold_in(model: Model, rows: Interactions) -> Tensor:
    """Vectors of new queries from their candidates, in closed form; [B, D]."""
    candidates = model.tensors["candidates"]
    return query_step(rows, csr(rows) @ candidates, candidates, model.config["reg"])


PLAIN = Method(
    summary="softmax ranking loss to second order, by alternating least squares",
    config=PlainConfig,
    data_kind="interactions",
    fit=fit_plain,
    fold_in=fold_in,
    paper="rg2",
)
