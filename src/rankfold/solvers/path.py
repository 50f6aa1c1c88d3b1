"""All ranks, thresholds and discounts of a spectral solution, scored without solving again.

With T' = U diag(sigma) V^T the scores of rank r at threshold tau are A_sigma - tau A_1, where
A_sigma = sum_{j <= r} sigma_j u_j v_j^T and A_1 = sum_{j <= r} u_j v_j^T: two blocks that grow
with r, whatever the number of thresholds. The tail, a sparse matrix of scores, is added with its
weight. A discount is a factor of each candidate's column.

``path_scores`` gives the scores of all candidates. Many points are compared on a ``Shortlist``, the
best candidates of each query at a few points far apart: a further point costs next to nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.kernels.threads import scratch
from rankfold.kernels.topk import LARGEST_BLOCK
from rankfold.types import Interactions

MAX_QUERIES = 128  # scored at a time; fewer where memory is short
_GATHERED = 32  # queries whose candidates' vectors are copied at a time: they fit the cache


class PathPoint(NamedTuple):
    """A solution on a path."""

    place: int  # of its decomposition, if there are several
    rank: int
    threshold: float  # of the singular value at that rank
    discount: float  # exponent of the candidates' counts
    tail_weight: float = 0.0  # relative to the scores of the factors
    popularity: float = 0.0  # the same of the candidates' counts


class Tail(NamedTuple):
    """Scores to add to those of the factors."""

    scores: Tensor  # [M, N], before the discount
    weights: Mapping[PathPoint, float]  # of each point
    scales: Mapping[float, Tensor]  # a factor per candidate for each discount, [N]


class Mix(NamedTuple):
    """Factors of what is added to the scores of the factors at a point."""

    tail: float
    popularity: float


class Shortlist(NamedTuple):
    """Candidates of some queries, and the parts of their scores that all decompositions share.

    Each [B, P]; P differs between the blocks of queries.
    """

    ids: Tensor  # ascending, then -1
    tail: Tensor | None
    logs: Tensor  # of the candidates' counts

    def scores(self, factors: Tensor, point: PathPoint, tau: float, mix: Mix) -> Tensor:
        """The scores at a point, from ``factors_of`` at its rank; [B, P]."""
        sigma, one = factors
        scores = torch.add(sigma, one, alpha=-tau)
        if self.tail is not None and mix.tail > 0:
            scores.add_(self.tail, alpha=mix.tail)
        scores.mul_(torch.exp(self.logs * -point.discount))
        if mix.popularity > 0:
            scores.add_(popularity(self.logs.exp()), alpha=mix.popularity)
        return scores


def popularity(counts: Tensor) -> Tensor:
    """What a candidate's popularity adds to its scores, before its weight."""
    return counts.sqrt()


def shortlist(ids: Tensor, logs: Tensor, tail: Tensor | None, least: int) -> Shortlist:
    """The distinct ones of some candidates.

    Args:
        ids: of the candidates, [B, P]; -1 where there are fewer.
        logs: of the candidates' counts, [N].
        tail: its scores, [B, N].
        least: columns of the result, if there are so many.
    """
    none = len(logs)
    ids = ids.where(ids >= 0, none).sort(dim=1).values
    ids[:, 1:].masked_fill_(ids[:, 1:] == ids[:, :-1], none)
    ids = ids.sort(dim=1).values
    longest = max(int((ids < none).sum(dim=1).max()), min(least, ids.shape[1]))
    ids = ids[:, :longest].where(ids[:, :longest] < none, -1)
    places = ids.clamp(min=0)
    return Shortlist(ids.int(), None if tail is None else tail.gather(1, places), logs[places])


def factors_of(
    lists: Shortlist,
    products: Tensor,
    values: Tensor,
    vectors: Tensor,
    ranks: Sequence[int],
    scales: Tensor,
) -> dict[int, Tensor]:
    """A_sigma and A_1 of the candidates at each rank, [2, B, P]; A_sigma is -inf for id -1.

    Args:
        lists: the candidates.
        products: T' V for the queries, up to a factor per query; [B, K].
        values: sigma, [K], descending.
        vectors: V, [N, K].
        ranks: ascending.
        scales: a factor per candidate, [N].
    """
    ids = lists.ids.long().clamp(min=0)
    both = torch.stack([products, products / values], dim=1)
    factors = {rank: vectors.new_empty(2, *ids.shape) for rank in ranks}
    scale = scales[ids]
    for first in range(0, len(ids), _GATHERED):
        some = slice(first, first + _GATHERED)
        rows = scratch("rows", (ids[some].numel(), vectors.shape[1]), vectors)
        torch.index_select(vectors, 0, ids[some].flatten(), out=rows)
        rows = rows.view(*ids[some].shape, -1)
        total, done = both.new_zeros(len(rows), 2, ids.shape[1]), 0
        for rank in ranks:
            new = slice(done, rank)
            total, done = total + torch.bmm(both[some, :, new], rows[:, :, new].mT), rank
            torch.mul(total.transpose(0, 1), scale[some], out=factors[rank][:, some])
    missing = lists.ids < 0
    for sigma, _ in factors.values():
        sigma.masked_fill_(missing, -torch.inf)
    return factors


def path_scores(
    products: Tensor,
    values: Tensor,
    vectors: Tensor,
    points: Sequence[PathPoint],
    scales: Mapping[float, Tensor],
    seen: Interactions,
    most: int,
    tail: Tail | None = None,
) -> Iterator[tuple[PathPoint, Tensor]]:
    """The scores at each point, for a block of queries at a time; [B, aligned(N)].

    The tensor is reused. Seen candidates have -inf, and so have the columns beyond the last one.

    Args:
        products: T' V for the queries, up to a factor per query; [M, K].
        values: sigma, [K], descending.
        vectors: V, [N, K].
        points: of one decomposition.
        scales: a factor per candidate for each discount, [N].
        seen: candidates not to be returned, [M, N].
        most: queries to score at a time.
        tail: added to the scores at points where it has a weight.
    """
    n, length = len(vectors), _aligned(len(vectors))
    space = scratch("products", (3 * most, length), vectors)[:, :n]
    scores = scratch("scores", (most, length), vectors)
    scores[:, n:] = -torch.inf
    by_solution = groupby(sorted(points), key=lambda point: (point.rank, point.threshold))
    solutions = {solution: list(same) for solution, same in by_solution}
    for start in range(0, len(products), most):
        own = products[start : start + most]
        part, now = seen.part(start, start + len(own)), scores[: len(own)]
        hidden = part.query_of_pair().long(), part.candidates.long()
        blocks = _undiscounted(own, values, vectors, list(solutions), space)
        for same, block in zip(solutions.values(), blocks, strict=True):
            for point in same:
                torch.mul(block, scales[point.discount], out=now[:, :n])
                if tail is not None and point.tail_weight > 0:
                    more, scale = tail.scores[start : start + len(own)], tail.scales[point.discount]
                    now[:, :n].addcmul_(more, scale, value=tail.weights[point])
                now[hidden] = -torch.inf
                yield point, now


def queries_at_once(n_candidates: int, memory_budget: int) -> int:
    """The number of queries that can be scored at a time within the memory budget."""
    return max(1, min(MAX_QUERIES, memory_budget // (20 * _aligned(n_candidates))))


def _aligned(n_candidates: int) -> int:
    """N rounded up to whole blocks: rows of such a length are multiplied twice as fast."""
    return -(-n_candidates // LARGEST_BLOCK) * LARGEST_BLOCK


def _undiscounted(
    products: Tensor,
    values: Tensor,
    vectors: Tensor,
    solutions: list[tuple[int, float]],
    space: Tensor,
) -> Iterator[Tensor]:
    """A_sigma - tau A_1 at each rank and threshold: from the two blocks, or directly if few."""
    count, ranks = len(products), [rank for rank, _ in solutions]
    both, result, done = space[: 2 * count], space[-count:], 0
    lefts = torch.cat([products, products / values])
    for rank, threshold in solutions:
        tau = threshold * float(values[rank - 1])
        if sum(ranks) <= 2 * max(ranks):
            shrunk = products[:, :rank] * (1 - tau / values[:rank])
            yield result.addmm_(shrunk, vectors[:, :rank].T, beta=0)
            continue
        if rank > done:
            new = slice(done, rank)
            both.addmm_(lefts[:, new], vectors[:, new].T, beta=int(done > 0))
            done = rank
        yield torch.add(both[:count], both[count:], alpha=-tau, out=result)
