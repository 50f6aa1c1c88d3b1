"""The loss of RG2 and RGx on the vectors of any encoder, its gradient and its curvature products.

With P [M, D] and Q [N, D] the vectors of the encoder, the loss is::

    ( sum_{(x, y) in R} -P_x . Q_y + 1/(2N) sum_x |I_x| sum_y (P_x . Q_y + 1)^2 ) / |R|
    + reg/2 |params|^2

RGx is RG2 of the scores less their mean over all candidates, so of the candidates less theirs. The
weighted forms add alpha sum_{(x, y) in R} (P_x . Q_y - 1)^2 / |R|, of the scores as they are.

No product needs the M x N scores: Gram matrices replace them. The regulariser is plain. The loss is
a mean over pairs, so a row of a table has about 1/M or 1/N of its weight; choose ``reg`` on that
scale.
"""

import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.func import jvp, vjp

from rankfold.kernels.sparse import pair_products, row_sums
from rankfold.types import Interactions

Vectors = tuple[Tensor, Tensor]  # of all queries [M, D], of all candidates [N, D]
Product = Callable[[Tensor], Tensor]
_ROW_BLOCK = 2**14  # rows summed in float64 at a time


class LossForm(NamedTuple):
    """RG2 or RGx, and the extra weight of a pair."""

    name: Literal["rg2", "rgx"] = "rg2"
    alpha: float = 0.0


RG2 = LossForm()


class RankingLoss(NamedTuple):
    """The loss to minimise."""

    encode: Callable[[Tensor], Vectors]  # of all parameters as one vector
    rows: Interactions  # its grades are not used
    columns: Interactions  # ``rows`` transposed
    reg: float
    form: LossForm = RG2


def gauss_newton_product(problem: RankingLoss, params: Tensor) -> Product:
    """The product with J^T H J, J the Jacobian of the scores and H = diag(a) their Hessian.

    For directions P', Q' of the vectors the scores move by P' Q^T + P Q'^T; with
    a_x = |I_x| / (N |R|) and A = diag(a), the gradients with respect to P and Q move by::

        A ( P' (Q^T Q) + P (Q'^T Q) )        Q (P'^T A P) + Q' (P^T A P)

    RGx has centred Q and Q'. The extra weight of a pair adds 2 alpha / |R| to its entry of H.
    """
    vectors, pull = _encoded(problem, params)
    (queries, candidates), rows = _seen(problem, vectors), problem.rows
    scale = 1 / (rows.n_candidates * max(rows.n_pairs, 1))
    weights = rows.counts().to(queries.dtype)[:, None] * scale
    weighted = weights * queries
    of_candidates, of_queries = candidates.T @ candidates, queries.T @ weighted

    def product(vector: Tensor) -> Tensor:
        moved = _pushed(problem.encode, params, vector)
        p, q = _seen(problem, moved)
        for_queries = weights * (p @ of_candidates) + weighted @ (q.T @ candidates)
        for_candidates = candidates @ (p.T @ weighted) + q @ of_queries
        total = _seen(problem, (for_queries, for_candidates))
        return pull(_plus(total, _extra_gauss_newton(problem, vectors, moved)))

    return product


def hessian_product(problem: RankingLoss, params: Tensor) -> Product:
    """The product with the Hessian of the loss on the encoder's vectors.

    It is the derivative of the gradient: through the gradients by P and Q, differentiated here by
    hand, and through the encoder's Jacobian, forward over reverse.
    """
    vectors, pull = _encoded(problem, params)
    queries, candidates = _seen(problem, vectors)
    rows, columns, n = problem.rows, problem.columns, problem.rows.n_candidates
    slopes = _value_and_gradient(problem, vectors)[1]
    errors = _pair_errors(problem, vectors)
    sizes, scale = rows.counts().to(queries.dtype)[:, None], 1 / max(rows.n_pairs, 1)
    weighted = sizes * queries
    of_candidates, of_queries = candidates.T @ candidates, queries.T @ weighted

    def gradient(at: Tensor) -> Tensor:
        return _encoded(problem, at)[1](slopes)

    def product(vector: Tensor) -> Tensor:
        moved = _pushed(problem.encode, params, vector)
        p, q = _seen(problem, moved)
        cross_q, cross_p = q.T @ candidates, p.T @ weighted
        by_queries = p @ of_candidates + queries @ (cross_q + cross_q.T) + q.sum(dim=0)
        by_queries = sizes / n * by_queries - row_sums(rows, q)
        by_candidates = q @ of_queries + candidates @ (cross_p + cross_p.T) + (sizes * p).sum(dim=0)
        by_candidates = by_candidates / n - row_sums(columns, p)
        total = _seen(problem, (scale * by_queries, scale * by_candidates))
        total = _plus(total, _extra_gauss_newton(problem, vectors, moved))
        total = _plus(total, _extra(problem, errors, moved))
        by_encoder: Tensor = _pushed(gradient, params, vector)
        return by_encoder + pull(total)

    return product


def loss_and_gradient(problem: RankingLoss, params: Tensor) -> tuple[Tensor, Tensor]:
    """The loss [] and its gradient [n]."""
    vectors, pull = _encoded(problem, params)
    value, slopes = _value_and_gradient(problem, vectors)
    gradient = pull(slopes) + problem.reg * params
    return value + problem.reg / 2 * dot(params, params), gradient


def _encoded(problem: RankingLoss, params: Tensor) -> tuple[Vectors, Callable[[Vectors], Tensor]]:
    """The vectors, and a function from gradients by them to the gradient by the parameters."""
    encoded = vjp(problem.encode, params)
    return encoded[0], lambda slopes: encoded[1](slopes)[0]


def _pushed(function: Callable[[Tensor], Any], at: Tensor, direction: Tensor) -> Any:
    """The derivative of the function along the direction."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit")  # raised by torch on first use
        return jvp(function, (at,), (direction,))[1]


def loss_at(problem: RankingLoss, params: Tensor) -> float:
    """The loss alone."""
    vectors = problem.encode(params)
    value = _value(problem.rows, *_seen(problem, vectors))[0] + _extra_value(problem, vectors)
    return float(value + problem.reg / 2 * dot(params, params))


def _value_and_gradient(problem: RankingLoss, vectors: Vectors) -> tuple[Tensor, Vectors]:
    """The loss without its regulariser, and its gradients by P and by Q."""
    seen = _seen(problem, vectors)
    value, *slopes = rg2_value_and_gradient(problem.rows, *seen, problem.columns)
    total = _seen(problem, (slopes[0], slopes[1]))
    total = _plus(total, _extra(problem, _pair_errors(problem, vectors), vectors))
    return value + _extra_value(problem, vectors), total


def _seen(problem: RankingLoss, vectors: Vectors) -> Vectors:
    """The vectors whose RG2 is the loss: for RGx, candidates less their mean.

    Centring is its own adjoint, so a gradient by centred candidates becomes that by candidates in
    the same way.
    """
    queries, candidates = vectors
    if problem.form.name == "rg2":
        return queries, candidates
    return queries, candidates - candidates.mean(dim=0)


def _pair_scores(problem: RankingLoss, queries: Tensor, candidates: Tensor) -> Vectors:
    """The scores of the pairs, in the order of rows and of columns."""
    of_rows = pair_products(problem.rows, queries, candidates)
    return of_rows, pair_products(problem.columns, candidates, queries)


def _pair_errors(problem: RankingLoss, vectors: Vectors) -> Vectors | None:
    """o_xy - 1 of the pairs, in the order of rows and of columns; None without extra weight."""
    if problem.form.alpha == 0:
        return None
    of_rows, of_columns = _pair_scores(problem, *vectors)
    return of_rows - 1, of_columns - 1


def _extra_value(problem: RankingLoss, vectors: Vectors) -> float:
    """The term of the extra weight: alpha sum_{(x, y) in R} (o_xy - 1)^2 / |R|."""
    if problem.form.alpha == 0:
        return 0.0
    errors = pair_products(problem.rows, *vectors) - 1
    return problem.form.alpha * dot(errors, errors) / max(problem.rows.n_pairs, 1)


def _extra(problem: RankingLoss, weights: Vectors | None, vectors: Vectors) -> Vectors | None:
    """2 alpha / |R| times the weighted sums of the other side's vectors over the pairs."""
    if weights is None:
        return None
    scale = 2 * problem.form.alpha / max(problem.rows.n_pairs, 1)
    of_rows, of_columns = weights
    by_queries = row_sums(problem.rows, vectors[1], of_rows)
    return scale * by_queries, scale * row_sums(problem.columns, vectors[0], of_columns)


def _extra_gauss_newton(problem: RankingLoss, vectors: Vectors, moved: Vectors) -> Vectors | None:
    """The part of the extra weight in the Gauss-Newton product, for moving the vectors."""
    if problem.form.alpha == 0:
        return None
    one = _pair_scores(problem, moved[0], vectors[1])
    other = _pair_scores(problem, vectors[0], moved[1])
    return _extra(problem, _plus(one, other), vectors)


def _plus(one: Vectors, other: Vectors | None) -> Vectors:
    return one if other is None else (one[0] + other[0], one[1] + other[1])


def rg2_value_and_gradient(
    rows: Interactions, queries: Tensor, candidates: Tensor, columns: Interactions | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """RG2 without its regulariser, a mean over pairs, and its gradients by P and by Q.

    With s = sum_y Q_y, W = diag |I_x| and h = sum_x |I_x| P_x, times |R|::

        by P_x: -sum_{y in I_x} Q_y + |I_x|/N (Q^T Q P_x + s)
        by Q_y: -sum_{x in U_y} P_x + 1/N (P^T W P Q_y + h)

    Args:
        rows: R, [M, N]; without pairs all results are 0.
        queries: P, [M, D].
        candidates: Q, [N, D].
        columns: R transposed; None: computed here.

    Returns:
        the value [] in float64, and gradients [M, D] and [N, D].
    """
    columns = rows.transpose() if columns is None else columns
    value, chosen, sums = _value(rows, queries, candidates)
    n, pairs = rows.n_candidates, max(rows.n_pairs, 1)
    gram, whole, weighted_gram, weighted_whole = (s.to(queries.dtype) for s in sums)
    shares = rows.counts().to(queries.dtype)[:, None] / n
    by_queries = shares * (queries @ gram + whole) - chosen
    by_candidates = (candidates @ weighted_gram + weighted_whole) / n - row_sums(columns, queries)
    return value, by_queries / pairs, by_candidates / pairs


def _value(
    rows: Interactions, queries: Tensor, candidates: Tensor
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """The value, R Q, and the sums Q^T Q, s, P^T W P and h; the sums in float64."""
    weighted = rows.counts().to(queries.dtype)[:, None] * queries
    gram, whole = _gram(candidates, candidates), candidates.sum(dim=0, dtype=torch.float64)
    weighted_gram, weighted_whole = _gram(queries, weighted), weighted.sum(0, dtype=torch.float64)
    chosen = row_sums(rows, candidates)
    squares = (gram * weighted_gram).sum() + 2 * whole @ weighted_whole
    total = squares / (2 * rows.n_candidates) - (queries * chosen).sum(dtype=torch.float64)
    value = (total + rows.n_pairs / 2) / max(rows.n_pairs, 1)
    return value, chosen, (gram, whole, weighted_gram, weighted_whole)


def _gram(left: Tensor, right: Tensor) -> Tensor:
    """left^T right in float64; [D, D]."""
    parts = zip(left.split(_ROW_BLOCK), right.split(_ROW_BLOCK), strict=True)
    return torch.stack([a.double().T @ b.double() for a, b in parts]).sum(dim=0)


def dot(x: Tensor, y: Tensor) -> float:
    return float((x * y).sum(dtype=torch.float64))
