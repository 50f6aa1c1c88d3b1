"""Published figures beside measured ones: rows, numbered by their sources, and notes on them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rankfold.report.formats import UNKNOWN, count


class PublishedFigures(NamedTuple):
    """Published rows with the precision of their source, best first."""

    rows: Sequence[tuple[str, int, Sequence[str]]]  # name, number of the source, a cell per metric
    notes: Sequence[str]  # a sentence on the data, then the sources


def published_figures(results: Mapping[str, Any]) -> PublishedFigures | None:
    """None without published figures for this data."""
    known, metrics = results.get("published"), results["metrics"]
    if not known or not known["rows"]:
        return None
    origins = list(dict.fromkeys(row["origin"] for row in known["rows"]))
    decimals = dict.fromkeys(origins, 0)
    for row in known["rows"]:
        longest = max(len(str(value)) for value in row["metrics"].values()) - len("0.")
        decimals[row["origin"]] = max(decimals[row["origin"]], longest)
    rows = []
    for row in known["rows"]:
        own, n = [row["metrics"].get(name) for name in metrics], decimals[row["origin"]]
        cells = [UNKNOWN if value is None else f"{value:.{n}f}" for value in own]
        rows.append((row["name"], 1 + origins.index(row["origin"]), cells))
    sources = [f"[{number}] {origin}." for number, origin in enumerate(origins, start=1)]
    return PublishedFigures(rows, [_note(known, results["data"]["summary"]), *sources])


def _note(known: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    sizes = f"{count(known['queries'])} queries and {count(known['candidates'])} candidates"
    note = f"Published figures were measured by others, on {sizes}, and take no part in the tests."
    if known["same"]:
        return note
    own = f"{count(summary['queries'])} and {count(summary['candidates'])}"
    return f"{note} This data has {own}: it was prepared differently, so do not compare the values."
