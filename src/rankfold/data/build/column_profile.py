"""What the columns of the fitted rows held: shares by bin, to compare new rows with.

A number has bins between quantiles and one for missing values. A category has a bin per frequent
level, one for the others, and one for missing and unknown ones.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankfold.metrics.drift import Drift, counts_of, stability
from rankfold.types import Columns, Graded

_BINS = 10  # of a number, besides missing
_LEVELS = 20  # of a category that have a bin of their own
_PREFIX = "profile_"


class Shift(NamedTuple):
    """How the values of a column differ from those of the fitted rows."""

    column: str
    drift: Drift
    missing: float  # the share of missing or unknown values now
    missing_before: float

    def to_json(self) -> dict[str, Any]:
        return {
            "column": self.column,
            "psi": self.drift.psi,
            "drifted": self.drift.psi > self.drift.limit,
            "missing": self.missing,
            "missing_before": self.missing_before,
        }


@dataclass(frozen=True, slots=True)
class Profile:
    """The counts of the fitted rows by bin, and a typical value of each bin."""

    edges: Tensor  # [F, 9] float32: a value is in the bin of the edges below it
    values: Tensor  # [F, 10] float32: the median of each bin; NaN if it is empty
    numbers: Tensor  # [F, 11] float64 counts; the last: missing
    levels: Tensor  # [C, 20] int32: the levels with a bin, most frequent first; -1 pads
    categories: Tensor  # [C, 22] float64 counts; the last two: other levels, missing or unknown

    def to_tensors(self) -> dict[str, Tensor]:
        return {f"{_PREFIX}{one.name}": getattr(self, one.name) for one in fields(self)}

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor]) -> "Profile | None":
        """None for a model that an older version wrote."""
        names = [one.name for one in fields(Profile)]
        if any(f"{_PREFIX}{name}" not in tensors for name in names):
            return None
        return Profile(**{name: tensors[f"{_PREFIX}{name}"] for name in names})

    def shifts(self, rows: Graded, columns: Columns) -> list[Shift]:
        """Each column of some rows, compared with the fitted rows."""
        names = [*columns.numbers, *columns.levels]
        seen = [*self._count_numbers(rows.numbers), *self._count_categories(rows.categories)]
        before = [*self.numbers, *self.categories]
        return [
            Shift(name, stability(old, new), _last(new), _last(old))
            for name, old, new in zip(names, before, seen, strict=True)
        ]

    def typical(self, columns: Columns) -> dict[str, float | str | None]:
        """The median of each number, nearly, and the most frequent level; None: all missing."""
        values: dict[str, float | str | None] = {}
        for name, middles, counts in zip(columns.numbers, self.values, self.numbers, strict=True):
            reached = counts[:_BINS].cumsum(0)
            value = float(middles[int((reached < reached[-1] / 2).sum())])
            values[name] = None if math.isnan(value) else float(f"{value:.6g}")
        for (name, levels), frequent in zip(columns.levels.items(), self.levels, strict=True):
            values[name] = levels[int(frequent[0])] if frequent[0] >= 0 else None
        return values

    def _count_numbers(self, numbers: Tensor) -> Iterator[Tensor]:
        for column, edges in zip(numbers.T, self.edges, strict=True):
            yield counts_of(_bins(column, edges), _BINS + 1)

    def _count_categories(self, categories: Tensor) -> Iterator[Tensor]:
        for column, levels in zip(categories.T, self.levels, strict=True):
            same = column[:, None] == torch.where(levels < 0, -2, levels)
            bins = torch.where(same.any(dim=1), same.int().argmax(dim=1), _LEVELS)
            yield counts_of(bins.masked_fill(column < 0, _LEVELS + 1), _LEVELS + 2)


def profile_of(rows: Graded) -> Profile:
    """The profile of the fitted rows."""
    shares = torch.linspace(0, 1, _BINS + 1, dtype=torch.float64)[1:-1]
    edges = torch.full((rows.numbers.shape[1], _BINS - 1), torch.inf)
    values = torch.full((rows.numbers.shape[1], _BINS), torch.nan)
    for place, column in enumerate(rows.numbers.T):
        known = column[~column.isnan()].sort().values
        if len(known):
            edges[place] = known[(shares * (len(known) - 1)).round().long()]
            bins = _bins(known, edges[place])
            ends = counts_of(bins, _BINS).long().cumsum(0)
            starts = torch.cat([ends.new_zeros(1), ends[:-1]])
            middles = known[((starts + ends) // 2).clamp(max=len(known) - 1)]
            values[place] = torch.where(ends > starts, middles, torch.nan)
    levels = torch.full((rows.categories.shape[1], _LEVELS), -1, dtype=torch.int32)
    for place, column in enumerate(rows.categories.T):
        counts = torch.bincount(column[column >= 0])
        frequent = counts.argsort(descending=True, stable=True)[:_LEVELS]
        frequent = frequent[counts[frequent] > 0]
        levels[place, : len(frequent)] = frequent.int()
    empty = Profile(edges, values, torch.zeros(0), levels, torch.zeros(0))
    numbers = [torch.zeros(0, _BINS + 1), *(c[None] for c in empty._count_numbers(rows.numbers))]
    categories = [
        torch.zeros(0, _LEVELS + 2),
        *(c[None] for c in empty._count_categories(rows.categories)),
    ]
    return Profile(
        edges, values, torch.cat(numbers).double(), levels, torch.cat(categories).double()
    )


def describe(shifts: list[Shift]) -> list[str]:
    """A line for each column that has drifted, the furthest first."""
    drifted = [shift for shift in shifts if shift.drift.psi > shift.drift.limit]
    return [
        f"{shift.column} has drifted from the fitted rows: stability index "
        f"{shift.drift.psi:.2f}{_missing(shift)}"
        for shift in sorted(drifted, key=lambda shift: -shift.drift.psi)
    ]


def _missing(shift: Shift) -> str:
    if abs(shift.missing - shift.missing_before) < 0.01:
        return ""
    return f", missing {shift.missing_before:.1%} before and {shift.missing:.1%} now"


def _bins(numbers: Tensor, edges: Tensor) -> Tensor:
    """The bin of each number; missing ones have the last."""
    bins = torch.searchsorted(edges, numbers.nan_to_num(0.0).contiguous(), right=True)
    return bins.masked_fill(numbers.isnan(), _BINS)


def _last(counts: Tensor) -> float:
    return float(counts[-1] / counts.sum().clamp(min=1))
