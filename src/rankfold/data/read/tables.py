"""Tables from files and frames: rows of pairs, keys, or all columns.

Files are CSV, TSV, JSON lines, Parquet and Arrow IPC, plain or compressed. polars streams a file.
``record_reader`` reads JSON lines, and CSV files that polars would refuse or misread (a short line,
a misplaced quote); it records the bad lines.

Pairs become a temporary Parquet file of the needed columns, with a reason beside each unusable row.
"""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import polars as pl

from rankfold import storage
from rankfold.data.read import record_reader, times, values
from rankfold.data.read.bad_rows import PLACES_SHOWN
from rankfold.data.read.columns import (
    USUAL_NAMES,
    PairColumns,
    check_header,
    check_names,
    check_repeated,
    choose_columns,
    find_usual,
    listing,
)
from rankfold.data.read.dialect import detect_separator, words_of
from rankfold.data.read.files import base_suffix, open_binary
from rankfold.data.read.reading import LINE, ROWS_SHOWN, Reading, Taken
from rankfold.errors import UserError

T = TypeVar("T")
ARROW = (".arrow", ".ipc", ".feather")
_BOM = "\ufeff"
_SPOOL_GROUP = 2**16  # rows of a temporary file that are read at once
_OF_PROGRAMS = {
    **dict.fromkeys(
        (".xlsx", ".xlsm", ".xls", ".ods"),
        "save the sheet as CSV; in Python, read it with pandas or polars and pass the table",
    ),
    **dict.fromkeys(
        (".db", ".sqlite", ".sqlite3", ".duckdb"),
        "export the table to Parquet or CSV; in Python, pass the result of a query as a table",
    ),
}
_NAMES_HINT = "add a line with the column names"
_MALFORMED = {"grade": "not a number", "time": "neither a number nor a date"}


def read_table(
    path: Path, columns: PairColumns, reading: Reading, *, header: bool = True
) -> pl.LazyFrame:
    """Rows ``query, candidate[, grade][, time]`` of a file; bad rows are recorded and dropped."""
    every: list[str] = []

    def choose(names: Sequence[str]) -> list[str]:
        every[:] = names
        if header and is_text(path) and columns.query is columns.candidate is None:
            hint = "use --no-header if it is a row, or --query-column and --candidate-column"
            check_header(names, path.name, hint)
        chosen = choose_columns(names, columns, path.name)
        taken = [name for name in chosen if name is not None]
        check_repeated(taken, names, path.name)
        return taken

    def sink(raw: pl.LazyFrame) -> pl.LazyFrame:
        return _sink(raw, columns, path.name, reading, every)

    return _usable(_scan(path, choose, sink, reading, header=header), path.name, reading)


def read_frame(
    frame: pl.LazyFrame, columns: PairColumns, name: str, reading: Reading
) -> pl.LazyFrame:
    """The usable rows of a frame in memory; bad rows are recorded by number."""
    with readable(name, frame):
        numbered = frame.with_row_index(LINE, offset=1)
        names = _column_names(frame)
        check_names(names, name)
        rows = _sink(numbered, columns, name, reading, names)
    return _usable(rows, name, reading)


def stack(tables: Sequence[tuple[str, pl.LazyFrame]]) -> pl.LazyFrame:
    """Named tables, one after another; keys of different types become text."""
    schemas = [frame.collect_schema() for _, frame in tables]
    for role in ("grade", "time"):
        present = [role in schema for schema in schemas]
        if any(present) and not all(present):
            one, other = (tables[present.index(has)][0] for has in (True, False))
            raise UserError(
                f"{one} has a {role} column, {other} has none",
                hint=f"use the same name in both, or --{role}-column none",
            )
    return values.concat_frames([frame for _, frame in tables])


def read_keys(path: Path, column: str | None, reading: Reading) -> pl.Series:
    """The query keys of one file, in its order; rows without one are dropped."""

    def choose(names: Sequence[str]) -> list[str]:
        if column is None and is_text(path):
            check_header(names, path.name, hint="add a line with a column name such as query")
        name = (
            column
            or find_usual(USUAL_NAMES["query"], names)
            or (names[0] if len(names) == 1 else "")
        )
        if name not in names:
            problem = f"no column {name!r}" if name else "no column with a usual name of queries"
            raise UserError(
                f"{path.name} has {problem}", hint=f"{listing(names)}; use --query-column NAME"
            )
        check_repeated([name], names, path.name)
        return [name]

    def collect(raw: pl.LazyFrame) -> pl.Series:
        (name,) = _column_names(raw)
        return values.keys_of(raw.select(name).collect(), name, path.name).drop_nulls()

    return _scan(path, choose, collect, reading)


def read_columns(path: Path, reading: Reading) -> pl.DataFrame:
    """All columns of one file, lines in ``LINE``; those of a text file as text."""
    frame = read_named(path, reading)
    check_repeated(frame.columns, frame.columns, path.name)
    return frame


def read_named(path: Path, reading: Reading) -> pl.DataFrame:
    """The same where a name may occur more than once; see ``columns.repeats``."""

    def choose(names: Sequence[str]) -> Sequence[str]:
        if is_text(path):
            check_header(names, path.name, _NAMES_HINT)
        return names

    def collect_all(raw: pl.LazyFrame) -> pl.DataFrame:
        return reading.dialect.plain(raw.collect()) if is_text(path) else raw.collect()

    return _scan(path, choose, collect_all, reading)


def spool_columns(path: Path, pick: record_reader.Choose, reading: Reading) -> pl.LazyFrame:
    """Some columns of one file as a temporary file: there may be many rows."""

    def choose(names: Sequence[str]) -> Sequence[str]:
        check_header(names, path.name, _NAMES_HINT)
        picked = pick(names)
        check_repeated(picked, names, path.name)
        return picked

    def sink(raw: pl.LazyFrame) -> pl.LazyFrame:
        copy = reading.new_file()
        raw.sink_parquet(copy, row_group_size=_SPOOL_GROUP)
        return pl.scan_parquet(copy, glob=False)

    return _scan(path, choose, sink, reading)


def _scan(
    path: Path,
    choose: record_reader.Choose,
    use: Callable[[pl.LazyFrame], T],
    reading: Reading,
    *,
    header: bool = True,
) -> T:
    """Pass the chosen columns of a file of any format to ``use``.

    A text is read by polars if it is exact here, else record by record.
    """

    def choose_checked(names: Sequence[str]) -> Sequence[str]:
        check_names(names, path.name)
        return choose(names)

    if base_suffix(path) in _OF_PROGRAMS:
        raise UserError(f"cannot read {path.name}", hint=_OF_PROGRAMS[base_suffix(path)])
    if not is_text(path):
        with readable(path.name):
            raw = _scan_binary(path, reading)
        with readable(path.name, raw):
            numbered = raw.with_row_index(LINE, offset=1)
            return use(numbered.select(LINE, *choose_checked(_column_names(numbered))))
    mark = reading.dialect.separator or detect_separator(path)
    try:
        is_json = base_suffix(path) in record_reader.JSON_LINES  # one reader, so one rule
        fast = None if is_json else _scan_csv(path, mark, header=header)
        if fast is not None:
            return use(fast.select(LINE, *choose_checked(_column_names(fast))))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        if storage.is_full(error):
            raise
        if isinstance(error, OSError):
            raise _unreadable(path.name, error) from error
        if isinstance(error, pl.exceptions.PanicException):
            values.check_count(pl.scan_lines(path, glob=False), path.name)
        # the record reader says what is wrong
    return use(record_reader.read(path, mark, reading, choose_checked, header=header))


def row_lines(path: Path, reading: Reading) -> list[int]:
    """The line of each row of a text table, including rows that ``read_columns`` drops."""
    return record_reader.row_lines(path, reading.dialect.separator or detect_separator(path))


def collect(frame: pl.LazyFrame, name: str) -> pl.DataFrame:
    """All columns of a frame in memory, its rows numbered in ``LINE``."""
    with readable(name, frame):
        check_names(_column_names(frame), name)
        return frame.with_row_index(LINE, offset=1).collect()


# ---------------------------------------------------------------------------------- rows


def _sink(
    raw: pl.LazyFrame, columns: PairColumns, table: str, reading: Reading, names: Sequence[str]
) -> pl.LazyFrame:
    """The chosen columns and, in ``reason``, why a row is unusable; as a temporary file.

    ``names`` are all columns of the table, chosen or not.
    """
    schema = raw.collect_schema()
    chosen = choose_columns(_column_names(raw), columns, table)
    for role in ("query", "candidate"):
        reading.columns.setdefault(role, getattr(chosen, role))
    cells: dict[str, pl.Expr] = {}
    reasons: list[tuple[pl.Expr, pl.Expr]] = []
    words, notes = words_of(reading.dialect.missing_keys), []
    for role, name in chosen._asdict().items():
        if name is None:
            continue
        column, dtype = pl.col(name), schema[name]
        where, is_text_column = f"column {name!r} of {table}", dtype in values.TEXT_TYPES
        listed = pl.lit(value=False)
        if is_text_column:
            listed = column.cast(pl.String).is_in(words)
        if role in ("query", "candidate"):
            value = values.key(column, dtype, where)
            if is_text_column:
                word = pl.format(f"a {role} {{}}, which counts as missing", value)
                reasons.append((value.is_not_null() & listed, word))
            reasons.append((value.is_null(), pl.lit(f"a missing {role}")))
        else:
            if role == "grade":
                value = values.number(column, dtype, where, reading.dialect.decimal)
            else:
                form = wanted = reading.dialect.time_format
                if is_text_column:
                    form = times.guess(raw, name, wanted, where)
                    notes += [] if form is None else [f"times are {form}"]
                value = values.seconds(column, dtype, where, form)
            malformed = ~value.is_finite().fill_null(value=False)
            reasons.append((column.is_null() | listed, pl.lit(f"a missing {role}")))
            reasons.append((malformed, pl.lit(f"a {role} that is {_MALFORMED[role]}")))
        cells[role] = value
    reading.taken.append(
        Taken.of(table, names, chosen._asdict(), raw.head(ROWS_SHOWN).collect(), notes)
    )
    reason = pl.coalesce(*(pl.when(bad).then(why) for bad, why in reasons))
    path = reading.new_file()
    raw.select(LINE, **cells, reason=reason).sink_parquet(path)
    return pl.scan_parquet(path, glob=False)


def _usable(frame: pl.LazyFrame, table: str, reading: Reading) -> pl.LazyFrame:
    """The rows without a ``reason``; the others are recorded with their first lines."""
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


# ---------------------------------------------------------------------------------- files


def is_text(path: Path) -> bool:
    """Whether a file has no column types: all values are text."""
    return base_suffix(path) not in (".parquet", *ARROW) and not path.is_dir()


def holds_parquet(folder: Path) -> bool:
    """Whether a folder holds Parquet files, perhaps in partitions: ``day=1/part-0.parquet``."""
    return folder.is_dir() and bool(_parquet_files(folder))


def _parquet_files(folder: Path) -> list[Path]:
    """The Parquet files in a folder and its folders, without hidden and marker files."""
    files = (file for file in folder.rglob("*.parquet") if file.is_file())
    return sorted(
        file
        for file in files
        if not any(part[0] in "._" for part in file.relative_to(folder).parts)
    )


def _column_names(frame: pl.LazyFrame) -> list[str]:
    """The columns of a frame but ``LINE``."""
    return [name for name in frame.collect_schema().names() if name != LINE]


def _scan_csv(path: Path, separator: str, *, header: bool) -> pl.LazyFrame | None:
    """All columns as text: the key 007 is not 7. None if polars would misread a line.

    polars pads short lines, joins lines after a stray quote and drops some carriage returns. So
    every line must be blank or a complete record. Then its rows are the lines, and blank lines are
    null.
    """
    head = record_reader.csv_head(path, separator, header=header)
    mark = re.escape(separator)
    field = rf'(?:[^"\r{_BOM}{mark}]*|"(?:[^"\r{_BOM}]|"")*")'
    line = pl.col("line")
    line = pl.when(pl.col(LINE) == 0).then(line.str.strip_prefix(_BOM)).otherwise(line)
    complete = line.str.contains(f"^{field}(?:{mark}{field}){{{len(head.names) - 1}}}$")
    hollow = line.str.contains(f"^[ {mark}]+$")
    blank = line == ""
    text = pl.scan_lines(path, row_index_name=LINE, glob=False)
    check = text.select((blank | (complete & ~hollow)).all(), blank.any().alias("blank"))
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


def _scan_binary(path: Path, reading: Reading) -> pl.LazyFrame:
    """A Parquet or Arrow file, decompressed."""
    if path.is_dir():
        return pl.scan_parquet(_parquet_files(path), glob=False, hive_partitioning=True)
    source = path
    if path.suffix.lower() in (".gz", ".zst"):
        source = reading.new_file()
        with open_binary(path) as compressed, source.open("wb") as file:
            shutil.copyfileobj(compressed, file, 2**22)
    scan = pl.scan_parquet if base_suffix(path) == ".parquet" else pl.scan_ipc
    return scan(source, glob=False)


@contextmanager
def readable(table: str, numbered: pl.LazyFrame | None = None) -> Iterator[None]:
    """Errors of polars become UserErrors; ``numbered`` are rows that it numbers."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        if storage.is_full(error):  # of temporary files
            raise
        if numbered is not None:
            with suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
                values.check_count(numbered, table)
        raise _unreadable(table, error) from error


def _unreadable(table: str, error: BaseException) -> UserError:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return UserError(
        f"cannot read {table}: {first}",
        hint="is the file complete, and does its suffix match its format?",
    )
