"""Candidates by their features: conditions in SQL, such as ``price < 20 and brand = 'acme'``.

polars parses a condition as an expression over the columns of features. It is never run as code.
Only comparisons and arithmetic reach it: its functions could fill the memory (``lpad``), and some
of their arguments make it panic.
"""

import re
from collections.abc import Collection
from functools import cached_property

import polars as pl
import torch
from torch import Tensor

from rankfold.data.read.columns import listing
from rankfold.errors import UserError
from rankfold.types import Features

MAX_LENGTH = 1000  # characters of a condition
_MAX_KEPT, _MAX_KEPT_ROWS = 64, 2**22  # conditions, and the rows that meet them
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<word>[^\W\d]\w*) | "(?P<quoted>(?:[^"]|"")+)"
    | (?P<value>'(?:[^']|'')*' | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<sign><=|>=|<>|!=|[=<>+\-*/%(),])
    )\s*""",
    re.VERBOSE,
)
_WORDS = frozenset(
    ["and", "or", "not", "in", "between", "like", "ilike", "is", "null", "true", "false"]
)
_OPERANDS = frozenset(["null", "true", "false", ")"])
_AFTER_NOT = frozenset(["in", "between", "like", "ilike"])  # as in: a not in (1, 2)


class Conditions:
    """Finds the candidates that meet a condition; the latest ones are kept for the next search."""

    def __init__(self, features: Features | None) -> None:
        self.features = features
        self._rows: dict[str, Tensor] = {}

    def rows(self, condition: str) -> Tensor:
        """The rows that meet it, ascending. A condition on a missing value is not met."""
        if condition not in self._rows:
            rows = _matching(self.table, condition)
            n_rows = len(rows) + sum(map(len, self._rows.values()))
            if len(self._rows) >= _MAX_KEPT or n_rows > _MAX_KEPT_ROWS:
                self._rows.clear()
            self._rows[condition] = rows
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
    if odd := [name for name in table.columns if not re.fullmatch(r"[^\W\d]\w*", name)]:
        hint += f', a name with a space or a sign in double quotes: "{odd[0]}"'
    _check(condition, table.columns, hint)
    try:
        (result,) = table.select(pl.sql_expr(condition).alias("meets"))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise UserError(f"cannot read the condition {condition!r}: {first}", hint=hint) from None
    if result.dtype != pl.Boolean or len(result) != len(table):
        raise UserError(f"the condition {condition!r} is not true or false", hint=hint)
    return torch.from_numpy(result.arg_true().cast(pl.Int64).to_numpy(writable=True))


def _check(condition: str, names: Collection[str], hint: str) -> None:
    """A UserError for anything but names of features, values, comparisons and arithmetic."""
    place, was_operand, needs_operand = 0, False, True
    while place < len(condition.rstrip()):
        token = _TOKEN.match(condition, place)
        if token is None:
            raise UserError(
                f"cannot read the condition {condition!r} at {condition[place : place + 20]!r}",
                hint=hint,
            )
        word, quoted = token["word"], token["quoted"]
        name = quoted.replace('""', '"') if quoted else word
        is_name = bool(quoted) or (bool(word) and word.lower() not in _WORDS)
        if is_name and name not in names:
            raise UserError(f"there is no feature {name!r}", hint=hint)
        is_operand = is_name or token["value"] is not None
        if needs_operand and _follows_operand(word, token["sign"]):
            raise UserError(
                f"cannot read the condition {condition!r} at {condition[place:].strip()[:20]!r}: "
                "a feature or a value should stand before it",
                hint=hint,
            )
        if was_operand and (is_operand or token["sign"] == "("):  # a call, or a typed text
            raise UserError(
                f"cannot read the condition {condition!r}: it may not call functions", hint=hint
            )
        place, was_operand = token.end(), is_operand
        needs_operand = not is_operand and (word or token["sign"] or "").lower() not in _OPERANDS
    if needs_operand:
        raise UserError(
            f"cannot read the condition {condition!r}: it ends too early, or is empty", hint=hint
        )


def _follows_operand(word: str | None, sign: str | None) -> bool:
    """Whether a token needs a feature or a value before it."""
    if word is not None:
        return word.lower() in _WORDS - _OPERANDS - {"not", *_AFTER_NOT}
    return sign is not None and sign not in "(+-"


def to_table(features: Features) -> pl.DataFrame:
    """The features as they were read: numbers, and categories as words; null where missing."""
    columns = {}
    for place, name in enumerate(features.columns.numbers):
        values = pl.Series(features.numbers[:, place].numpy(), nan_to_null=True)
        columns[name] = values.cast(pl.String).cast(pl.Float64)  # 19.99, not 19.989999
    for place, (name, levels) in enumerate(features.columns.levels.items()):
        places = pl.Series(features.categories[:, place].numpy())
        columns[name] = pl.Series(levels, dtype=pl.String).gather(
            pl.select(pl.when((places >= 0) & (places < len(levels))).then(places)).to_series()
        )
    return pl.DataFrame(columns)
