"""``rankfold info``: describe a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankfold import storage
from rankfold.cli.console import console, print_json
from rankfold.cli.index import INDEX_NAMES, describe_index
from rankfold.cli.options import Folder, Json, takes
from rankfold.errors import UserError, format_bytes, pluralize

if TYPE_CHECKING:
    from rich.console import Console

    from rankfold.types import Dataset


_COLUMNS_SHOWN = 10  # columns to show
_MANY_LOST = 0.2  # share of rows without a key


def command(
    folder: Folder,
    *,
    plot: Annotated[
        Path | None, takes("F.svg", "Draw the settings that a spectral fit tried.")
    ] = None,
    json: Json = False,
) -> None:
    """Describe a data, model or checkpoint folder."""
    manifest = dict(storage.read(folder).manifest)
    if plot is not None:
        _plot(manifest, folder, plot)
    if json:
        print_json(manifest)
        return
    out = console()
    size = sum(entry["size"] for entry in manifest["files"].values())
    version = manifest["versions"]["rankfold"]
    out.print(f"{folder}: {manifest['kind']}, {format_bytes(size)}, written by rankfold {version}")
    if manifest["kind"] == "data":
        _describe_summary(manifest["summary"], out)
        out.print(f"  data {manifest['fingerprint'][:16]}")
    elif manifest["kind"] == "model":
        _describe_model(manifest, out)


def _plot(manifest: dict[str, Any], folder: Path, out: Path) -> None:
    from rankfold.report.pictures import path_svg

    path = manifest.get("notes", {}).get("path", [])
    if len(path) < 2:
        raise UserError(
            f"{folder} has no path to draw", hint="fit rg2 on data with validation pairs"
        )
    storage.write_text(
        out, path_svg(path, manifest["config"], manifest["notes"].get("metric", "score"))
    )


def describe_data(data: Dataset, name: str, out: Console) -> None:
    """Print a summary of prepared data."""
    out.print(f"{name}: data")
    _describe_summary(dict(data.summary), out)


def _describe_summary(summary: dict[str, Any], out: Console) -> None:
    if "pairs" in summary:
        _describe_pairs(summary, out)
    else:
        _describe_graded(summary, out)
    if "rows" in summary:
        out.print(f"  rows read: {summary['rows']:,}")
        describe_dropped(summary["dropped"], out)
        _describe_lost(summary, out)


def _describe_lost(summary: dict[str, Any], out: Console) -> None:
    """Print that many rows have no key, and a frequent reason."""
    for side in ("query", "candidate"):
        lost = sum(e["rows"] for e in summary["dropped"] if e["why"] == f"a missing {side}")
        if lost > _MANY_LOST * summary["rows"]:
            share = f"{lost / summary['rows']:.0%} of the rows have no {side}"
            hint = "if an empty cell means the one above it, fill the cells in and prepare again"
            out.print(f"  {share}: {hint}", style="yellow")


def _describe_pairs(summary: dict[str, Any], out: Console) -> None:
    out.print(
        f"  {summary['queries']:,} queries x {summary['candidates']:,} candidates, "
        f"{summary['pairs']:,} pairs (density {summary['density']:.2%})"
    )
    names = [name for name in ("train", "validation", "test", "given") if name in summary]
    out.print(f"  split: {', '.join(f'{name} {summary[name]:,}' for name in names)}")
    for name in ("validation", "test"):
        if summary[name] == 0:
            why = "not requested, or no query has enough pairs"
            out.print(f"  no {name} pairs: {why}", style="yellow")
    for side in ("query", "candidate"):
        spread = summary[f"pairs_per_{side}"]
        out.print(f"  pairs per {side}: median {spread['median']:,}, maximum {spread['max']:,}")
    if (grades := summary["grades"]) is not None:
        out.print(
            f"  grades: {grades['lowest']:g} to {grades['highest']:g}, mean {grades['mean']:.3g}"
        )
    for side, entry in summary.get("features", {}).items():
        _describe_features(side, entry, out)
    if "texts" in summary:
        _describe_texts(summary["texts"], out)


def describe_dropped(entries: list[dict[str, Any]], out: Console, of: str = "") -> None:
    """Print how many rows were dropped, why, and where the first of them are."""
    for entry in entries:
        first = f" ({', '.join(entry['first'])})" if entry.get("first") else ""
        n = entry["rows"]
        what = f"{of}: {pluralize(n, 'row')} dropped" if of else f"dropped: {n:,}"
        out.print(f"  {what} for {entry['why']}{first}")


def _describe_graded(summary: dict[str, Any], out: Console) -> None:
    """Print the grades and the columns of graded rows."""
    parts = {name: summary[name] for name in ("train", "validation", "test")}
    names = summary["grade_names"]
    rows = ", ".join(f"{name} {part['rows']:,}" for name, part in parts.items())
    n_rows = sum(part["rows"] for part in parts.values())
    out.print(f"  {pluralize(n_rows, 'row')} of {len(names)} grades")
    out.print(f"  split: {rows}")
    for name in ("validation", "test"):
        if parts[name]["rows"] == 0:
            out.print(f"  no {name} rows", style="yellow")
    for level, grade in enumerate(names):
        counts = {name: part["grades"][level] for name, part in parts.items()}
        by_split = ", ".join(f"{name} {n:,}" for name, n in counts.items())
        is_missing = any(n == 0 and parts[name]["rows"] for name, n in counts.items())
        style = "yellow" if is_missing else None
        name = f"{level}" if grade == str(level) else f"{level}, {grade}"
        out.print(f"  grade {name}: {sum(counts.values()):,} ({by_split})", style=style)
    out.print(f"  columns: {_columns(summary['numbers'], summary['categories'])}")
    if summary["images"] is not None:
        height, width, channels = summary["images"]
        out.print(f"  images: {height} x {width}, {'grey' if channels == 1 else 'colour'}")
    for entry in summary.get("left_out", []):
        out.print(f"  column dropped: {entry['column']} ({entry['why']})", style="yellow")
    for entry in summary.get("doubtful", []):
        _describe_doubt("column", entry, out)
    for column, n in summary.get("too_large", {}).items():
        message = f"  column {column}: {pluralize(n, 'value')} beyond 3.4e38 treated as missing"
        out.print(message, style="yellow")
    _describe_suspicions(summary, out)


def _describe_suspicions(summary: dict[str, Any], out: Console) -> None:
    """Print what may make figures on these rows too high."""
    if not summary.get("suspicious") and not summary.get("equal_rows"):
        return
    from rankfold.data.build.leakage import describe_equal, describe_suspicious

    for entry in summary.get("suspicious", []):
        out.print(f"  {describe_suspicious(entry, summary['grade_names'])}", style="yellow")
    for entry in summary.get("equal_rows", []):
        out.print(f"  {describe_equal(entry)}", style="yellow")


def _columns(numbers: int, categories: int) -> str:
    return f"{pluralize(numbers, 'number')}, {pluralize(categories, 'category', 'categories')}"


def _describe_features(side: str, entry: dict[str, Any], out: Console) -> None:
    """Print the columns of a table of features, and its unusable ones."""
    out.print(
        f"  {side} features: {_columns(entry['numbers'], entry['categories'])}; "
        f"keys without features: {entry['without_features']:,}, without pairs: "
        f"{entry['without_pairs']:,}"
    )
    if entry["left_out"]:
        columns = ", ".join(entry["left_out"])
        out.print(f"  unusable {side} features: {columns}", style="yellow")
    for doubt in entry.get("doubtful", []):
        _describe_doubt(f"{side} feature", doubt, out)
    for suspect in entry.get("suspect", []):
        what = f"{side} feature {suspect['column']} {suspect['why']}"
        out.print(f"  {what}", style="yellow")
    describe_dropped(entry["dropped"], out, f"{side} features")


def _describe_doubt(what: str, entry: dict[str, str], out: Console) -> None:
    message = f"  {what} {entry['column']} is read as categories: {entry['why']}"
    out.print(message, style="yellow")


def _describe_texts(entry: dict[str, Any], out: Console) -> None:
    """Print the sizes of the texts."""
    kind = "bags of features" if entry["kind"] == "bags" else f"tokens are {entry['kind']}s"
    out.print(f"  texts: {kind}, {entry['tokens']:,} distinct")
    for side, texts in ((side, entry[side]) for side in ("query", "candidate") if side in entry):
        out.print(
            f"  {side} texts: tokens per text: median {texts['median']:,}, maximum "
            f"{texts['max']:,}; empty: {texts['empty']:,}; keys without text: "
            f"{texts['without_text']:,}, without pairs: {texts['without_pairs']:,}"
        )
        for script in texts.get("unseparated", []):
            out.print(
                f"  {side} texts: {script['texts']:,} in the script {script['script']} have "
                f"{script['words']:g} words each: nothing separates words, so only equal texts "
                "match; separate them by spaces",
                style="yellow",
            )
        describe_dropped(texts["dropped"], out, f"{side} texts")


def _describe_model(manifest: dict[str, Any], out: Console) -> None:
    n_queries, n_candidates = manifest["sizes"]
    settings = ", ".join(f"{name}={value}" for name, value in manifest["config"].items())
    out.print(f"  {manifest['method']}{f' ({settings})' if settings else ''}")
    if manifest.get("data_kind") == "graded":
        _describe_grades(manifest, out)
    else:
        out.print(f"  {n_queries:,} queries x {n_candidates:,} candidates")
    _describe_fitted(manifest["notes"], out)
    files, notes = manifest["files"], manifest["notes"]
    if "texts" in files:
        bags = "" if "tokenizer" in files else " of bags; it cannot read new texts"
        out.print(f"  ranks by text: {manifest['n_tokens']:,} distinct tokens{bags}")
    for name, shown in INDEX_NAMES.items():
        if name in manifest:
            size = sum(files[file]["size"] for file in files if file.split("_")[0] == name)
            out.print(f"  {shown}: {describe_index(manifest[name])}; {format_bytes(size)}")
    scores = [entry for entry in notes["history"] if "score" in entry]
    seconds = sum(entry["seconds"] for entry in notes["history"])
    out.print(f"  {len(notes['history'])} steps in {seconds:.1f} s, seed {notes['seed']}")
    _describe_growth(notes, "texts" if "texts" in files else "features", out)
    if notes.get("path"):
        out.print(f"  chosen by {notes['chosen_by']} from {len(notes['path'])} points on the path")
    if scores:
        last, best = scores[-1], max(scores, key=lambda entry: float(entry["score"]))
        is_chosen = notes.get("is_chosen", True)
        kept, which = (best, "best") if is_chosen else (last, "last")
        out.print(f"  {which} on validation: step {kept['step']}, score {kept['score']:.4f}")


def _describe_fitted(notes: Mapping[str, Any], out: Console) -> None:
    """Print the data that the model was fitted on."""
    about = notes.get("data_summary", {})
    sizes = {name: about[name] for name in ("train", "validation", "test") if name in about}
    rows = any(isinstance(size, Mapping) for size in sizes.values())
    counts = [size["rows"] if isinstance(size, Mapping) else size for size in sizes.values()]
    splits = ", ".join(f"{name} {n:,}" for name, n in zip(sizes, counts, strict=True))
    on = "train and validation" if notes.get("refit") else "train"
    of = f" of {sum(counts):,} {'rows' if rows else 'pairs'} ({splits})" if sizes else ""
    out.print(f"  fitted on {on}{of}")
    where = [f"source {about['source']}"] if about.get("source") else []
    where += [f"{role} = {name}" for role, name in about.get("columns", {}).items()]
    data = f"data {str(notes.get('data', ''))[:16]}"
    out.print(f"  {'; '.join([data, ', '.join(where)] if where else [data])}")


def _describe_growth(notes: Mapping[str, Any], what: str, out: Console) -> None:
    """Print where the model started, and what was added or removed since the fit."""
    if "vectors" in notes:
        known, tokens = notes["vectors"]["found"], notes["vectors"]["tokens"]
        out.print(f"  {known:,} of {tokens:,} tokens started from vectors in a file")
    if "pretrained" in notes:
        source = notes["pretrained"]
        out.print(f"  encoder from the folder {source['folder']} ({source['checksum'][:16]}...)")
    if "given_vectors" in notes:
        source = notes["given_vectors"]
        out.print(f"  vectors from {source['file']} ({source['checksum'][:16]}...)")
    for entry in notes.get("added", []):
        out.print(f"  {describe_addition(entry)}")
    if "extended" in notes:
        added = sum(entry["candidates"] for entry in notes["extended"])
        out.print(f"  {added:,} candidates were added from their {what}")
    if "removed" in notes:
        out.print(f"  {notes['removed']:,} queries were removed")


def _describe_grades(manifest: dict[str, Any], out: Console) -> None:
    """Print the input of a model of graded rows, and where its thresholds come from."""
    columns, notes = manifest["columns"] or {"numbers": [], "levels": {}}, manifest["notes"]
    inputs = _columns(len(columns["numbers"]), len(columns["levels"]))
    if notes.get("image_shape"):
        inputs += f", images of {' x '.join(map(str, notes['image_shape']))}"
    split = notes.get("operating_on", "no")
    out.print(f"  {manifest['sizes'][1]:,} grades from {inputs}; thresholds from {split} rows")

    if notes.get("importance"):
        importance = notes["importance"]
        for key, by in (("columns", "fall of the AUC if shuffled"), ("gain", "share of the gain")):
            columns = sorted(importance.get(key, {}).items(), key=lambda column: -column[1])
            words = ", ".join(f"{name} {value:.3g}" for name, value in columns[:_COLUMNS_SHOWN])
            if words:
                out.print(f"  most important columns ({by}): {words}")


def describe_addition(entry: Mapping[str, Any]) -> str:
    """One entry of the notes on added pairs, in words."""
    parts = [
        f"added pairs: {entry['pairs']:,}",
        f"new queries: {entry['queries']:,}",
        f"changed queries: {entry['changed']:,}",
    ]
    if entry["left_out"]:
        candidates = pluralize(entry["unknown_candidates"], "unknown candidate")
        parts.append(f"skipped pairs: {entry['left_out']:,} ({candidates})")
    if entry.get("indexes_dropped"):
        parts.append("its index was removed: `rankfold index` builds a new one")
    return "; ".join(parts)
