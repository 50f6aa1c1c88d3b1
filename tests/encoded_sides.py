"""Encoders of both sides, and losses of dense scores, for solvers of the ranking loss."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jacrev

from rankfold.solvers.newton_cg import (
    Params,
    unflatten,
)
from rankfold.solvers.ranking_loss import (
    RG2,
    LossForm,
    RankingLoss,
    Vectors,
)
from rankfold.types import Interactions, from_pairs

REG = 3e-3


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense_value(dense: Tensor, queries: Tensor, candidates: Tensor, form: LossForm = RG2) -> Tensor:
    """The loss by its definition, pair by pair, without the regulariser."""
    scores, n = queries @ candidates.T, dense.shape[1]
    total = torch.zeros((), dtype=torch.float64)
    for x, y in dense.nonzero():
        total = total - scores[x, y] + ((scores[x] + 1) ** 2).sum() / (2 * n)
        total = total + form.alpha * (scores[x, y] - 1) ** 2
        if form.name == "rgx":
            total = total - scores[x].sum() ** 2 / (2 * n**2)
    return total / dense.sum().clamp(min=1)


def tables(m: int, n: int, width: int = 3, scale: float = 1.0) -> Params:
    return {"p": scale * random(1, m, width), "q": scale * random(2, n, width)}


def unchanged(params: Params) -> Vectors:
    return params["p"], params["q"]


def mlp(m: int, n: int, width: int = 3) -> Params:
    return {
        "p": random(3, m, 4) / 2,
        "q": random(4, n, 4) / 2,
        "inner": random(5, 6, 4) / 2,
        "bias": random(6, 6) / 4,
        "outer": random(7, width, 6) / 2,
    }


def through_mlp(params: Params) -> Vectors:
    def tower(x: Tensor) -> Tensor:
        return torch.tanh(x @ params["inner"].T + params["bias"]) @ params["outer"].T

    return tower(params["p"]), tower(params["q"])


ENCODERS = [(tables, unchanged), (mlp, through_mlp)]


FORMS = [RG2, LossForm("rgx"), LossForm(alpha=0.3), LossForm("rgx", alpha=0.3)]


def problem_of(
    encode: Callable[[Params], Vectors],
    params: Params,
    rows: Interactions,
    reg: float = REG,
    form: LossForm = RG2,
) -> RankingLoss:
    return RankingLoss(lambda v: encode(unflatten(v, params)), rows, rows.transpose(), reg, form)


def hessian(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Reverse over reverse: forward mode warns of torch.jit on its first use."""
    matrix: Tensor = jacrev(jacrev(function))(at)
    return matrix


def planted(m: int = 60, n: int = 50, groups: int = 4) -> Interactions:
    """Queries mostly choose candidates of their own group."""
    rng = torch.Generator().manual_seed(8)
    of_query = torch.randint(groups, (m, 1), generator=rng)
    of_candidate = torch.randint(groups, (n,), generator=rng)
    chance = torch.where(of_query == of_candidate, 0.4, 0.02)
    x, y = (torch.rand(m, n, generator=rng) < chance).nonzero().T
    return from_pairs(x, y, None, (m, n))
