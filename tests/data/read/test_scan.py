"""The fast reader of text tables agrees with the exact one, or leaves the file to it."""

import csv
import io
import json
from typing import Any

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st
from pair_tables import Written, read

from rankfold.data.read import dialect, record_reader, tables
from rankfold.data.read.reading import LINE
from rankfold.errors import UserError

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
MISSING = {*dialect.MISSING}
SIMPLE = st.text("ab1 é'#,\"", max_size=4)


def as_csv(rows: list[list[str]], end: str, quoting: int) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator=end, quoting=quoting).writerows(rows)  # type: ignore[arg-type]
    return file.getvalue()


@given(
    rows=st.lists(st.lists(KEYS | SIMPLE, min_size=2, max_size=2), max_size=8),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_any_keys_are_read_as_they_were_written(
    rows: list[list[str]], end: str, written: Written
) -> None:
    quoting = csv.QUOTE_ALL if end == "\n" else csv.QUOTE_MINIMAL  # which leaves a lone \r bare
    with written("t.csv", as_csv([["user", "item"], *rows], end, quoting)) as (path, reading):
        good = [tuple(row) for row in rows if not MISSING & {*row}]
        assert read(path, reading) == good
        assert sum(reading.bad.counts.values()) == len(rows) - len(good)


@given(
    rows=st.lists(st.lists(SIMPLE, min_size=3, max_size=3), max_size=8),
    begin=st.sampled_from(["", "\n\n", "\ufeff"]),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    header=st.booleans(),
)
def test_fast_and_slow_reader_agree_on_a_csv(
    rows: list[list[str]], begin: str, end: str, quoting: int, *, header: bool, written: Written
) -> None:
    text = begin + as_csv([[" a", "", "c"], *rows], end, quoting)
    with written("t.csv", text) as (path, reading):
        fast = tables._scan_csv(path, ",", header=header)
        exact = record_reader.read(path, ",", reading, lambda names: names, header=header)
        if fast is not None:
            empty_is_none = pl.col(pl.String).replace("", None)
            result = fast.with_columns(pl.col(LINE).cast(pl.Int64), empty_is_none).collect()
            assert result.equals(exact.with_columns(empty_is_none).collect())
        assert reading.bad.counts == {}
        hollow = any("".join(row).strip(" ") == "" for row in rows)
        assert (fast is not None) or hollow or any('"' in key for row in rows for key in row)


TOKENS = ["a", "é", "1", "2.5", "x", " ", "nan", ",", ",", ",", "\n", "\n", "\r\n"]
QUOTES = ['"', '""', ',"', '",', '"\n', '"a,b"', "\r", "\ufeff", "\u2028", "\0"]


@given(
    tokens=st.lists(st.sampled_from(TOKENS) | st.sampled_from(QUOTES), max_size=20).map(
        lambda tokens: ["a,b\n", *tokens]
    ),
    header=st.booleans(),
)
@example(tokens=["a,b\n", "a,a,"], header=True)  # one comma too many at the end, which polars takes
@example(tokens=["a,b\n", '"a"a\na,a\n"a",a'], header=True)  # lines which it joins
@example(tokens=["a,b\n", "a\r,b"], header=True)  # a carriage return which it drops
@example(tokens=["\n", "\ufeff,a"], header=False)  # a mark which it drops on the second line
def test_fast_reader_declines_csv_that_it_would_misread(
    tokens: list[str], *, header: bool, written: Written
) -> None:
    with written("t.csv", "".join(tokens)) as (path, reading):
        try:
            fast = tables._scan_csv(path, ",", header=header)
        except (UserError, pl.exceptions.PolarsError):
            return
        if fast is not None:
            exact = record_reader.read(path, ",", reading, lambda names: names, header=header)
            rows = exact.with_columns(pl.col(pl.String).replace("", None)).collect().rows()
            assert fast.with_columns(pl.col(pl.String).replace("", None)).collect().rows() == rows
            assert reading.bad.counts == {}


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**25), 10**25),
    st.integers(-10_000, 10_000).map(lambda n: n / 8),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)


NESTED = st.one_of(VALUES, st.lists(VALUES, max_size=2), st.just({"c": 1}))


@given(rows=st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), min_size=1, max_size=6))
def test_json_is_read_as_polars_reads_it(rows: list[dict[str, Any]], written: Written) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in [{"b": 1}, *rows])
    with written("t.jsonl", text) as (path, reading):
        exact = record_reader.read(path, ",", reading, lambda names: names).drop(LINE).collect()
        schema = dict.fromkeys(exact.columns, pl.String())
        assert pl.read_ndjson(path, schema=schema).equals(exact)
        assert reading.bad.counts == {}


@given(rows=st.lists(st.dictionaries(st.sampled_from("ab"), NESTED), min_size=1, max_size=6))
def test_a_blank_line_in_json_changes_only_the_line_numbers(
    rows: list[dict[str, Any]], written: Written
) -> None:
    lines = [json.dumps(row) + "\n" for row in [{"b": 1}, *rows]]
    tables_read = []
    for number, text in enumerate(("".join(lines), "\n".join(lines))):
        with written(f"t{number}.jsonl", text) as (path, reading):
            tables_read.append(tables.read_columns(path, reading))
    plain, spaced = tables_read
    assert spaced.drop(LINE).equals(plain.drop(LINE))
    assert spaced[LINE].to_list() == [2 * line - 1 for line in plain[LINE]]
