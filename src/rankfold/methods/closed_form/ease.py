"""EASE: the score of a candidate is a linear function of the query's choices; [steck2019].

A strong baseline for few candidates. It stores and inverts an N x N matrix, the only method that
does.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Self

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.errors import UserError
from rankfold.kernels.sparse import blocks, row_sums
from rankfold.kernels.topk import top_k
from rankfold.methods.noise import noise_of
from rankfold.types import (
    Comm,
    Dataset,
    Interactions,
    Method,
    Model,
    Opened,
    Range,
    Run,
    Step,
    TopK,
    history_tensors,
)

QUERY_BLOCK, PAIR_BLOCK = 1024, 2**22  # of a block
_REG_BY_NOISE = 2.4  # docs/decisions/0027-defaults-from-the-data.md


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Settings):
    """Settings of ``ease``."""

    reg: float | None = setting(
        None, above=0, help="regularisation; none: by the noise of the pairs"
    )
    largest: int = setting(20_000, help="most candidates; time grows with N^3, memory with 4 N^2")

    def for_data(self, rows: Interactions, comm: Comm) -> Self:
        """With the square of the largest singular value of noise as reg, if open.

        The noise of a random matrix is largest in its largest columns. So their mean size is taken
        over the pairs.
        """
        if self.reg is not None:
            return self
        noise, counts = noise_of(rows, comm), rows.candidate_counts().double()
        columns = float((counts**2).sum()) / noise.n_pairs
        largest = columns**0.5 + (noise.n_pairs / noise.n_queries) ** 0.5
        reg = _REG_BY_NOISE * (noise.strength * noise.lost * max(1.0, largest)) ** 2
        return replace(self, reg=reg)


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """The weights B, with a zero diagonal, that best predict R from itself.

    With G = R^T R + reg I and P = G^-1: B_ij = -P_ij / P_jj, B_jj = 0.
    """
    rows = data.split("train").to(run.device)
    config = config.for_data(rows, run.comm)
    n = rows.n_candidates
    if n > config.largest:
        raise UserError(
            f"ease needs a matrix of {n} x {n} numbers, {4 * n * n / 2**30:.1f} GiB",
            hint=f"up to {config.largest} candidates are allowed; fit rg2, or set largest={n}",
        )
    gram = torch.zeros(n, n, device=run.device)
    for start, stop in blocks(rows, QUERY_BLOCK, PAIR_BLOCK):
        part = _dense(rows.part(start, stop))
        gram.addmm_(part.T, part)
    assert config.reg is not None
    gram.diagonal().add_(config.reg)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
    del gram
    weights = inverse.div_(-inverse.diagonal().clone())
    weights.fill_diagonal_(0.0)
    kept = history_tensors(replace(rows, grades=None))
    model = Model("ease", asdict(config), {"weights": weights, **kept})
    yield Step(1, 0.0, model, dict, final=True)


def search(weights: Tensor, rows: Interactions, k: int, exclude: Interactions | None) -> TopK:
    """The k best candidates for each history: the sum of the weights of what it chose."""
    parts = [
        _search(weights, rows.part(a, b), k, None if exclude is None else exclude.part(a, b))
        for a, b in blocks(rows, QUERY_BLOCK, PAIR_BLOCK)
    ]
    width = min(k, rows.n_candidates)
    none = TopK(torch.empty(0, width, dtype=torch.int64), torch.empty(0, width))
    ids, scores = zip(*(parts or [none]), strict=True)
    return TopK(torch.cat(ids), torch.cat(scores))


def _search(weights: Tensor, rows: Interactions, k: int, exclude: Interactions | None) -> TopK:
    scores = row_sums(rows, weights)
    if exclude is not None:
        scores[exclude.query_of_pair().long(), exclude.candidates.long()] = -torch.inf
    return top_k(scores, k)


def _dense(rows: Interactions) -> Tensor:
    matrix = torch.zeros(rows.n_queries, rows.n_candidates, device=rows.offsets.device)
    matrix[rows.query_of_pair().long(), rows.candidates.long()] = 1.0
    return matrix


METHOD = Method(
    summary="a linear model between candidates in closed form, up to 20,000 of them",
    config=Config,
    data_kind="interactions",
    fit=fit,
    open=lambda model: Opened(search_histories=partial(search, model.tensors["weights"])),
    answers=("histories",),
    own_search=True,
    paper="steck2019",
    space={"reg": Range(0.1, 3000.0, log=True)},
)
