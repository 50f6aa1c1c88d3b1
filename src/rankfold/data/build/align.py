"""Two row spaces: the pairs of one in the rows of the other, matched by key."""

from dataclasses import replace
from typing import TypeVar

import polars as pl
import torch
from torch import Tensor

from rankfold.data.read.values import concat
from rankfold.types import Interactions, Vocabulary, from_pairs
from rankfold.types.data import Lists

L = TypeVar("L", bound=Lists)


def same_keys(ours: Vocabulary, theirs: Vocabulary) -> bool:
    return len(ours) == len(theirs) and ours.keys.equals(theirs.keys)


def rows_of(ours: Vocabulary, theirs: Vocabulary) -> Tensor:
    """Our row of each of their keys; unknown keys get rows after all of ours."""
    rows = ours.find(theirs.keys)
    unknown = rows < 0
    rows[unknown] = len(ours) + torch.arange(int(unknown.sum()))
    return rows


def merge(ours: Vocabulary, keys: pl.Series) -> Vocabulary:
    """Our keys and the new ones among ``keys``; integers become text if the others are text."""
    new = keys.filter(pl.Series((ours.find(keys) < 0).numpy()))
    if len(new) == 0:
        return ours
    return Vocabulary.of(concat([ours.keys, new]).sort())


def own_pairs(queries: Vocabulary, candidates: Vocabulary) -> Interactions:
    """Each query paired with the candidate that has the same key."""
    own = candidates.find(queries.keys)
    known = torch.nonzero(own >= 0).flatten()
    return from_pairs(known, own[known], None, (len(queries), len(candidates)))


def keyed_pairs(pairs: pl.DataFrame, queries: Vocabulary, candidates: Vocabulary) -> Interactions:
    """Pairs of keys, ``query`` and ``candidate``, as rows; unknown keys are dropped."""
    rows, columns = queries.find(pairs["query"]), candidates.find(pairs["candidate"])
    known = (rows >= 0) & (columns >= 0)
    n = len(candidates)
    keys = torch.unique(rows[known] * n + columns[known])
    return from_pairs(keys // n, keys % n, None, (len(queries), n))


def renumber(pairs: Interactions, rows: Tensor, n: int) -> Interactions:
    """Candidate y becomes ``rows[y]``; those that become n or more are dropped."""
    candidates = rows[pairs.candidates]
    kept = torch.nonzero(candidates < n).flatten()
    keys = pairs.query_of_pair().long()[kept] * n + candidates[kept]
    keys, order = torch.sort(keys)
    grades = None if pairs.grades is None else pairs.grades[kept][order]
    times = None if pairs.times is None else pairs.times[kept][order]
    return from_pairs(keys // n, keys % n, grades, (pairs.n_queries, n), times)


def arrange(lists: L, rows: Tensor) -> L:
    """List i is the list ``rows[i]``, empty if that is -1."""
    empty = len(lists.offsets) - 1  # an additional list
    padded = replace(lists, offsets=torch.cat([lists.offsets, lists.offsets[-1:]]))
    return padded.select(torch.where(rows < 0, empty, rows))


def changed_rows(known: Interactions, more: Interactions) -> Tensor:
    """The rows of ``more`` with a pair that is not in ``known`` or has another grade there."""
    theirs = more.codes()
    ours = torch.cat(
        [known.codes(), theirs.new_full((1,), -1)]
    )  # a place after all pairs matches none
    places = torch.searchsorted(ours[:-1], theirs)
    new = ours[places] != theirs
    one = torch.ones(())
    previous = one if known.grades is None else torch.cat([known.grades, one[None]])[places]
    new |= previous != (one if more.grades is None else more.grades)
    rows: Tensor = (theirs[new] // more.n_candidates).unique()
    return rows
