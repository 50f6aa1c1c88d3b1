"""The quadratic objectives as their definitions write them, over dense matrices."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.objectives.implicit import ials, puresvd, wrmf
from rankfold.objectives.quadratic import Objective
from rankfold.objectives.rg import rg2, rg2_sampled, rg2_weighted, rgx, rgx_sampled
from rankfold.types import Interactions

REG, ALPHA, BACKGROUND, NEGATIVES = 0.03, 0.4, 0.2, 3


def random_rows(
    seed: int, m: int = 9, n: int = 7, *, graded: bool = False
) -> tuple[Interactions, Tensor]:
    """Random interactions and the same dense; the first query has none, the second has all."""
    rng = torch.Generator().manual_seed(seed)
    dense = (torch.rand(m, n, generator=rng) < 0.4).double()
    dense[0] = 0
    dense[1] = 1
    dense[2:, -1] = 0  # a candidate of one query
    if graded:
        dense *= torch.randint(1, 5, dense.shape, generator=rng)
    offsets = torch.cat([torch.zeros(1).long(), (dense > 0).sum(1).cumsum(0)])
    grades = dense[dense > 0].float() if graded else None
    return Interactions(offsets, dense.nonzero()[:, 1].int(), grades, n), dense


def squares(x: Tensor) -> Tensor:
    return (x**2).sum(dim=1)


def dense_rg2(
    exponent: float, beta: float, reg: float = REG
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def total(r: Tensor, p: Tensor, q: Tensor) -> Tensor:
        n, sizes = r.shape[1], r.sum(dim=1)
        b = r.sum(dim=0).clamp(min=1) ** (-2 * beta)
        known = sizes > 0
        power = sizes[known, None] ** (exponent - 0.5)
        targets = power * (n * r[known] - sizes[known, None])
        fit = (sizes[known, None] * b * ((p @ q.T)[known] - targets) ** 2).sum()
        return fit + reg * (b.sum() * sizes @ squares(p) + sizes.sum() * b @ squares(q))

    return total


def dense_weighted(
    kind: str, *, centred: bool = False, reg: float = REG, alpha: float = ALPHA, nu: float = 1.0
) -> Callable[..., Tensor]:
    def total(r: Tensor, p: Tensor, q: Tensor) -> Tensor:
        (m, n), sizes, o = r.shape, r.sum(dim=1), p @ q.T
        a = sizes / (2 * n)
        s = n * r / sizes.clamp(min=1)[:, None] - 1
        fit = (a[:, None] * (o - s) ** 2).sum() + alpha * (r * (o - 1) ** 2).sum()
        if centred:
            fit = fit - (a / n) @ o.sum(dim=1) ** 2
        half = sizes.sum() / (2 * n)
        if kind == "matrix":
            return fit + reg * (o**2).sum()
        of_queries, of_candidates = {
            "weighted": (sizes / 2 + alpha * n * (sizes > 0), (half + alpha * m).expand(n)),
            "frequency": ((sizes * (0.5 + alpha)) ** nu, (half + alpha * r.sum(dim=0)) ** nu),
            "plain": (torch.ones(m).double(), torch.ones(n).double()),
        }[kind]
        return fit + reg * (of_queries @ squares(p) + of_candidates @ squares(q))

    return total


def dense_sampled(r: Tensor, p: Tensor, q: Tensor) -> Tensor:
    (_, n), sizes, k = r.shape, r.sum(dim=1), NEGATIVES
    w_neg = (sizes * k / ((k + 1) * n))[:, None].expand_as(r)
    w_pos = 1 / (k + 1) + w_neg
    weights = torch.where(r > 0, w_pos, w_neg)
    targets = torch.where(r > 0, 1 / w_pos - 1, -1.0)
    fit = (weights * (p @ q.T - targets) ** 2).sum()
    return fit + REG * (sizes @ squares(p) + sizes.sum() / n * squares(q).sum())


def dense_sampled_rgx(r: Tensor, p: Tensor, q: Tensor) -> Tensor:
    (_, n), sizes, k, o = r.shape, r.sum(dim=1), NEGATIVES, p @ q.T
    own, whole = (r * o).sum(dim=1), o.sum(dim=1)
    pool = (r * o**2).sum(dim=1) + 2 * k / n * own * whole
    pool = pool + sizes * k / n * squares(o) + sizes * k * (k - 1) / n**2 * whole**2
    return dense_sampled(r, p, q) - pool.sum() / (k + 1) ** 2


def dense_wrmf(r: Tensor, p: Tensor, q: Tensor, reg: float = REG) -> Tensor:
    fit = ((1 + ALPHA * r) * (p @ q.T - (r > 0).double()) ** 2).sum()
    return fit + reg * (squares(p).sum() + squares(q).sum())


def dense_ials(r: Tensor, p: Tensor, q: Tensor) -> Tensor:
    (m, n), o = r.shape, p @ q.T
    fit = (r * (o - 1) ** 2).sum() + BACKGROUND * (o**2).sum()
    of_queries, of_candidates = BACKGROUND * n + r.sum(dim=1), BACKGROUND * m + r.sum(dim=0)
    return fit + REG * (of_queries @ squares(p) + of_candidates @ squares(q))


def dense_puresvd(r: Tensor, p: Tensor, q: Tensor) -> Tensor:
    return ((p @ q.T - r) ** 2).sum()


class Case(NamedTuple):
    name: str
    build: Callable[[Interactions], Objective]
    dense: Callable[[Tensor, Tensor, Tensor], Tensor]  # r, p, q
    graded: bool = False


def _weighted(kind: str) -> Callable[[Interactions], Objective]:
    return lambda rows: rg2_weighted(rows, REG, ALPHA, regulariser=kind)


def _rgx(kind: str) -> Callable[[Interactions], Objective]:
    return lambda rows: rgx(rg2_weighted(rows, REG, ALPHA, regulariser=kind))


SEPARABLE = [
    Case("rg2", lambda rows: rg2(rows, REG), dense_rg2(-0.5, 0.0)),
    Case(
        "rg2-exponents",
        lambda rows: rg2(rows, REG, exponent=-0.25, candidate_exponent=0.3),
        dense_rg2(-0.25, 0.3),
    ),
    Case("rg2-graded", lambda rows: rg2(rows, REG), dense_rg2(-0.5, 0.0), graded=True),
]
OBJECTIVES = [
    *SEPARABLE,
    *(
        Case(f"weighted-{kind}", _weighted(kind), dense_weighted(kind))
        for kind in ("weighted", "frequency", "plain", "matrix")
    ),
    Case("weighted-graded", _weighted("frequency"), dense_weighted("frequency"), graded=True),
    *(
        Case(f"rgx-{kind}", _rgx(kind), dense_weighted(kind, centred=True))
        for kind in ("weighted", "frequency", "plain", "matrix")
    ),
    Case("sampled", lambda rows: rg2_sampled(rows, REG, NEGATIVES), dense_sampled),
    Case("sampled-rgx", lambda rows: rgx_sampled(rows, REG, NEGATIVES), dense_sampled_rgx),
    Case("wrmf", lambda rows: wrmf(rows, REG, ALPHA), dense_wrmf),
    Case("wrmf-graded", lambda rows: wrmf(rows, REG, ALPHA), dense_wrmf, graded=True),
    Case("ials", lambda rows: ials(rows, REG, BACKGROUND), dense_ials),
    Case("ials-graded", lambda rows: ials(rows, REG, BACKGROUND), dense_ials, graded=True),
    Case("puresvd", puresvd, dense_puresvd),
]
