"""``rankfold info``: what a folder holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.cli.console import AsJson, console, print_json
from rankfold.cli.index import describe_index
from rankfold.errors import UserError, pluralize

if TYPE_CHECKING:
    from rich.console import Console

    from rankfold.types import Dataset


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    *,
    plot: Annotated[
        Path | None, typer.Option(help="Draw what a spectral fit tried.", metavar="F.svg")
    ] = None,
    json: AsJson = False,
) -> None:
    """Tell what a data, model or checkpoint folder holds."""
    from rankfold import storage

    manifest = dict(storage.read(folder).manifest)
    if plot is not None:
        _plot(manifest, folder, plot)
    if json:
        print_json(manifest)
        return
    out = console()
    size = sum(entry["size"] for entry in manifest["files"].values())
    written = manifest["versions"]["rankfold"]
    out.print(f"{folder}: {manifest['kind']}, {_bytes(size)}, by rankfold {written}")
    if manifest["kind"] == "data":
        _describe_summary(manifest["summary"], out)
    elif manifest["kind"] == "model":
        _describe_model(manifest, out)


def _plot(manifest: dict[str, Any], folder: Path, out: Path) -> None:
    from rankfold.report.path import path_svg

    path = manifest.get("notes", {}).get("path", [])
    if len(path) < 2:
        raise UserError(
            f"{folder} has no path to draw", hint="fit rg2 on data with validation pairs"
        )
    svg = path_svg(path, manifest["config"], manifest["notes"].get("metric", "score"))
    try:
        out.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}", hint="name another file") from None


def describe_data(data: Dataset, name: str, out: Console) -> None:
    """A summary of prepared data that people can read."""
    out.print(f"{name}: data")
    _describe_summary(dict(data.summary), out)


def _describe_summary(summary: dict[str, Any], out: Console) -> None:
    if "pairs" not in summary:
        _describe_graded(summary, out)
        return
    out.print(
        f"  {summary['queries']:,} queries x {summary['candidates']:,} candidates, "
        f"{summary['pairs']:,} pairs (density {summary['density']:.2%})"
    )
    splits = ", ".join(f"{name} {summary[name]:,}" for name in ("train", "validation", "test"))
    out.print(f"  split: {splits}")
    for name in ("validation", "test"):
        if summary[name] == 0:
            why = "none was asked for, or no query has enough pairs"
            out.print(f"  there is no {name}: {why}", style="yellow")
    for side in ("query", "candidate"):
        spread = summary[f"pairs_per_{side}"]
        out.print(f"  pairs per {side}: median {spread['median']:,}, most {spread['max']:,}")
    if (grades := summary["grades"]) is not None:
        out.print(
            f"  grades: {grades['lowest']:g} to {grades['highest']:g}, mean {grades['mean']:.3g}"
        )
    for side, entry in summary.get("features", {}).items():
        _describe_features(side, entry, out)
    if "texts" in summary:
        _describe_texts(summary["texts"], out)
    _describe_rows(summary, out)


def _describe_rows(summary: dict[str, Any], out: Console) -> None:
    """How many rows were read, and what became of those that were not used."""
    out.print(f"  rows read: {summary['rows']:,}")
    describe_dropped(summary["dropped"], out)


def describe_dropped(entries: list[dict[str, Any]], out: Console) -> None:
    """The rows that were left out, why, and where the first of them are."""
    for entry in entries:
        first = f" ({', '.join(entry['first'])})" if entry.get("first") else ""
        out.print(f"  dropped: {entry['rows']:,} for {entry['why']}{first}")


def _describe_graded(summary: dict[str, Any], out: Console) -> None:
    """Rows with an ordered grade each: how many of each grade, and what is known of them."""
    parts = {name: summary[name] for name in ("train", "validation", "test")}
    names = summary["grade_names"]
    rows = ", ".join(f"{name} {part['rows']:,}" for name, part in parts.items())
    n_rows = sum(part["rows"] for part in parts.values())
    out.print(f"  {pluralize(n_rows, 'row')} of {len(names)} grades")
    out.print(f"  split: {rows}")
    for name in ("validation", "test"):
        if parts[name]["rows"] == 0:
            out.print(f"  there is no {name}", style="yellow")
    for place, grade in enumerate(names):
        counts = {name: part["grades"][place] for name, part in parts.items()}
        each = ", ".join(f"{name} {n:,}" for name, n in counts.items())
        lacking = any(n == 0 and parts[name]["rows"] for name, n in counts.items())
        style = "yellow" if lacking else None
        name = f"{place}" if grade == str(place) else f"{place}, {grade}"
        out.print(f"  grade {name}: {sum(counts.values()):,} ({each})", style=style)
    out.print(f"  columns: {_columns(summary['numbers'], summary['categories'])}")
    if summary["images"] is not None:
        height, width, channels = summary["images"]
        out.print(f"  images: {height} x {width}, {'grey' if channels == 1 else 'colour'}")
    for entry in summary.get("left_out", []):
        out.print(f"  column left out: {entry['column']} ({entry['why']})", style="yellow")
    for entry in summary.get("doubtful", []):
        _describe_doubt("column", entry, out)
    if "rows" in summary:
        _describe_rows(summary, out)


def _columns(numbers: int, categories: int) -> str:
    return f"{pluralize(numbers, 'number')}, {pluralize(categories, 'category', 'categories')}"


def _describe_features(side: str, entry: dict[str, Any], out: Console) -> None:
    """What a table of features gave."""
    out.print(
        f"  {side} features: {_columns(entry['numbers'], entry['categories'])}; "
        f"keys without features {entry['without_features']:,}, without pairs "
        f"{entry['without_pairs']:,}"
    )
    if entry["left_out"]:
        columns = ", ".join(entry["left_out"])
        out.print(f"  {side} features that cannot be used: {columns}", style="yellow")
    for doubt in entry.get("doubtful", []):
        _describe_doubt(f"{side} feature", doubt, out)
    _describe_dropped(f"{side} features", entry["dropped"], out)


def _describe_doubt(what: str, entry: dict[str, str], out: Console) -> None:
    told = f"  {what} {entry['column']} is read as categories: {entry['why']}"
    out.print(told, style="yellow")


def _describe_texts(entry: dict[str, Any], out: Console) -> None:
    """What was written of either side."""
    kind = "bags of features" if entry["kind"] == "bags" else f"tokens are {entry['kind']}s"
    out.print(f"  texts: {kind}, {entry['tokens']:,} different ones")
    for side in ("query", "candidate"):
        if side in entry:
            mine = entry[side]
            out.print(
                f"  {side} texts: tokens per text median {mine['median']:,}, most {mine['max']:,}; "
                f"empty {mine['empty']:,}, keys without text {mine['without_text']:,}, without "
                f"pairs {mine['without_pairs']:,}"
            )
            _describe_dropped(f"{side} texts", mine["dropped"], out)


def _describe_dropped(what: str, entries: list[dict[str, Any]], out: Console) -> None:
    for entry in entries:
        first = ", ".join(entry["first"])
        rows = pluralize(entry["rows"], "row")
        out.print(f"  {what}: {rows} dropped for {entry['why']} ({first})")


def _describe_model(manifest: dict[str, Any], out: Console) -> None:
    n_queries, n_candidates = manifest["sizes"]
    settings = ", ".join(f"{name}={value}" for name, value in manifest["config"].items())
    out.print(f"  {manifest['method']}{f' ({settings})' if settings else ''}")
    if manifest.get("data_kind") == "graded":
        _describe_grades(manifest, out)
    else:
        out.print(f"  {n_queries:,} queries x {n_candidates:,} candidates")
    if "texts" in manifest["files"]:
        given = "" if "tokenizer" in manifest["files"] else " of bags: new texts cannot be read"
        out.print(f"  ranks by text: {manifest['n_tokens']:,} different tokens{given}")
    for name in ("index", "likeness"):
        if name in manifest:
            size = sum(
                entry["size"]
                for file, entry in manifest["files"].items()
                if file.split("_")[0] == name
            )
            out.print(f"  {name}: {describe_index(manifest[name])}; {_bytes(size)}")
    notes = manifest["notes"]
    scores = [entry for entry in notes["history"] if "score" in entry]
    seconds = sum(entry["seconds"] for entry in notes["history"])
    out.print(f"  {len(notes['history'])} steps in {seconds:.1f} s, seed {notes['seed']}")
    _describe_growth(notes, "texts" if "texts" in manifest["files"] else "features", out)
    if notes.get("path"):
        out.print(f"  chosen by {notes['chosen_by']} from {len(notes['path'])} points of its path")
    if scores:
        last, best = scores[-1], max(scores, key=lambda entry: float(entry["score"]))
        kept, what = (best, "best") if notes.get("is_chosen", True) else (last, "last, not chosen")
        out.print(f"  {what} on validation: step {kept['step']}, score {kept['score']:.4f}")


def _describe_growth(notes: Mapping[str, Any], what: str, out: Console) -> None:
    """What the model began with, and what was added or removed since."""
    if "vectors" in notes:
        found, tokens = notes["vectors"]["found"], notes["vectors"]["tokens"]
        out.print(f"  {found:,} of {tokens:,} tokens started at the vectors of a file")
    for entry in notes.get("added", []):
        out.print(f"  {describe_addition(entry)}")
    if "extended" in notes:
        added = sum(entry["candidates"] for entry in notes["extended"])
        out.print(f"  {added:,} candidates were added by their {what}")
    if "removed" in notes:
        out.print(f"  {notes['removed']:,} queries were removed")


def _describe_grades(manifest: dict[str, Any], out: Console) -> None:
    """What a model of graded rows takes, and where its cuts come from."""
    columns, notes = manifest["columns"] or {"numbers": [], "levels": {}}, manifest["notes"]
    told = _columns(len(columns["numbers"]), len(columns["levels"]))
    if notes.get("image_shape"):
        told += f", images of {' x '.join(map(str, notes['image_shape']))}"
    where = notes.get("operating_on", "no")
    out.print(f"  {manifest['sizes'][1]:,} grades from {told}; cuts from {where} rows")


def describe_addition(entry: Mapping[str, Any]) -> str:
    """One entry of the notes on what was added, for people."""
    queries = f"new queries: {entry['queries']:,}; known ones that changed: {entry['changed']:,}"
    unknown = f"pairs left out: {entry['left_out']:,} (candidates: {entry['unknown_candidates']:,})"
    left_out = f"; {unknown}, unknown to the model" if entry["left_out"] else ""
    return f"added pairs: {entry['pairs']:,}; {queries}{left_out}"


def _bytes(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"
