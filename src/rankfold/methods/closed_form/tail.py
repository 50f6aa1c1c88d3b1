"""The tail of ``rg2``: what a decomposition of small rank leaves out, as sparse scores.

With R the pairs, |I_x| and c_y the sizes of a query and of a candidate, two exponents a and b and
the normalised co-occurrences::

    G = diag(c^-b) R^T diag(|I_x|^-2a) R diag(c^-b)

each candidate y keeps the ``neighbours`` z with its largest entries. Their entries are replaced by
the weights F of a regression on the neighbours (``solvers/local_regression.py``), and the tail adds
to the score of candidate z::

    sum_{y in I_x} r_xy c_y^-b F_yz c_z^b

Without the cut this is the history times a function of the spectrum of G that grows with sigma^2
and is bounded, but for its diagonal. The weight of the tail is relative: at 1, its scores have the
same mean square as those of the factors.
"""

from collections.abc import Mapping
from math import sqrt

import torch
from torch import Tensor

from rankfold.distributed.collectives import sum_over_ranks
from rankfold.kernels.threads import scratch
from rankfold.methods.closed_form.racing import evenly
from rankfold.objectives.rg import row_sizes
from rankfold.solvers.local_regression import regressed
from rankfold.solvers.neighbours import Neighbours, gram_diagonal, neighbours, thinned
from rankfold.solvers.shards import Shards
from rankfold.types import Comm, Interactions, Run

QUERY_EXPONENT, CANDIDATE_EXPONENT = 0.375, 0.425  # a and b
_DISCOUNT = 0.15  # at which mean squares are compared
_SPREAD_QUERIES = 512  # whose scores are compared
_SPREAD_BLOCK = 64  # queries at a time


def tail_neighbours(
    rows: Interactions, counts: Tensor, most: int, reg: float, run: Run
) -> Neighbours:
    """c_y^-b F_yz c_z^b for the ``most`` strongest neighbours z of each candidate y.

    ``counts`` [N] are the candidates' sizes, at least 1. ``reg`` is relative to the mean of the
    diagonal of G. Each of several processes gets the rows of its share of the candidates.
    """
    fewer, more = thinned(rows, torch.Generator().manual_seed(run.rng.initial_seed()), run.comm)
    weight = row_sizes(rows).clamp(min=1e-30) ** (-2 * QUERY_EXPONENT)
    scale, budget = counts**-CANDIDATE_EXPONENT, {"memory_budget": run.memory_budget}
    table = neighbours(fewer, more * weight, scale, most, comm=run.comm, **budget)
    diagonal = gram_diagonal(rows, weight, scale, run.comm)
    table = regressed(table, diagonal, reg * float(diagonal.mean()), comm=run.comm, **budget)
    own = scale[slice(*run.comm.share(len(scale)))]
    ratio = (own[:, None] / scale[table.ids.long()]).float()
    return Neighbours(table.ids, table.weights * ratio)


def extra_scores(table: Neighbours, histories: Interactions, slope: Tensor) -> Interactions:
    """The scores to add for each history: its candidates' neighbours with their weights.

    ``slope`` [M] multiplies the scores of a history. A candidate may occur several times in a row.
    """
    chosen, length = histories.candidates.long(), table.ids.shape[1]
    factor = slope.float().repeat_interleave(histories.counts(), output_size=len(chosen))
    values = table.weights[chosen] * (factor * histories.all_grades())[:, None]
    return Interactions(
        histories.offsets * length, table.ids[chosen].flatten(), values.flatten(), len(table.ids)
    )


def extra_parts(table: Neighbours, rows: Interactions, slope: Tensor, ids: Tensor) -> Tensor:
    """What each pair of one history adds to the tail's scores of ``ids``; [nnz, K]."""
    chosen = rows.candidates.long()
    same = table.ids[chosen][:, :, None] == ids
    weights = torch.where(same, table.weights[chosen][:, :, None], 0.0).sum(dim=1)
    return weights * (slope.float() * rows.all_grades())[:, None]


def dense_scores(
    table: Neighbours, histories: Interactions, shards: Shards | None = None
) -> Tensor:
    """The tail of each history, before its weight and the discount; [M, N].

    With ``shards`` the table and the histories have this process's candidates, and so do the
    scores. The histories are of the queries of all processes.
    """
    n = len(table.ids) if shards is None else shards.n
    extra = extra_scores(table, histories, torch.ones_like(histories.offsets[1:]))
    places = extra.query_of_pair().long() * n + extra.candidates.long()
    scores = scratch("tail", (histories.n_queries, n), table.weights).zero_()
    assert extra.grades is not None
    scores.view(-1).scatter_add_(0, places, extra.grades)
    return scores if shards is None else shards.comm.scatter_sum(scores.T.contiguous()).T


class Spread:
    """The mean squares of the scores of factors and of the tail, over some training queries."""

    def __init__(
        self, rows: Interactions, counts: Tensor, comm: Comm, shards: Shards | None = None
    ) -> None:
        every = torch.arange(rows.n_queries, device=rows.offsets.device)
        self.queries, self.comm = evenly(every, _SPREAD_QUERIES, comm), comm
        self.rows, self.shards = rows.select(self.queries), shards
        scale = (counts**-_DISCOUNT).float()
        self.scale = scale if shards is None else scale[shards.rows]

    def of_tail(self, table: Neighbours) -> float:
        rows, total = self.rows if self.shards is None else self.shards.seen(self.rows), 0.0
        for start in range(0, rows.n_queries, _SPREAD_BLOCK):
            part = rows.part(start, min(start + _SPREAD_BLOCK, rows.n_queries))
            scores = dense_scores(table, part, self.shards).mul(self.scale)
            total += float(scores.square_().sum(dtype=torch.float64))
        return sum_over_ranks(total, self.comm)

    def of_factors(self, products: Tensor, vectors: Tensor, root: Tensor) -> Tensor:
        """Row i, column j: the part of components i and j in the mean square; [K, K].

        With ``products`` [M, K] of the queries and ``vectors`` [N, K] the scores are products
        (root vectors)^T, ``root`` [N]. Shrunk components have shrunk parts. With shards there are
        the rows of this process's candidates.
        """
        scaled = vectors * (root.float() * self.scale)[:, None]
        here = self.comm.sum((products.T @ products).double())
        there = (scaled.T @ scaled).double()
        return here * (there if self.shards is None else self.comm.sum(there))


def relative_weight(parts: Tensor, shrunk: Tensor, tail: float) -> float:
    """The factor that gives the tail the mean square of factors with ``shrunk`` [r] components."""
    size = len(shrunk)
    total = float(shrunk.double() @ parts[:size, :size] @ shrunk.double())
    return sqrt(max(total, 0.0) / tail) if tail > 0 else 0.0


def weighted(table: Neighbours, weight: float, discount: Tensor) -> dict[str, Tensor]:
    """The tensors of a model: rows of the table with final weights.

    ``discount`` [N] divides scores.
    """
    weights = table.weights * weight / discount.float()[table.ids.long()]
    return {"neighbours": table.ids, "neighbour_weights": weights}


def from_tensors(tensors: Mapping[str, Tensor]) -> Neighbours:
    return Neighbours(tensors["neighbours"], tensors["neighbour_weights"])
