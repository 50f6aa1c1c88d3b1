"""Tables of interactions: CSV, TSV, JSON lines, Parquet and Arrow IPC, plain or compressed.

Every input becomes a temporary Parquet file of the few columns that are needed, with a reason
beside each row that cannot be used. polars streams it; where polars refuses a text or would pad a
short line, ``slow`` reads it and says which lines are wrong.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rankfold.data import slow
from rankfold.data.reading import LINE, Reading, base_suffix, open_binary
from rankfold.errors import UserError

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
ARROW = (".arrow", ".ipc", ".feather")
NONE = "none"  # a column name that means: do not use one
TIMES = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.fZ")


class Columns(NamedTuple):
    """The columns to read; None where they are to be guessed from their names."""

    query: str | None = None
    candidate: str | None = None
    grade: str | None = None
    time: str | None = None


USUAL_NAMES = {
    "query": "query user user_id userid uid username reviewerid customer customer_id customerid "
    "visitor visitorid session session_id sessionid src source from head document doc",
    "candidate": "candidate item item_id itemid iid movie movie_id movieid product product_id "
    "productid parent_asin asin track track_id song artist artist_id book book_id isbn "
    "business_id location_id article article_id label tag dst target to tail",
    "grade": "grade rating ratings overall stars score weight count plays playcount hours",
    "time": "time timestamp date datetime unixreviewtime ts created_at review_date",
}


def read_tables(
    files: Sequence[Path], columns: Columns, reading: Reading, *, header: bool = True
) -> pl.LazyFrame:
    """Rows ``query, candidate[, grade][, time]`` of all files; bad rows are noted and left out."""
    frames = []
    for number, path in enumerate(files):
        reading.progress(f"reading {path.name}", number / len(files))
        if _is_text(path):
            frames.append(_read_text(path, columns, reading, header=header))
        else:
            frames.append(_read_binary(path, columns, reading))
    return stack(frames)


def stack(frames: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """One frame after another: the columns they share, keys of unlike types as text."""
    schemas = [frame.collect_schema() for frame in frames]
    shared = [name for name in schemas[0].names() if all(name in schema for schema in schemas)]
    unlike = [name for name in shared if len({schema[name] for schema in schemas}) > 1]
    return pl.concat(
        [frame.select(shared).with_columns(pl.col(unlike).cast(pl.String)) for frame in frames]
    )


def read_frame(frame: pl.LazyFrame, columns: Columns, name: str, reading: Reading) -> pl.LazyFrame:
    """The usable rows of a frame from elsewhere, bad rows named by their number."""
    numbered = frame.with_row_index(LINE, offset=1)
    return _usable(_sink(numbered, columns, name, reading), name, reading, lambda rows: rows)


def read_keys(path: Path, column: str | None, reading: Reading) -> pl.Series:
    """The query keys of one file, in its order; rows without one are left out."""
    scan = _scan_text if _is_text(path) else _scan_binary
    try:
        raw = scan(path, reading)
        schema = raw.collect_schema()
    except pl.exceptions.PolarsError as error:
        raise _unreadable(path, error) from error
    names = [name for name in schema.names() if name not in (LINE, "padded")]
    name = column or _guess("query", names) or (names[0] if len(names) == 1 else None)
    if name not in names:
        problem = f"has no column {name!r}" if name else "has no column that is surely the query"
        raise UserError(
            f"{path.name} {problem}", hint=f"it has {', '.join(names)}; use --query-column NAME"
        )
    key = _key(pl.col(name), schema[name], f"column {name!r} of {path.name}")
    try:
        return raw.select(key.alias("query")).drop_nulls().collect().to_series()
    except pl.exceptions.PolarsError as error:
        raise _unreadable(path, error) from error


# ---------------------------------------------------------------------------------- files


def _is_text(path: Path) -> bool:
    return base_suffix(path) not in (".parquet", *ARROW)


def _read_text(path: Path, columns: Columns, reading: Reading, *, header: bool) -> pl.LazyFrame:
    """A text table: by polars if it takes the file as it stands, else record by record."""
    separator = _separator(path)
    try:
        frame = _sink(_scan_text(path, header=header), columns, path.name, reading)
        padded = frame.select(pl.col("padded").any()).collect().item()
    except pl.exceptions.NoDataError:
        raise UserError(
            f"{path.name} is empty", hint="a table needs a line of column names"
        ) from None
    except pl.exceptions.PolarsError:
        padded = True
    if padded:
        exact = slow.read(path, separator, reading, header=header)
        frame = _sink(exact, columns, path.name, reading)
        return _usable(frame, path.name, reading, lambda lines: lines)
    return _usable(
        frame,
        path.name,
        reading,
        lambda rows: slow.line_numbers(path, separator, rows, header=header),
    )


def _scan_text(path: Path, _reading: Reading | None = None, *, header: bool = True) -> pl.LazyFrame:
    """All columns as text: the key 007 is not 7; ``padded`` where a column may be missing."""
    if base_suffix(path) in slow.JSON_LINES:
        names = pl.scan_ndjson(path, infer_schema_length=1000).collect_schema().names()
        schema = dict.fromkeys(names, pl.String())
        return pl.scan_ndjson(path, schema=schema, row_index_name=LINE, row_index_offset=1)
    frame = pl.scan_csv(
        path, separator=_separator(path), has_header=header, infer_schema=False, glob=False
    )
    names = frame.collect_schema().names()
    blank = pl.all_horizontal(pl.col(names).is_null())
    return (
        frame.with_row_index(LINE, offset=1)
        .filter(~blank)
        .with_columns(padded=pl.col(names[-1]).is_null())
    )


def _read_binary(path: Path, columns: Columns, reading: Reading) -> pl.LazyFrame:
    """A Parquet or Arrow file, whose columns have types of their own."""
    try:
        sunk = _sink(_scan_binary(path, reading), columns, path.name, reading)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from error
    return _usable(sunk, path.name, reading, lambda rows: rows)


def _scan_binary(path: Path, reading: Reading) -> pl.LazyFrame:
    scan = pl.scan_parquet if base_suffix(path) == ".parquet" else pl.scan_ipc
    return scan(_decompressed(path, reading)).with_row_index(LINE, offset=1)


def _unreadable(path: Path, error: Exception) -> UserError:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return UserError(
        f"cannot read {path.name} as {base_suffix(path).lstrip('.') or 'text'}: {first}",
        hint="is the file complete, and does its name end in what it is?",
    )


def _decompressed(path: Path, reading: Reading) -> Path:
    if path.suffix.lower() not in (".gz", ".zst"):
        return path
    copy = reading.new_file()
    with open_binary(path) as packed, copy.open("wb") as file:
        shutil.copyfileobj(packed, file, 2**22)
    return copy


def _separator(path: Path) -> str:
    """What parts the columns: known from the name, else the commonest mark of the first line."""
    suffix = base_suffix(path)
    if suffix in SEPARATORS:
        return SEPARATORS[suffix]
    with open_binary(path) as file:
        first = file.readline(2**16)
    return max(",\t;|", key=lambda mark: first.count(mark.encode()))


# ---------------------------------------------------------------------------------- columns


def choose_columns(names: Sequence[str], asked: Columns, table: str) -> Columns:
    """The columns to read: those asked for, else the first whose name is a usual one."""
    has = f"it has {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
    chosen: dict[str, str | None] = dict.fromkeys(asked._fields)
    for role, wanted in asked._asdict().items():
        if wanted is not None and wanted != NONE and wanted not in names:
            raise UserError(
                f"{table} has no column {wanted!r}", hint=f"{has}; use --{role}-column NAME"
            )
        chosen[role] = wanted
    for role, wanted in asked._asdict().items():
        if wanted is None:
            chosen[role] = _guess(role, [name for name in names if name not in chosen.values()])
    if len(names) == 2 and chosen["query"] is None and chosen["candidate"] is None:
        chosen.update(query=names[0], candidate=names[1])
    for role in ("query", "candidate"):
        if chosen[role] is None:
            raise UserError(
                f"cannot tell which column of {table} is the {role}",
                hint=f"{has}; use --{role}-column NAME",
            )
    return Columns(**{role: None if name == NONE else name for role, name in chosen.items()})


def _guess(role: str, names: Sequence[str]) -> str | None:
    plain = {name.strip().lower().replace(" ", "_").replace("-", "_"): name for name in names}
    return next((plain[usual] for usual in USUAL_NAMES[role].split() if usual in plain), None)


# ---------------------------------------------------------------------------------- rows


def _sink(raw: pl.LazyFrame, asked: Columns, table: str, reading: Reading) -> pl.LazyFrame:
    """The chosen columns and, in ``reason``, why a row cannot be used; as a temporary file."""
    schema = raw.collect_schema()
    names = [name for name in schema.names() if name not in (LINE, "padded")]
    chosen = choose_columns(names, asked, table)
    values: dict[str, pl.Expr] = {}
    reasons: list[tuple[pl.Expr, str]] = []
    for role, name in chosen._asdict().items():
        if name is None:
            continue
        column, dtype = pl.col(name), schema[name]
        value = _VALUES[role](column, dtype, f"column {name!r} of {table}")
        missing = column.is_null() if dtype != pl.String else column.is_null() | (column == "")
        values[role] = value
        if role in ("query", "candidate"):
            reasons.append((value.is_null(), f"a missing {role}"))
        else:
            reasons.append((missing, f"a missing {role}"))
            reasons.append(
                (~value.is_finite().fill_null(value=False), f"a {role} that is {_BAD[role]}")
            )
    reason = pl.coalesce(*(pl.when(bad).then(pl.lit(why)) for bad, why in reasons))
    padded = pl.col("padded") if "padded" in schema else pl.lit(value=False)
    path = reading.new_file()
    raw.select(LINE, **values, reason=reason, padded=padded).sink_parquet(path)
    return pl.scan_parquet(path)


def _usable(
    frame: pl.LazyFrame, table: str, reading: Reading, lines_of: Callable[[list[int]], list[int]]
) -> pl.LazyFrame:
    """The rows without a reason against them; the others are noted with their first lines."""
    bad = (
        frame.filter(pl.col("reason").is_not_null())
        .group_by("reason")
        .agg(n=pl.len(), first=pl.col(LINE).sort().head(3))
        .sort(pl.col("first").list.first())
        .collect(engine="streaming")
    )
    for reason, n, first in bad.iter_rows():
        for line in lines_of(first):
            reading.bad.add(reason, f"{table}:{line}", 0)
        reading.bad.counts[reason] += n
    return frame.filter(pl.col("reason").is_null()).drop("reason", "padded", LINE)


def _key(column: pl.Expr, dtype: pl.DataType, where: str) -> pl.Expr:
    """Keys as Int64 or text; null where there is none."""
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
        raise UserError(f"{where} holds {dtype}", hint="keys are numbers or text")
    if dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        same = whole.cast(dtype) == column
        text = pl.when(column.is_not_nan()).then(column.cast(pl.String))
        return pl.when(same).then(whole.cast(pl.String)).otherwise(text)
    if dtype.is_integer() and dtype not in (pl.UInt64, pl.Int128, pl.UInt128):
        return column.cast(pl.Int64)
    keys = column.cast(pl.String)
    return pl.when(keys != "").then(keys)


def _number(column: pl.Expr, dtype: pl.DataType, where: str) -> pl.Expr:
    if dtype == pl.String:
        return column.str.strip_chars().cast(pl.Float64, strict=False).cast(pl.Float32)
    if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
        raise UserError(f"{where} holds {dtype}", hint="grades are numbers; `none` means no grades")
    return column.cast(pl.Float32)


def _seconds(column: pl.Expr, dtype: pl.DataType, where: str) -> pl.Expr:
    """Times as seconds since 1970, or whatever number they are."""
    if dtype == pl.String:
        dates = (column.str.strptime(pl.Datetime("us"), form, strict=False) for form in TIMES)
        number = column.str.strip_chars().cast(pl.Float64, strict=False)
        return pl.coalesce(number, *(date.dt.epoch("us") / 1e6 for date in dates))
    if dtype in (pl.Date, pl.Datetime):
        return column.dt.epoch("us") / 1e6
    if not (dtype.is_numeric() or dtype == pl.Null):
        raise UserError(f"{where} holds {dtype}", hint="times are numbers or dates")
    return column.cast(pl.Float64)


_VALUES: dict[str, Callable[[pl.Expr, pl.DataType, str], pl.Expr]] = {
    "query": _key,
    "candidate": _key,
    "grade": _number,
    "time": _seconds,
}
_BAD = {"grade": "not a number", "time": "neither a number nor a date"}
