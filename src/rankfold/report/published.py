"""Published figures beside measured ones: rows, numbered by their sources, and a note on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rankfold.report.format import UNKNOWN, count

Results = Mapping[str, Any]


class PublishedRow(NamedTuple):
    """The figures of one method, as printed in their source."""

    name: str
    source: int  # counts from 1
    cells: Sequence[str]  # by the metrics of the comparison


class PublishedFigures(NamedTuple):
    """All rows, best first, their sources, and what is known about their data."""

    rows: Sequence[PublishedRow]
    sources: Sequence[str]
    note: str


def published_figures(results: Results) -> PublishedFigures | None:
    """None without published figures for this data."""
    given = results.get("published")
    if not given or not given["rows"]:
        return None
    metrics, rows = results["metrics"], given["rows"]
    sources = list(dict.fromkeys(row["origin"] for row in rows))
    decimals = {
        origin: max(_decimals(v) for row in rows if row["origin"] == origin for v in _values(row))
        for origin in sources
    }
    first = next(name for name in metrics if any(name in row["metrics"] for row in rows))
    ordered = sorted(rows, key=lambda row: -row["metrics"].get(first, -1.0))
    return PublishedFigures(
        rows=[
            PublishedRow(
                row["name"],
                sources.index(row["origin"]) + 1,
                [_cell(row["metrics"].get(name), decimals[row["origin"]]) for name in metrics],
            )
            for row in ordered
        ],
        sources=sources,
        note=_note(given, results["data"]["summary"]),
    )


def _note(given: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    sizes = f"{count(given['queries'])} queries and {count(given['candidates'])} candidates"
    note = f"Published figures were measured by others, on {sizes}, and take no part in the tests."
    if given["same"]:
        return note
    own = f"{count(summary['queries'])} and {count(summary['candidates'])}"
    return f"{note} This data has {own}: it was prepared differently, so do not compare the values."


def _values(row: Mapping[str, Any]) -> list[float]:
    return list(row["metrics"].values())


def _decimals(value: float) -> int:
    return len(repr(value).partition(".")[2])


def _cell(value: float | None, decimals: int) -> str:
    return UNKNOWN if value is None else f"{value:.{decimals}f}"
