"""Returned candidates compared with the truth: all that a metric reads.

A metric takes a `Judged` and a cut-off k and gives one value per query. It does not depend on
scores, models or splits, so any list of candidates can be judged.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.types import Interactions


class Taste(NamedTuple):
    """What the training pairs say about B queries and about the candidates."""

    histories: Interactions  # B rows
    choosers: Interactions  # N rows: the training queries of each candidate
    ranks: Tensor  # [N] popularity ranks
    groups: Tensor  # [N] int64, of head, torso and tail


class Judged(NamedTuple):
    """The results of B queries, and the best that they could have been.

    K must be at least min(k, N) for every k in use; a shorter list is padded.
    """

    ids: Tensor  # [B, K] int64, best first, distinct; -1 pads
    grades: Tensor  # [B, K] float32, of each returned candidate; 0 for a negative and for padding
    ideal: Tensor  # [B, K] float32, the query's own grades, descending; 0 after the last
    positives: Tensor  # [B] int64, how many positives the query has, returned or not
    popularity_rank: Tensor | None  # [N] float32, 1 for the most popular; None: not needed
    weights: Tensor | None  # [B, K] float32, 1/p of each returned positive, else 0
    ideal_weights: Tensor | None  # [B, K] float32, 1/p of the query's positives, descending, then 0
    taste: Taste | None = None  # None: not needed


def judge(
    ids: Tensor,
    truth: Interactions,
    popularity_rank: Tensor | None = None,
    inverse_propensity: Tensor | None = None,
    taste: Taste | None = None,
) -> Judged:
    """Look up each returned candidate in the truth of its query.

    Memory is that of the pairs of ``truth`` and of [B, K], never of [B, N]. Row b of ``truth``
    holds the positives of the query of ``ids[b]``. The functions `popularity_rank` and
    `inverse_propensity` give the next arguments, [N], ``beyond.taste_of`` the last.
    """
    if len(ids) != truth.n_queries:
        raise ValueError(f"different row counts: {len(ids)} of ids, {truth.n_queries} of truth")
    if bool((ids >= truth.n_candidates).any()):
        raise ValueError(f"ids must be below N = {truth.n_candidates}, got {int(ids.max())}")
    grades = _find(ids, truth, truth.all_grades())
    weights = ideal_weights = None
    if inverse_propensity is not None:
        weights = torch.where(grades > 0, inverse_propensity[ids.clamp(min=0)], 0.0)
        ideal_weights = _ideal(ids.shape[1], truth, inverse_propensity[truth.candidates])
    return Judged(
        ids=ids,
        grades=grades,
        ideal=_ideal(ids.shape[1], truth, truth.grades),
        positives=truth.counts(),
        popularity_rank=popularity_rank,
        weights=weights,
        ideal_weights=ideal_weights,
        taste=taste,
    )


def _find(ids: Tensor, truth: Interactions, pair_grades: Tensor) -> Tensor:
    """The grade of each returned candidate; [B, K].

    The pair (b, y) has the number b N + y. The pairs of the truth ascend by it, so one binary
    search finds them all.
    """
    n = truth.n_candidates
    # One more pair, above all others and of grade 0, for searches that run past the end.
    pairs = torch.cat([truth.codes(), truth.offsets.new_full((1,), len(ids) * n)])
    pair_grades = torch.cat([pair_grades, pair_grades.new_zeros(1)])
    rows = torch.arange(len(ids), device=ids.device)
    wanted = (rows[:, None] * n + ids).contiguous()
    places = torch.searchsorted(pairs, wanted)
    # Padding needs its own check: b N - 1 is the last candidate of the previous row.
    matched = (pairs[places] == wanted) & (ids >= 0)
    return torch.where(matched, pair_grades[places], 0.0)


def _ideal(width: int, truth: Interactions, gains: Tensor | None) -> Tensor:
    """The best ``width`` gains of each query's pairs, descending, then 0; [B, width].

    Gains of None are 1.
    """
    if gains is None:
        return (torch.arange(width, device=truth.offsets.device) < truth.counts()[:, None]).float()
    rows = truth.query_of_pair().long()
    by_gain = torch.argsort(gains, descending=True, stable=True)
    by_row = torch.argsort(rows[by_gain], stable=True)
    gains = gains[by_gain][by_row]  # sorted within each row; ``rows`` still gives the row
    columns = torch.arange(truth.n_pairs, device=rows.device) - truth.offsets[rows]
    kept = columns < width
    ideal = gains.new_zeros(truth.n_queries, width)
    ideal[rows[kept], columns[kept]] = gains[kept]
    return ideal
