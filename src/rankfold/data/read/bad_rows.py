"""A record of the rows that cannot be used: why, how many, and where the first of them are."""

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from rankfold.errors import pluralize

PLACES_SHOWN = 3


@dataclass(slots=True)
class BadRows:
    """Unusable rows: the reasons, their counts and the first places of each."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, reason: str, place: str, n: int = 1) -> None:
        """Record ``n`` rows, the first of them at ``place`` (for example ``ratings.csv:17``)."""
        self.counts[reason] = self.counts.get(reason, 0) + n
        places = self.places.setdefault(reason, [])
        if len(places) < PLACES_SHOWN:
            places.append(place)

    def add_rows(self, reason: str, places: pl.Series, table: str | None = None) -> None:
        """Record rows at their places, or at their lines in a table."""
        for number, place in enumerate(places.head(PLACES_SHOWN)):
            where = place if table is None else f"{table}:{place}"
            self.add(reason, where, 0 if number else len(places))

    def describe(self) -> list[str]:
        """One line per reason: ``12 rows with a missing query (a.csv:17, a.csv:40, ...)``."""
        lines = []
        for reason, count in self.counts.items():
            more = ", ..." if count > len(self.places[reason]) else ""
            places = ", ".join(self.places[reason])
            lines.append(f"{pluralize(count, 'row')} with {reason} ({places}{more})")
        return lines

    def hint(self, default: str = "is it the right file?") -> str:
        """The same as a hint, or the default if no row was bad."""
        return "; ".join(self.describe()) or default

    def summary(self) -> list[dict[str, Any]]:
        """The same as plain JSON."""
        return [
            {"why": reason, "rows": n, "first": self.places[reason]}
            for reason, n in self.counts.items()
        ]
