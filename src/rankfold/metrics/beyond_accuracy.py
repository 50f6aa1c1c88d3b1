"""Beyond accuracy: novelty, diversity, serendipity and calibration, by the training pairs.

They say how results differ from what everyone knows, from each other, and from a query's own taste.
Whether a result is right is read by serendipity alone.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.metrics.judged import Judged, Taste
from rankfold.metrics.popularity import popularity_rank
from rankfold.metrics.strata import GROUPS, frequency_groups
from rankfold.types import Interactions

_SMOOTHING = 0.01  # of a list's shares towards those of the history: no share is 0


class TrainTaste(NamedTuple):
    """Training pairs: those of some queries, and what all of them say about candidates."""

    histories: Interactions  # a row per query
    choosers: Interactions  # by candidate
    ranks: Tensor  # [N] popularity ranks
    groups: Tensor  # [N] of head, torso and tail

    def of(self, rows: Tensor) -> Taste:
        """For the queries ``rows`` [B]."""
        return Taste(self.histories.select(rows), self.choosers, self.ranks, self.groups)


def taste_of(train: Interactions) -> TrainTaste:
    counts = train.candidate_counts()
    return TrainTaste(train, train.transpose(), popularity_rank(counts), frequency_groups(counts))


def novelty(judged: Judged, k: int) -> Tensor:
    """Mean self-information of the first k results, in bits.

    With L_b the candidates among the first k, c_y the training queries of candidate y, at least 1,
    and M those with a pair::

        novelty_b = 1/|L_b| sum_{y in L_b} -log2(c_y / M)

    Returns [B], and 0 for a query that got nothing.
    """
    taste, ids = _read(judged, k)
    counts = taste.choosers.counts().clamp(min=1)
    bits = -(counts / max(1, _queries(taste))).log2().clamp(max=0).float()
    listed = ids >= 0
    values = torch.where(listed, bits[ids.clamp(min=0)], 0.0)
    return values.sum(dim=1) / listed.sum(dim=1).clamp(min=1)


def diversity(judged: Judged, k: int) -> Tensor:
    """Mean distance between two of the first k results.

    With I_y the training queries of candidate y::

        diversity_b = mean over y != z in L_b of 1 - |I_y & I_z| / sqrt(|I_y| |I_z|)

    Returns [B], from 0 to 1, and 0 for a list of fewer than two.
    """
    taste, ids = _read(judged, k)
    values = torch.zeros(len(ids))
    for row, own in enumerate(ids):
        listed = own[own >= 0]
        if len(listed) > 1:
            same = _cosines(taste.choosers.select(listed))
            n = len(listed)
            values[row] = 1 - (same.sum() - same.diagonal().sum()) / (n * (n - 1))
    return values


def _cosines(sets: Interactions) -> Tensor:
    """The cosine of each two rows as sets; 0 for an empty one; [n, n]."""
    members, places = sets.candidates.unique(return_inverse=True)
    matrix = torch.zeros(sets.n_queries, len(members))
    matrix[sets.query_of_pair().long(), places] = 1.0
    matrix /= matrix.sum(dim=1, keepdim=True).clamp(min=1).sqrt()
    return matrix @ matrix.T


def serendipity(judged: Judged, k: int) -> Tensor:
    """Share of the first k results that are right and not among the k most popular.

    ::

        serendipity_b = |{y in L_b: r_by > 0, popularity_rank_y > k}| / k

    Returns [B].
    """
    taste, ids = _read(judged, k)
    surprising = taste.ranks[ids.clamp(min=0)] > k
    return ((judged.grades[:, :k] > 0) & surprising & (ids >= 0)).sum(dim=1) / float(k)


def calibration(judged: Judged, k: int) -> Tensor:
    """How far the results are from the query's own taste for popular and rare candidates.

    With p_g the share of group g (head, torso, tail) in the training pairs of the query, q_g that
    in L_b, and q'_g = .99 q_g + .01 p_g, the divergence of Kullback and Leibler in nats::

        calibration_b = sum_g p_g log(p_g / q'_g)

    Returns [B], 0 for the same shares, for an empty list and for a query without training pairs.
    """
    taste, ids = _read(judged, k)
    rows = taste.histories.query_of_pair().long()
    shares = torch.zeros(len(ids), len(GROUPS))
    chosen = taste.groups[taste.histories.candidates.long()]
    shares.index_put_((rows, chosen), torch.ones(len(rows)), accumulate=True)
    listed = ids >= 0
    own = torch.zeros(len(ids), len(GROUPS))
    own.scatter_add_(1, taste.groups[ids.clamp(min=0)], listed.float())
    known = (shares.sum(dim=1) > 0) & (own.sum(dim=1) > 0)
    p = shares / shares.sum(dim=1, keepdim=True).clamp(min=1)
    q = own / own.sum(dim=1, keepdim=True).clamp(min=1)
    mixed = (1 - _SMOOTHING) * q + _SMOOTHING * p
    terms = torch.where(p > 0, p * (p / mixed).log(), 0.0)
    return torch.where(known, terms.sum(dim=1).clamp(min=0), 0.0)


def _read(judged: Judged, k: int) -> tuple[Taste, Tensor]:
    if judged.taste is None:
        raise ValueError("this metric needs judge(..., taste=...)")
    return judged.taste, judged.ids[:, :k]


def _queries(taste: Taste) -> int:
    """The number of training queries with a pair."""
    return len(taste.choosers.candidates.unique())
