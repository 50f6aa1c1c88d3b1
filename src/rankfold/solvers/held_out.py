"""How well the components of some pairs hold on held-out pairs.

Defaults follow from it: the vectors of noisy pairs need more regularisation than those of clean
ones. It costs about a sweep of alternating least squares.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.distributed.collectives import row_offset, sum_over_ranks
from rankfold.kernels.sparse import row_sums
from rankfold.types import Comm, Interactions, from_pairs

_WIDTH, _PASSES = 64, 4  # of the subspace iteration
_STRONGEST = 8  # components
_HELD_OUT = 0.1  # share of the pairs
_SMOOTHING = 3.0  # times the mean size of a row is added to the size of each
_MAX_CANDIDATES = 2**20  # so that every process can hold a table of vectors


class Shares(NamedTuple):
    """The shares of components that hold on unseen pairs, 0 to 1."""

    of_all: float
    of_strongest: float


def held_out_shares(rows: Interactions, comm: Comm) -> Shares:
    """The part of the leading components that recurs in a held-out tenth of the pairs.

    The matrix of pairs is R = T + H, where H has a tenth of them, scaled by the sizes of rows and
    columns; (u_k, s_k, v_k) are the components of T. Then 9 u_k^T H v_k / s_k is about 1 for a
    component that is in the data and 0 for one that is noise. Returns means over components. For
    more than a million candidates nothing is measured: a few components are assumed to hold.
    """
    if rows.n_candidates > _MAX_CANDIDATES or sum_over_ranks(rows.n_pairs, comm) == 0:
        return Shares(0.0, 1.0)
    held = _is_held_out(rows, comm)
    kept, unseen = _subset(rows, ~held), _subset(rows, held)
    columns = kept.transpose()
    sizes, columnwise = rows.counts(), comm.sum(rows.candidate_counts())
    n_queries = sum_over_ranks(int((sizes > 0).sum()), comm)
    queries = _scale(sizes, sum_over_ranks(rows.n_pairs, comm) / n_queries)
    candidates = _scale(columnwise, float(columnwise.double().mean()))
    width = min(_WIDTH, rows.n_candidates)
    rng = torch.Generator().manual_seed(0)
    vectors = torch.randn(rows.n_candidates, width, generator=rng).to(queries.device)
    for _ in range(_PASSES):
        image = queries**2 * row_sums(kept, candidates * vectors)
        vectors = torch.linalg.qr(comm.sum(candidates * row_sums(columns, image)))[0]
    scaled = candidates * vectors
    known, new = (queries * row_sums(part, scaled) for part in (kept, unseen))
    gram, cross = (comm.sum((known.T @ other).double()) for other in (known, new))
    values, basis = torch.linalg.eigh(gram)  # ascending
    real = values > 1e-6 * values[-1]
    slopes = ((basis.T @ cross) * basis.T).sum(dim=1)[real] / values[real]
    slopes = comm.broadcast(slopes * (1 - _HELD_OUT) / _HELD_OUT)
    means = (part.mean().nan_to_num().clamp(0, 1) for part in (slopes, slopes[-_STRONGEST:]))
    return Shares(*(round(float(mean), 3) for mean in means))  # equal for any processes


def _is_held_out(rows: Interactions, comm: Comm) -> Tensor:
    """Whether each pair is held out: by a hash, which gives the same pairs to any processes."""
    queries = rows.query_of_pair().long() + row_offset(rows.n_queries, comm)[0]
    key = rows.candidates.long() * 0x9E3779B1 + queries * 0x85EBCA6B
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39), (15, 1)):
        key = (key ^ (key >> shift)) * factor & 0x7FFFFFFF
    return key % 1000 < 1000 * _HELD_OUT


def _subset(rows: Interactions, chosen: Tensor) -> Interactions:
    pairs = rows.query_of_pair().long()[chosen], rows.candidates[chosen]
    return from_pairs(*pairs, None, (rows.n_queries, rows.n_candidates))


def _scale(sizes: Tensor, mean: float) -> Tensor:
    """1 / sqrt(size + a multiple of the mean size); [n, 1]."""
    return (sizes + _SMOOTHING * mean).rsqrt().float()[:, None]
