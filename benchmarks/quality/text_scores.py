"""Figures of text labelling, by one function for rankfold and its peers; numpy only.

    scores(ids, truth, counts) -> {"P@1": 54.93, ..., "PSP@5": 35.87}        all in %

With ``Y_i`` the true labels of document i, ``n_l`` the number of documents of train **and**
validation that have label l, ``N`` the number of these documents, A = .55 and B = 1.5 [jain2016]::

    P@k    = mean_i |top_k(i) & Y_i| / k
    nDCG@k = mean_i sum_{r <= k, l_r in Y_i} 1/log2(r+1) / sum_{r <= min(k, |Y_i|)} 1/log2(r+1)
    w_l    = 1 + C (n_l + B)^-A,   C = (ln N - 1) (B+1)^A                     (1 / propensity)
    PSP@k  = sum_i sum_{l in top_k(i) & Y_i} w_l / sum_i (sum of the k largest w_l of Y_i)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

A, B = 0.55, 1.5
PRECISION_AT = (1, 3, 5)
GAIN_AT = 5
METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")

Ids = NDArray[np.int64]


class Truth(NamedTuple):
    """True labels as CSR: row i is ``labels[offsets[i]:offsets[i + 1]]``, each at most once."""

    offsets: Ids  # [n + 1]
    labels: Ids


class Counts(NamedTuple):
    """Input of propensities: documents of each label, and the number of documents."""

    labels: Ids  # [n labels]
    documents: int


def scores(ids: Ids, truth: Truth, counts: Counts) -> dict[str, float]:
    """Every metric in %, for the first labels ``ids`` [n, >= 5] of each document; -1 pads."""
    known = truth.offsets[1:] - truth.offsets[:-1]
    if len(known) != len(ids) or not known.all():
        raise ValueError("a row of ids for each document, and a true label in each, was expected")
    weights = inverse_propensities(counts)
    hit = hits(ids, truth, len(counts.labels))
    gains = np.where(hit, weights[ids], 0.0)
    best = largest(weights, truth, max(PRECISION_AT))
    result = {f"P@{k}": hit[:, :k].sum() / (k * len(ids)) for k in PRECISION_AT}
    result[f"nDCG@{GAIN_AT}"] = discounted(hit, known, GAIN_AT)
    result |= {f"PSP@{k}": gains[:, :k].sum() / best[:, :k].sum() for k in PRECISION_AT}
    return {metric: round(100 * float(value), 2) for metric, value in result.items()}


def split_truth(pairs: Ids, split: int) -> tuple[Ids, Truth]:
    """The documents of a split, ascending, and their labels; pairs are document, label, split."""
    chosen = pairs[pairs[:, 2] == split]
    chosen = chosen[np.lexsort((chosen[:, 1], chosen[:, 0]))]
    documents, sizes = np.unique(chosen[:, 0], return_counts=True)
    return documents, Truth(np.concatenate([[0], np.cumsum(sizes)]), chosen[:, 1])


def count(pairs: Ids, n_labels: int, test: int = 2) -> Counts:
    """Counts of everything but test."""
    known = pairs[pairs[:, 2] != test]
    return Counts(np.bincount(known[:, 1], minlength=n_labels), len(np.unique(known[:, 0])))


def leave_out(ids: Ids, documents: Ids, pairs: Ids, k: int) -> Ids:
    """The first k of each row that are not among ``pairs`` (document, label); -1 pads.

    Row i of ``ids`` [n, any] belongs to document ``documents[i]``.
    """
    base = int(max(ids.max(initial=0), pairs[:, 1].max(initial=0))) + 1
    keys = documents[:, None] * base + ids
    bad = (ids < 0) | np.isin(keys, pairs[:, 0] * base + pairs[:, 1])
    order = np.argsort(bad, axis=1, kind="stable")[:, :k]
    kept = np.where(np.take_along_axis(bad, order, 1), -1, np.take_along_axis(ids, order, 1))
    return np.pad(kept, ((0, 0), (0, k - kept.shape[1])), constant_values=-1)


def inverse_propensities(counts: Counts) -> NDArray[np.float64]:
    scale = (np.log(counts.documents) - 1) * (B + 1) ** A
    return np.asarray(1 + scale * (counts.labels + B) ** -A)


def hits(ids: Ids, truth: Truth, n_labels: int) -> NDArray[np.bool_]:
    """Which of the ids are true; -1 never is."""
    owners = np.repeat(np.arange(len(ids)), truth.offsets[1:] - truth.offsets[:-1])
    keys = np.arange(len(ids))[:, None] * n_labels + ids
    return (ids >= 0) & np.isin(keys, owners * n_labels + truth.labels)


def discounted(hit: NDArray[np.bool_], known: Ids, k: int) -> float:
    discounts = 1 / np.log2(np.arange(2, k + 2))
    ideal = np.cumsum(discounts)[np.minimum(known, k) - 1]
    return float(((hit[:, :k] * discounts).sum(axis=1) / ideal).mean())


def largest(weights: NDArray[np.float64], truth: Truth, k: int) -> NDArray[np.float64]:
    """The k largest weights of each document's true labels, descending; 0 pads."""
    sizes = truth.offsets[1:] - truth.offsets[:-1]
    owners = np.repeat(np.arange(len(sizes)), sizes)
    mine = weights[truth.labels]
    order = np.lexsort((-mine, owners))
    place = np.arange(len(order)) - truth.offsets[:-1][owners]  # owners is sorted already
    out = np.zeros((len(sizes), k))
    first = place < k
    out[owners[first], place[first]] = mine[order][first]
    return out
