"""Candidates by their features: conditions in SQL, such as ``price < 20 and brand = 'acme'``.

polars parses a condition as an expression over the columns of features. It is never run as code.
"""

from functools import cached_property

import polars as pl
import torch
from torch import Tensor

from rankfold.data.read.columns import listing
from rankfold.errors import UserError
from rankfold.types import Features

MAX_LENGTH = 1000  # characters of a condition
_MAX_KEPT = 64  # conditions


class Conditions:
    """Finds the candidates that meet a condition; the latest ones are kept for the next search."""

    def __init__(self, features: Features | None) -> None:
        self.features = features
        self._rows: dict[str, Tensor] = {}

    def rows(self, condition: str) -> Tensor:
        """The rows that meet it, ascending. A condition on a missing value is not met."""
        if condition not in self._rows:
            if len(self._rows) >= _MAX_KEPT:
                self._rows.clear()
            self._rows[condition] = _matching(self.table, condition)
        return self._rows[condition]

    @cached_property
    def table(self) -> pl.DataFrame:
        """A row per candidate."""
        if self.features is None:
            raise UserError(
                "the model has no features of candidates",
                hint="prepare the data with --candidate-features, and fit again",
            )
        return to_table(self.features)


def _matching(table: pl.DataFrame, condition: str) -> Tensor:
    if len(condition) > MAX_LENGTH:
        raise UserError(
            f"a condition has at most {MAX_LENGTH} characters, got {len(condition):,}",
            hint="use `allow` for a list of candidates",
        )
    hint = f"{listing(table.columns)}; a condition is written price < 20 and brand = 'acme'"
    try:
        (result,) = table.select(pl.sql_expr(condition).alias("meets"))
    except pl.exceptions.ColumnNotFoundError as error:
        name = str(error).split('"')[1] if '"' in str(error) else condition
        raise UserError(f"there is no feature {name!r}", hint=hint) from None
    except (pl.exceptions.PolarsError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise UserError(f"cannot read the condition {condition!r}: {first}", hint=hint) from None
    if result.dtype != pl.Boolean or len(result) != len(table):
        raise UserError(f"the condition {condition!r} is not true or false", hint=hint)
    return torch.from_numpy(result.arg_true().cast(pl.Int64).to_numpy(writable=True))


def to_table(features: Features) -> pl.DataFrame:
    """The features as they were read: numbers, and categories as words; null where missing."""
    columns = {}
    for place, name in enumerate(features.columns.numbers):
        values = pl.Series(features.numbers[:, place].numpy(), nan_to_null=True)
        columns[name] = values.cast(pl.String).cast(pl.Float64)  # 19.99, not 19.989999
    for place, (name, levels) in enumerate(features.columns.levels.items()):
        places = pl.Series(features.categories[:, place].numpy())
        columns[name] = pl.Series(levels, dtype=pl.String).gather(
            pl.select(pl.when(places >= 0).then(places)).to_series()
        )
    return pl.DataFrame(columns)
