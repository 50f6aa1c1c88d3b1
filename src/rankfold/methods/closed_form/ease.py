"""EASE: the score of a candidate is a linear function of the query's choices; [steck2019].

With normalised queries and candidates, regularisation of each candidate, a relaxed diagonal
[moon2023] and a popularity discount. It stores and inverts an N x N matrix, the only method that
does.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.distributed.collectives import sum_over_ranks
from rankfold.errors import UserError
from rankfold.kernels.sparse import row_sums
from rankfold.methods.closed_form.all_scores import search
from rankfold.methods.closed_form.racing import describe_choice
from rankfold.methods.closed_form.settings_search import (
    DEFAULTS,
    EasePoint,
    SettingsSearch,
    System,
    system_of,
)
from rankfold.solvers import ridge
from rankfold.solvers.gram import gram, invert
from rankfold.solvers.progress import Work, part, stops
from rankfold.types import (
    Dataset,
    Interactions,
    Method,
    Model,
    Opened,
    Run,
    Step,
    history_tensors,
)

_SPARSE = 500  # a pair costs as much in N solutions as this many entries in an inverse
SEARCH_COLUMNS = 10_000  # the choice of the settings costs as much as so many exact solutions


class Config(Settings):
    """Settings of ``ease``.

    A setting of None is selected on validation. Without validation pairs ``DEFAULTS`` apply.
    """

    query_exponent: float | None = setting(
        None, at_least=-2, at_most=2, help="power of a query's size; the paper has 0"
    )
    candidate_exponent: float | None = setting(
        None, at_least=-2, at_most=2, help="power of a candidate's count; the paper has 0"
    )
    reg: float | None = setting(
        None, above=0, help="regularisation, relative to the mean of the Gram matrix's diagonal"
    )
    candidate_reg: float | None = setting(
        None, at_least=0, help="added for each candidate, relative to its own diagonal entry"
    )
    diagonal: float | None = setting(
        None,
        at_least=0,
        at_most=1,
        help="largest weight of a candidate for itself; the paper has 0",
    )
    discount: float | None = setting(
        None, at_least=-2, at_most=2, help="popularity discount: a power of a candidate's count"
    )
    path_queries: int = setting(400, at_least=1, help="validation queries that score the settings")
    largest: int = setting(
        50_000, help="largest number of candidates; time grows with N^3, memory with 4 N^2"
    )


def fit(data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """The weights of a candidate that best predict it from the query's other candidates.

    With R the pairs, |I_x| and c_y the sizes of queries and candidates, X = diag(|I|^e) R
    diag(c^-beta), G = X^T X, g its diagonal, t = reg mean(g) + candidate_reg g and P = (G +
    diag(t))^-1, candidate z has for a history the sum of W_yz over its candidates y::

        W_yz = -c_y^-beta P_yz gamma_z c_z^(beta - discount)        W_zz: see ``weights``
        gamma_z = max(t_z, (1 - diagonal) / P_zz)
    """
    rows = replace(data.split("train"), grades=None).to(run.device)
    n = rows.n_candidates
    if n > config.largest:
        raise UserError(
            f"ease needs a matrix of {n} x {n} numbers, {4 * n * n / 2**30:.1f} GiB",
            hint=f"up to {config.largest} candidates are allowed; fit rg2, or set largest={n}",
        )
    search = SEARCH_COLUMNS / (SEARCH_COLUMNS + _n_columns(rows))
    point, notes = yield from stops(part(_choose(data, rows, config, run), 0, search))
    work = part(weights(rows, point, run.memory_budget), search, 1)
    tensors = {"weights": (yield from stops(work)), **history_tensors(rows)}
    model = Model("ease", asdict(config) | point._asdict(), tensors, notes)
    yield Step(1, 0.0, model, dict, final=True)


def _n_columns(rows: Interactions) -> float:
    """How many columns of solutions cost as much as the inverse."""
    dense = rows.n_candidates**2 / (_SPARSE * max(1, rows.n_pairs))
    return min(1.0, dense) * rows.n_candidates


def _choose(
    data: Dataset, rows: Interactions, config: Config, run: Run
) -> Work[tuple[EasePoint, dict[str, object]]]:
    """The settings, chosen on validation where they are open, and notes on the choice."""
    values = {name: getattr(config, name) for name in EasePoint._fields}
    fixed = {name: value for name, value in values.items() if value is not None}
    if len(fixed) == len(values):
        return EasePoint(**fixed), {}
    judge = run.judge
    if judge is None or sum_over_ranks(len(judge.queries), run.comm) == 0:
        return DEFAULTS._replace(**fixed), {"chosen_by": "the defaults"}
    search = SettingsSearch(rows, data.given, fixed, config.path_queries, judge, run)
    point = yield from search.best()
    return point, search.notes(point)


def weights(rows: Interactions, point: EasePoint, memory_budget: int) -> Work[Tensor]:
    """W, [N, N]; nothing else of its size is held.

    On its diagonal is what minimises the squared error under the bound: (1 - gamma_z P_zz)
    c_z^-discount, which is 0 if ``diagonal`` is 0.
    """
    system = system_of(rows, rows.transpose(), point)
    inverse = yield from _inverse(system, memory_budget)
    own = inverse.diagonal().clone()
    columns = system.columns(point, own)
    inverse.mul_(system.gram.scale[:, None]).mul_(columns)
    power = system.counts ** (point.candidate_exponent - point.discount)
    kept = (1 + columns / power * own).clamp(min=0, max=point.diagonal)
    inverse.diagonal().copy_(kept * system.gram.scale * power)
    return inverse


def _inverse(system: System, memory_budget: int) -> Work[Tensor]:
    """Column by column where the pairs are few, else in place."""
    rows, scale = system.gram.rows, system.gram.scale
    if scale.device.type == "cpu" and _SPARSE * rows.n_pairs < rows.n_candidates**2:
        return (yield from ridge.inverse(system.gram, system.shift, memory_budget))
    matrix = yield from part(gram(rows, system.gram.weight, scale, memory_budget), 0, 0.2)
    matrix.diagonal().add_(system.shift)
    return (yield from part(invert(matrix), 0.2, 1))


def weights_reference(rows: Interactions, point: EasePoint) -> Tensor:
    """The same by the formula, in float64 on a dense matrix."""
    x = torch.zeros(rows.n_queries, rows.n_candidates, dtype=torch.float64)
    x[rows.query_of_pair().long(), rows.candidates.long()] = 1.0
    sizes, counts = x.sum(dim=1).clamp(min=1), x.sum(dim=0).clamp(min=1)
    beta = point.candidate_exponent
    x = sizes[:, None] ** point.query_exponent * x * counts**-beta
    g = x.T @ x
    shift = point.reg * g.diagonal().mean() + point.candidate_reg * g.diagonal()
    p = torch.linalg.inv(g + torch.diag(shift))
    gamma = torch.maximum(shift, (1 - point.diagonal) / p.diagonal())
    b = torch.eye(len(p), dtype=torch.float64) - p * gamma
    result: Tensor = counts[:, None] ** -beta * b * counts ** (beta - point.discount)
    return result


def scores(weights: Tensor, rows: Interactions) -> Tensor:
    """The scores of all candidates for some histories: the sums of their weights; [B, N]."""
    return row_sums(rows, weights)


def _parts(model: Model, rows: Interactions, ids: Tensor) -> Tensor:
    """What each pair of one history adds to the scores of the candidates ``ids``; [nnz, K]."""
    return model.tensors["weights"][rows.candidates.long()][:, ids]


def _open(model: Model) -> Opened:
    own = partial(scores, model.tensors["weights"])
    return Opened(search_histories=partial(search, own), scores=own, parts=partial(_parts, model))


METHOD = Method(
    summary="a linear model between candidates in closed form, up to 50,000 of them",
    config=Config,
    data_kind="interactions",
    fit=fit,
    open=_open,
    answers=("histories",),
    own_search=True,
    paper="steck2019",
    self_tuning=True,
    describe=partial(describe_choice, names=EasePoint._fields),
)
