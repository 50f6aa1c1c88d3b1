"""Tables of interactions: CSV, TSV, JSON lines, Parquet and Arrow IPC, plain or compressed.

Every input becomes a temporary Parquet file of the few columns that are needed, with a reason
beside each row that cannot be used. polars streams it; where polars would refuse a text or misread
it (a short line, a quote out of place), ``slow`` reads it and says which lines are wrong.
"""

from __future__ import annotations

import glob
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import polars as pl

from rankfold.data.read import record_reader
from rankfold.data.read.files import LINE, PLACES_SHOWN, Reading, base_suffix, lines, open_binary
from rankfold.errors import UserError

T = TypeVar("T")
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
ARROW = (".arrow", ".ipc", ".feather")
BOM = "\ufeff"
SPOOL_GROUP = 2**16  # rows of a temporary file that are read at once
NONE = "none"  # a column name that means: do not use one
LINES_COMPARED = 10  # to find the mark between columns
TIMES = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f%z")


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


def read_table(
    path: Path, columns: Columns, reading: Reading, *, header: bool = True
) -> pl.LazyFrame:
    """Rows ``query, candidate[, grade][, time]`` of a file; bad rows are noted and left out."""
    if is_text(path):
        return _read_text(path, columns, reading, header=header)
    return _read_binary(path, columns, reading)


def stack(tables: Sequence[tuple[str, pl.LazyFrame]]) -> pl.LazyFrame:
    """One table after another, each with its name; keys of unlike types become text."""
    frames = [frame for _, frame in tables]
    schemas = [frame.collect_schema() for frame in frames]
    for role in ("grade", "time"):
        having = [role in schema for schema in schemas]
        if any(having) and not all(having):
            one, other = (tables[having.index(has)][0] for has in (True, False))
            raise UserError(
                f"{one} has a column for the {role}, {other} has none",
                hint=f"name it alike in both, or use --{role}-column none to do without",
            )
    names = schemas[0].names()
    unlike = [name for name in names if len({schema[name] for schema in schemas}) > 1]
    return pl.concat(
        [frame.select(names).with_columns(pl.col(unlike).cast(pl.String)) for frame in frames]
    )


def read_frame(frame: pl.LazyFrame, columns: Columns, name: str, reading: Reading) -> pl.LazyFrame:
    """The usable rows of a frame from elsewhere, bad rows named by their number."""
    with readable(name):
        sunk = _sink(frame.with_row_index(LINE, offset=1), columns, name, reading)
    return _usable(sunk, name, reading)


def read_keys(path: Path, column: str | None, reading: Reading) -> pl.Series:
    """The query keys of one file, in its order; rows without one are left out."""

    def choose(names: Sequence[str]) -> list[str]:
        if column is None and is_text(path):
            _check_names(names, path, hint="add a line with a name, say query")
        name = column or _guess("query", names) or (names[0] if len(names) == 1 else "")
        if name not in names:
            problem = f"no column {name!r}" if name else "no column that is surely the query"
            raise UserError(
                f"{path.name} has {problem}", hint=f"{listing(names)}; use --query-column NAME"
            )
        return [name]

    def collect(raw: pl.LazyFrame) -> pl.Series:
        (name,) = choose(_names(raw))
        key = _key(pl.col(name), raw.collect_schema()[name], f"column {name!r} of {path.name}")
        return raw.select(key.alias("query")).drop_nulls().collect().to_series()

    if is_text(path):
        return _from_text(path, choose, collect, reading, header=True)
    with readable(path.name):
        return collect(_scan_binary(path, reading))


def read_columns(path: Path, reading: Reading) -> pl.DataFrame:
    """All columns of one file, its lines in ``LINE``; those of a text table as text."""

    def choose(names: Sequence[str]) -> Sequence[str]:
        _check_names(names, path, hint="add a line with the names of the columns")
        return names

    if is_text(path):
        return _from_text(path, choose, lambda raw: raw.collect(), reading, header=True)
    with readable(path.name):
        return _scan_binary(path, reading).collect()


def row_lines(path: Path) -> list[int]:
    """The line of each row of a text table, also of those that ``read_columns`` leaves out."""
    return record_reader.row_lines(path, _separator(path))


def spool_columns(path: Path, pick: record_reader.Pick, reading: Reading) -> pl.LazyFrame:
    """Some columns of one file, as ``read_columns``; as a temporary file: they may be many."""

    def choose(names: Sequence[str]) -> Sequence[str]:
        _check_names(names, path, hint="add a line with the names of the columns")
        return pick(names)

    def sink(raw: pl.LazyFrame) -> pl.LazyFrame:
        copy = reading.new_file()
        raw.sink_parquet(copy, row_group_size=SPOOL_GROUP)
        return pl.scan_parquet(copy, glob=False)

    if is_text(path):
        return _from_text(path, choose, sink, reading, header=True)
    with readable(path.name):
        raw = _scan_binary(path, reading)
        return sink(raw.select(LINE, *choose(_names(raw))))


def collect(frame: pl.LazyFrame, name: str) -> pl.DataFrame:
    """All columns of a frame from elsewhere, its rows numbered in ``LINE``."""
    with readable(name):
        return frame.with_row_index(LINE, offset=1).collect()


def keys_of(frame: pl.DataFrame, name: str, table: str) -> pl.Series:
    """A column as keys: Int64 or text, null where there is none."""
    key = _key(pl.col(name), frame.schema[name], f"column {name!r} of {table}")
    return frame.select(key.alias("key")).to_series()


def listing(names: Sequence[str]) -> str:
    """Some names, for a hint."""
    return f"it has {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"


# ---------------------------------------------------------------------------------- files


def is_text(path: Path) -> bool:
    """Whether a file has no types of its own: all its columns are written as text."""
    return base_suffix(path) not in (".parquet", *ARROW)


def _is_json(path: Path) -> bool:
    return base_suffix(path) in record_reader.JSON_LINES


def _read_text(path: Path, columns: Columns, reading: Reading, *, header: bool) -> pl.LazyFrame:
    def choose(names: Sequence[str]) -> list[str]:
        if header and columns.query is columns.candidate is None:
            hint = "use --no-header if it is a row, or --query-column and --candidate-column"
            _check_names(names, path, hint)
        return [name for name in choose_columns(names, columns, path.name) if name is not None]

    def sink(raw: pl.LazyFrame) -> pl.LazyFrame:
        return _sink(raw, columns, path.name, reading)

    return _usable(_from_text(path, choose, sink, reading, header=header), path.name, reading)


def _from_text(
    path: Path,
    choose: record_reader.Pick,
    use: Callable[[pl.LazyFrame], T],
    reading: Reading,
    *,
    header: bool,
) -> T:
    """The chosen columns, given to ``use``: by polars if it is exact here, else by ``slow``."""
    separator = _separator(path)
    try:
        fast = _scan_json(path) if _is_json(path) else _scan_csv(path, separator, header=header)
        if fast is not None:
            return use(fast.select(LINE, *choose(_names(fast))))
    except pl.exceptions.PolarsError:
        pass  # the slow reader tells what is wrong
    except OSError as error:
        raise _unreadable(path.name, error) from error
    return use(record_reader.read(path, separator, reading, choose, header=header))


def _scan_csv(path: Path, separator: str, *, header: bool) -> pl.LazyFrame | None:
    """All columns as text: the key 007 is not 7. None where polars would misread a line.

    It pads short lines, joins those with a stray quote and drops some carriage returns; so every
    line has to be blank or a whole record. Then its rows are the lines, and blank ones are null.
    """
    head = record_reader.csv_head(path, separator, header=header)
    mark = re.escape(separator)
    field = rf'(?:[^"\r{BOM}{mark}]*|"(?:[^"\r{BOM}]|"")*")'
    line = pl.col("line")
    line = pl.when(pl.col(LINE) == 0).then(line.str.strip_prefix(BOM)).otherwise(line)
    whole = line.str.contains(f"^{field}(?:{mark}{field}){{{len(head.names) - 1}}}$")
    hollow = line.str.contains(f"^[ {mark}]+$")
    blank = line == ""
    text = pl.scan_lines(path, row_index_name=LINE, glob=False)
    check = text.select((blank | (whole & ~hollow)).all(), blank.any().alias("blank"))
    ((exact, any_blank),) = check.collect(engine="streaming").rows()
    if not exact:
        return None
    rows = pl.scan_csv(
        path,
        separator=separator,
        has_header=header,
        skip_lines=head.line - 1,
        new_columns=head.names,
        infer_schema=False,
        glob=False,
    )
    rows = rows.with_row_index(LINE, offset=head.line + header)
    return rows.filter(~pl.all_horizontal(pl.col(head.names).is_null())) if any_blank else rows


def _scan_json(path: Path) -> pl.LazyFrame | None:
    """All fields as text. None where there are blank lines, which polars does not number."""
    numbered = pl.scan_lines(path, row_index_name=LINE, row_index_offset=1, glob=False)
    filled = numbered.filter(pl.col("line").str.strip_chars() != "")
    exact = filled.select(pl.col(LINE).max() == pl.len())
    if not exact.collect(engine="streaming").item():
        return None
    source = glob.escape(str(path))
    types = pl.scan_ndjson(source, infer_schema_length=None).collect_schema()
    schema: dict[str, pl.DataType] = {
        name: types[name] if types[name].is_nested() else pl.String()
        for name in record_reader.json_order(path, types)
    }
    return pl.scan_ndjson(source, schema=schema, row_index_name=LINE, row_index_offset=1)


def _read_binary(path: Path, columns: Columns, reading: Reading) -> pl.LazyFrame:
    """A Parquet or Arrow file, whose columns have types of their own."""
    with readable(path.name):
        sunk = _sink(_scan_binary(path, reading), columns, path.name, reading)
    return _usable(sunk, path.name, reading)


def _scan_binary(path: Path, reading: Reading) -> pl.LazyFrame:
    scan = pl.scan_parquet if base_suffix(path) == ".parquet" else pl.scan_ipc
    return scan(_decompressed(path, reading), glob=False).with_row_index(LINE, offset=1)


@contextmanager
def readable(table: str) -> Iterator[None]:
    """What polars cannot read is the user's to know, not a traceback."""
    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(table, error) from error


def _unreadable(table: str, error: Exception) -> UserError:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return UserError(
        f"cannot read {table}: {first}",
        hint="is it complete, and is it what its name says?",
    )


def _decompressed(path: Path, reading: Reading) -> Path:
    if path.suffix.lower() not in (".gz", ".zst"):
        return path
    copy = reading.new_file()
    with open_binary(path) as packed, copy.open("wb") as file:
        shutil.copyfileobj(packed, file, 2**22)
    return copy


def _separator(path: Path) -> str:
    """What parts the columns: known from the name, else the commonest mark of the first line.

    What is in quotes does not count, and a space parts nothing where there is another mark: names
    of columns have spaces in them. They may have commas too, so that a mark that is known from the
    name gives way where the first lines do not have it equally often, and have another one so.
    """
    filled = (text for _, text in lines(path) if text.strip())
    first = "\n".join(islice(filled, LINES_COMPARED))
    bare = _QUOTED.sub("", first).split("\n")
    counts = {mark: [line.count(mark) for line in bare] for mark in ",\t;| "}
    usual = SEPARATORS.get(base_suffix(path), "")
    if usual and counts[usual][0]:
        steady = [mark for mark in ",\t;|" if counts[mark][0] and len(set(counts[mark])) == 1]
        if usual in steady or not steady:
            return usual
        return max(steady, key=lambda mark: counts[mark][0])
    return max(counts, key=lambda mark: (mark != " " and counts[mark][0] > 0, counts[mark][0]))


_QUOTED = re.compile(r'(?<![^,\t;| \n])"(?:[^"]|"")*+(?:"|$)')  # at the beginning of a field


# ---------------------------------------------------------------------------------- columns


def choose_columns(names: Sequence[str], asked: Columns, table: str) -> Columns:
    """The columns to read: those asked for, else the first whose name is a usual one."""
    chosen: dict[str, str | None] = dict.fromkeys(asked._fields)
    for role, wanted in asked._asdict().items():
        if wanted is not None and wanted not in (NONE, *names):
            raise UserError(
                f"{table} has no column {wanted!r}",
                hint=f"{listing(names)}; use --{role}-column NAME",
            )
        chosen[role] = wanted
    for role, wanted in asked._asdict().items():
        if wanted is None:
            chosen[role] = _guess(role, [name for name in names if name not in chosen.values()])
    if len(names) == 2:
        free = iter([name for name in names if name not in chosen.values()])
        for role in ("query", "candidate"):
            chosen[role] = chosen[role] or next(free, None)
    for role in ("query", "candidate"):
        if chosen[role] in (None, NONE):
            raise UserError(
                f"cannot tell which column of {table} is the {role}",
                hint=f"{listing(names)}; use --{role}-column NAME",
            )
    if chosen["query"] == chosen["candidate"]:
        raise UserError(
            f"column {chosen['query']!r} of {table} cannot be both query and candidate",
            hint=listing(names),
        )
    return Columns(**{role: None if name == NONE else name for role, name in chosen.items()})


def names_columns(words: Sequence[str]) -> bool:
    """True if the words are surely the names of columns."""
    return _guess("query", words) is not None and _guess("candidate", words) is not None


def _guess(role: str, names: Sequence[str]) -> str | None:
    return named(USUAL_NAMES[role], names)


def named(usual: str, names: Sequence[str]) -> str | None:
    """The first of the names that are usual, in their order, that is there in any spelling."""
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(name.strip().lower().replace(" ", "_").replace("-", "_"), name)
    return next((plain[word] for word in usual.split() if word in plain), None)


def _names(raw: pl.LazyFrame) -> list[str]:
    return [name for name in raw.collect_schema().names() if name != LINE]


def _check_names(names: Sequence[str], path: Path, hint: str) -> None:
    """A first line of numbers is a row, not the names of columns."""
    if all(re.fullmatch(r"-?\d+(\.\d*)?", name) for name in names):
        numbers = ",".join(names[:12])
        raise UserError(f"the first line of {path.name} has no names: {numbers}", hint=hint)


# ---------------------------------------------------------------------------------- rows


def _sink(raw: pl.LazyFrame, asked: Columns, table: str, reading: Reading) -> pl.LazyFrame:
    """The chosen columns and, in ``reason``, why a row cannot be used; as a temporary file."""
    schema = raw.collect_schema()
    chosen = choose_columns(_names(raw), asked, table)
    for role in ("query", "candidate"):
        reading.columns.setdefault(role, getattr(chosen, role))
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
    path = reading.new_file()
    raw.select(LINE, **values, reason=reason).sink_parquet(path)
    return pl.scan_parquet(path, glob=False)


def _usable(frame: pl.LazyFrame, table: str, reading: Reading) -> pl.LazyFrame:
    """The rows without a reason against them; the others are noted with their first lines."""
    bad = (
        frame.filter(pl.col("reason").is_not_null())
        .group_by("reason")
        .agg(n=pl.len(), first=pl.col(LINE).sort().head(PLACES_SHOWN))
        .sort(pl.col("first").list.first(), "reason")
        .collect(engine="streaming")
    )
    for reason, n, first in bad.iter_rows():
        for line in first:
            reading.bad.add(reason, f"{table}:{line}", 0)
        reading.bad.counts[reason] += n
    return frame.filter(pl.col("reason").is_null()).drop("reason", LINE)


def _key(column: pl.Expr, dtype: pl.DataType, where: str) -> pl.Expr:
    """Keys as Int64 or text; null where there is none."""
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
        raise UserError(f"{where} holds {dtype}", hint="keys are numbers or text")
    if dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        same = whole.cast(dtype) == column
        text = pl.when(column.is_finite()).then(column.cast(pl.String))
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
        text = column.str.strip_chars()
        date = text.str.replace("T", " ", literal=True).str.replace("Z$", "+00:00")
        kinds = [pl.Datetime("us", "UTC" if form.endswith("%z") else None) for form in TIMES]
        dates = (date.str.strptime(k, f, strict=False) for k, f in zip(kinds, TIMES, strict=True))
        seconds = (date.dt.epoch("us") / 1e6 for date in dates)
        return pl.coalesce(text.cast(pl.Float64, strict=False), *seconds)
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
