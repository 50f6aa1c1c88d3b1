"""What makes the figures of graded rows too good: equal rows across splits, columns that leak."""

from collections.abc import Mapping
from typing import Any

import polars as pl
import torch
from torch import Tensor

from rankfold.data.build import features
from rankfold.data.build.row_hashes import hashes
from rankfold.errors import pluralize
from rankfold.metrics.graded import graded_values, parse_graded
from rankfold.types import Columns, Graded

SUSPICIOUS_AUC = 0.99  # an AUC of one column by itself from which on it is suspicious
_BINS = 256  # of a number, where its order does not matter
_MIN_ROWS = 5  # of each side of a threshold: with fewer, a high AUC is chance
_MIN_DISTINCT = 50  # fewer numbers may well be distinct by chance
_PLACES_SHOWN = 3
_AUC = parse_graded("auc")


# ---------------------------------------------------------------------------------- equal rows


def equal_rows(
    parts: Mapping[str, Graded], places: Mapping[str, pl.Series]
) -> list[dict[str, Any]]:
    """How many rows of validation and test equal a row of an earlier split, and the first of them.

    Rows are equal if a model cannot tell them apart: in all columns that it reads, and the grade.
    """
    entries = []
    codes = {name: hashes(rows) for name, rows in parts.items()}
    for split, before in (("validation", "train"), ("test", "train"), ("test", "validation")):
        same = torch.isin(codes[split], codes[before]).nonzero().flatten()
        if len(same) == 0:
            continue
        first = []
        for row in same[:_PLACES_SHOWN].tolist():
            twin = int((codes[before] == codes[split][row]).nonzero()[0])
            first.append([places[split][row], places[before][twin]])
        entries.append(
            {
                "split": split,
                "rows": len(same),
                "of": len(codes[split]),
                "equal_to": before,
                "first": first,
            }
        )
    return entries


def describe_equal(entry: Mapping[str, Any]) -> str:
    """One entry of ``equal_rows``, for people."""
    rows, of, split = pluralize(entry["rows"], "row"), entry["of"], entry["split"]
    first = ", ".join(" = ".join(pair) for pair in entry["first"])
    return (
        f"{rows} of {of:,} in {split} equal a row of {entry['equal_to']} ({first}): if rows are "
        "repeated, figures will be too high; remove repeats, or keep them together by "
        "--split group:COLUMN"
    )


# ---------------------------------------------------------------------------------- columns


def suspicious_columns(
    table: pl.DataFrame, train: Graded, columns: Columns, n_grades: int
) -> list[dict[str, Any]]:
    """The columns of the training rows that tell the grade alone, or have a value for each row.

    ``table`` has the rows as they were read: large whole numbers are not distinct in 32 bits.

    ``auc`` is the highest over thresholds, ``above`` the number of its threshold.
    """
    entries = []
    once = table.filter(pl.Series(hashes(train).numpy()).is_first_distinct())
    few = 2 * len(once) > len(table)  # repeated rows do not hide an identifier
    values = [*train.numbers.T, *train.categories.T]
    for name, column in zip([*columns.numbers, *columns.levels], values, strict=True):
        why = _identifies((once if few else table)[name], is_number=column.is_floating_point())
        auc, threshold = column_auc(column, train.grades, n_grades)
        if auc >= SUSPICIOUS_AUC:
            why = "it alone gives the grade"
        if why is not None:
            entries.append({"column": name, "why": why, "auc": auc, "above": threshold})
    return entries


def describe_suspicious(entry: Mapping[str, Any], names: list[str]) -> str:
    """One entry of ``suspicious_columns``, for people."""
    name, auc = entry["column"], ""
    if entry["above"] is not None:
        auc = f" (AUC {entry['auc']:.4f} for grades above {names[entry['above']]})"
    when = "is not known beforehand" if entry["auc"] >= SUSPICIOUS_AUC else "identifies a row"
    return f"column {name}: {entry['why']}{auc}; if it {when}, leave it out: --drop {name}"


def _identifies(column: pl.Series, *, is_number: bool) -> str | None:
    """Why a column may be an identifier, or the place of a row; None if it is not."""
    values = features.to_numbers(column, pl.Float64) if is_number else column
    assert values is not None  # the schema says that they are numbers
    known = values.drop_nulls()
    if len(known) < _MIN_DISTINCT:
        return None
    if is_number:
        steps = known.diff().drop_nulls()
        if (steps > 0).all() or (steps < 0).all():
            return "its values follow the order of the rows"
        if (known % 1 != 0).any():
            return None  # measurements are distinct
    return "its values are all distinct" if known.n_unique() == len(known) else None


def column_auc(column: Tensor, grades: Tensor, n_grades: int) -> tuple[float, int | None]:
    """The highest AUC that the values of one column give by themselves, and its threshold.

    Numbers count by their order, up or down. Numbers in bins and categories also count by the share
    of positives with the same value among the other half of the rows, as do missing values: so
    neither an odd shape nor many levels matter. (.5, None) if no threshold has enough rows.
    """
    places, n_values = _places(column)
    bins = _into_bins(places, n_values) if column.is_floating_point() else places
    half = torch.arange(len(grades)) % 2
    best: tuple[float, int | None] = (0.5, None)
    for k in range(n_grades - 1):
        positive = grades > k
        if min(int(positive.sum()), int((~positive).sum())) < _MIN_ROWS:
            continue
        aucs = [_encoded_auc(bins, positive, half)]
        if column.is_floating_point():
            known = ~column.isnan()
            own = _auc(places[known].double(), positive[known])
            share = float(known.double().mean())  # rows without a value say nothing
            aucs.append(0.5 + share * (max(own, 1 - own) - 0.5))
        if max(aucs) > best[0] or best[1] is None:
            best = max(aucs), k
    return best


def _places(column: Tensor) -> tuple[Tensor, int]:
    """The place of each value among the distinct ones, ascending; missing ones come last."""
    missing = column.isnan() if column.is_floating_point() else column < 0
    distinct, places = column[~missing].unique(return_inverse=True)
    places_of = torch.full((len(column),), len(distinct), dtype=torch.int64)
    places_of[~missing] = places
    return places_of, len(distinct)


def _into_bins(places: Tensor, n_values: int) -> Tensor:
    """Places as they are if there are few values, else in bins of about equal size."""
    if n_values <= _BINS:
        return places
    counts = torch.bincount(places, minlength=n_values + 1)
    ends = counts[:-1].cumsum(0)
    bins = (ends - 1) * _BINS // int(ends[-1])
    return torch.cat([bins, bins.new_tensor([_BINS])])[places]


def _encoded_auc(bins: Tensor, positive: Tensor, half: Tensor) -> float:
    """The AUC of the share of positives with the same value in the other half of the rows."""
    n = int(bins.max()) + 1
    counts = torch.bincount(2 * bins + half, minlength=2 * n).reshape(n, 2).double()
    hits = torch.bincount(2 * bins + half, positive.double(), minlength=2 * n).reshape(n, 2)
    prior = hits.sum(dim=0) / counts.sum(dim=0).clamp(min=1)
    shares = (hits + prior) / (counts + 1)  # of a value that the other half lacks: the prior
    scores, aucs = shares[bins, 1 - half], []
    for side in (0, 1):
        own = half == side
        if 0 < int(positive[own].sum()) < int(own.sum()):
            aucs.append(_auc(scores[own], positive[own]))
    return sum(aucs) / len(aucs) if aucs else 0.5


def _auc(scores: Tensor, positive: Tensor) -> float:
    """The probability that a positive row is above a negative one; .5 without one of them."""
    return float(graded_values(scores, positive.long(), 2, _AUC).nan_to_num(0.5))
