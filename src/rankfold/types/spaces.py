"""Search spaces: the settings of a method that ``rankfold tune`` tries, as plain data.

A space leaves out ``width`` (the user decides the cost of a model), targets such as
``fpr``, and everything that a method selects on validation by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from rankfold.errors import UserError


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high``, both included."""

    low: float
    high: float
    log: bool = False  # as likely between 1 and 10 as between 10 and 100
    whole: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.log and self.low <= 0):
            raise UserError(
                f"a range cannot go from {self.low} to {self.high}",
                hint="`low` must be at most `high`, and above 0 if `log`",
            )

    def holds(self, value: object) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Choices:
    """One of a few values."""

    values: tuple[bool | int | float | str, ...]

    def holds(self, value: object) -> bool:
        return value in self.values


Space: TypeAlias = Mapping[str, Range | Choices]


def count_points(space: Space) -> int | None:
    """The number of points in a space: 1 if it is empty, None if it has a range."""
    sizes = [len(where.values) for where in space.values() if isinstance(where, Choices)]
    return prod(sizes) if len(sizes) == len(space) else None
