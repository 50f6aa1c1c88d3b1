"""The exact reader, compared with a specification that walks the text letter by letter."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rankfold as rf
from rankfold.data.read import record_reader
from rankfold.data.read.reading import LINE, Reading
from rankfold.errors import UserError

Written = Callable[[str, str | bytes], AbstractContextManager[tuple[Path, Reading]]]
Records = list[tuple[int, list[str] | str]]


def everything(names: Sequence[str]) -> Sequence[str]:
    return names


def read(path: Path, reading: Reading, *, header: bool = True, separator: str = ",") -> list[Any]:
    return record_reader.read(path, separator, reading, everything, header=header).collect().rows()


# ---------------------------------------------------------------------------------- the spec


def spec(text: str, separator: str) -> Records:
    """``(line, fields or error)``: a malformed record is one line, the next one starts after it.

    A quote opens a field at its beginning only; until it is closed, two quotes are one letter.
    A separator or the end of the line follows.
    """
    records: Records = []
    line, start = 1, 0
    while start < len(text):
        result, end = one_record(text, start, separator)
        if isinstance(result, str):
            end = text.find("\n", start) + 1 or len(text)
        if text[start:end].strip(" \r\n"):
            records.append((line, result))
        line += text.count("\n", start, end)
        start = end
    return records


def one_record(text: str, at: int, separator: str) -> tuple[list[str] | str, int]:
    fields, field, state = [], "", "begin"
    while True:
        letter = text[at : at + 1]
        rest = text[at : at + 2]
        ends = letter in ("", "\n") or rest in ("\r", "\r\n")
        if state == "quoted":
            if letter == "":
                return record_reader.UNCLOSED, at
            if rest == '""':
                field, at = field + '"', at + 1
            elif letter == '"':
                state = "closed"
            else:
                field += letter
        elif letter == separator or ends:
            fields.append(field)
            field, state = "", "begin"
            if ends:
                return fields, at + len(rest if rest == "\r\n" else letter)
        elif state == "closed":
            return record_reader.STRAY, at
        elif state == "begin" and letter == '"':
            state = "quoted"
        else:
            field, state = field + letter, "plain"
        at += 1


TOKENS = ["a", "é", " ", ",", ",", "\n", "\n", "\r\n", '"', '""', ',"', '",', '"\n', "\r", "\u2028"]


@given(tokens=st.lists(st.sampled_from(TOKENS), max_size=25))
@example(tokens=["a", "\r", "\r\n", "a"])
def test_records_of_any_text_are_those_of_the_spec(tokens: list[str], written: Written) -> None:
    text = "".join(tokens)
    with written("a.csv", text) as (path, _):
        assert list(record_reader._records(path, ",")) == spec(text, ",")


FIELDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(
    rows=st.lists(st.lists(FIELDS, min_size=2, max_size=2), max_size=6),
    separator=st.sampled_from(",\t;|"),
    end=st.sampled_from(["\n", "\r\n"]),
    final=st.booleans(),
)
def test_output_of_a_csv_writer_is_read_back(
    rows: list[list[str]], separator: str, end: str, *, final: bool, written: Written
) -> None:
    file = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if end == "\n" else csv.QUOTE_MINIMAL  # which leaves a lone \r bare
    writer = csv.writer(file, delimiter=separator, lineterminator=end, quoting=quoting)
    writer.writerows([["x", "y"], *rows])
    text = file.getvalue() if final else file.getvalue().removesuffix(end)
    with written("a.csv", text) as (path, reading):
        read_back = [list(row[1:]) for row in read(path, reading, separator=separator)]
        assert read_back == rows
        assert reading.bad.counts == {}


# ---------------------------------------------------------------------------------- CSV


def test_line_of_a_record_is_where_it_begins(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "a.csv").write_text('\n\n"x\ny",z\n\n1,"2\n\n2"\n   \n3,4\n')
    assert read(tmp_path / "a.csv", reading) == [(6, "1", "2\n\n2"), (10, "3", "4")]
    assert record_reader.csv_head(tmp_path / "a.csv", ",", header=True) == (["x\ny", "z"], 3)


def test_bad_records_are_noted_and_those_around_them_kept(tmp_path: Path, reading: Reading) -> None:
    lines = [
        "x,y",
        "1,2",
        "3",
        "4,5,6",
        '"7"8,9',
        '10,"11',
        "12,13",
        ",",
        '14,"15"',
        "16,17,",
        "18",
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert read(tmp_path / "a.csv", reading) == [
        (2, "1", "2"),
        (7, "12", "13"),
        (8, "", ""),
        (9, "14", "15"),
    ]
    assert reading.bad.describe() == [
        "4 rows with a wrong number of columns (a.csv:3, a.csv:4, a.csv:10, ...)",
        "2 rows with a stray quote (a.csv:5, a.csv:6)",
    ]


def test_quote_that_is_never_closed_spoils_one_line(tmp_path: Path, reading: Reading) -> None:
    body = "".join(f"{i},{i}\n" for i in range(3, 3000))
    (tmp_path / "a.csv").write_text(f'x,y\n1,"2\n{body}')
    assert read(tmp_path / "a.csv", reading) == [(i, str(i), str(i)) for i in range(3, 3000)]
    assert reading.bad.describe() == ["1 row with a quote that is never closed (a.csv:2)"]


def test_field_of_very_many_lines_counts_as_unclosed(tmp_path: Path, reading: Reading) -> None:
    longest = "\n".join(["w"] * record_reader.MAX_RECORD_LINES)
    (tmp_path / "a.csv").write_text(f'x,y\n1,"{longest}"\n')
    assert read(tmp_path / "a.csv", reading) == [(2, "1", longest)]
    assert reading.bad.counts == {}
    (tmp_path / "a.csv").write_text(f'x,y\n1,"{longest}\n"\n')
    assert read(tmp_path / "a.csv", reading) == []
    assert reading.bad.places[record_reader.UNCLOSED][0] == "a.csv:2"


def test_quotes_inside_a_field_are_characters(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "a.csv").write_text('x,y\n5" disk,a""b\n"say ""hi""",""""\n')
    assert read(tmp_path / "a.csv", reading) == [(2, '5" disk', 'a""b'), (3, 'say "hi"', '"')]


def test_large_field_is_read(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "a.csv").write_text(f'x,y\n1,"{"long " * 100_000}"\n')
    assert read(tmp_path / "a.csv", reading) == [(2, "1", "long " * 100_000)]


def test_without_header_columns_are_numbered(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "a.csv").write_text("\n1,2\n3,4,5\n6,7\n")
    assert record_reader.csv_head(tmp_path / "a.csv", ",", header=False).names == [
        "column_0",
        "column_1",
    ]
    assert read(tmp_path / "a.csv", reading, header=False) == [(2, "1", "2"), (4, "6", "7")]
    assert reading.bad.places == {"a wrong number of columns": ["a.csv:3"]}


def test_a_repeated_name_gets_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x, y,x ,,x\n")
    names = record_reader.csv_head(tmp_path / "a.csv", ",", header=True).names
    assert names == ["x", "y", "x [column 3]", "column_3", "x [column 5]"]


def test_names_are_without_spaces_and_an_empty_one_is_numbered(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbf" x ", y ,,caf\xe9,\n')
    names = record_reader.csv_head(tmp_path / "a.csv", ",", header=True).names
    assert names == ["x", "y", "column_2", "caf\ufffd", "column_4"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.csv is empty"),
        (b"\n \r\n\n", "a.csv is empty"),
        (b'"x,y\n1,2\n', "a.csv has no readable first line: it has a quote that is never closed"),
        (
            b"Loans, 2024\nx,y,z,w\n1,2,3,4\n",
            "the first line of a.csv names 2 columns, the next lines have 4",
        ),
        ("x,y\n1,2\n".encode("utf-16"), "a.csv is not UTF-8 text"),
    ],
)
def test_file_without_a_header_is_refused(
    content: bytes, message: str, tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(UserError) as error:
        read(tmp_path / "a.csv", reading)
    assert str(error.value) == message
    assert error.value.hint


def test_invalid_bytes_spoil_a_row_only_in_needed_columns(tmp_path: Path, reading: Reading) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("x,y,z\n1,ü\ufffd,a\n2,".encode() + b"\xfc,b\n3,c,\xfc\n")
    frame = record_reader.read(path, ",", reading, lambda _: ["y", "x"])
    assert frame.collect().rows() == [(2, "ü\ufffd", "1"), (4, "c", "3")]
    assert frame.collect_schema().names() == [LINE, "y", "x"]
    assert reading.bad.describe() == ["1 row with bytes that are not UTF-8 (a.csv:3)"]


# ---------------------------------------------------------------------------------- JSON lines


def test_objects_become_text_and_other_lines_are_noted(tmp_path: Path, reading: Reading) -> None:
    lines = [
        "",
        '{"u": "a", "i": 1, "g": 2.5}',
        '{"u": "b"',
        "[1, 2]",
        "  ",
        '{"i": 7, "extra": null, "u": true}',
        "null",
        '{"u": "\\u00e9", "i": 12345678901234567890123, "g": 1e22} trailing',
        '{"u": "c", "i": {"nested": 1}, "g": [1]}',
        "[" * 10_000,
        '{"u": "first", "u": "second", "i": -0.0, "g": 100.0}',
        '{"u": NaN, "i": 1e-7, "g": Infinity}',
    ]
    (tmp_path / "a.jsonl").write_text("\ufeff" + "\r\n".join(lines))
    frame = record_reader.read(tmp_path / "a.jsonl", ",", reading, everything)
    assert frame.collect_schema().names() == [LINE, "u", "i", "g", "extra"]
    assert frame.collect().rows() == [
        (2, "a", "1", "2.5", None),
        (6, "true", "7", None, None),
        (9, "c", None, None, None),
        (11, "first", "0", "100", None),
        (12, None, "0.0000001", None, None),
    ]
    assert reading.bad.describe() == [
        "5 rows with no JSON object (a.jsonl:3, a.jsonl:4, a.jsonl:7, ...)"
    ]


def test_invalid_unicode_spoils_its_row(tmp_path: Path, reading: Reading) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"u": "\\ud83d", "i": 1}\n{"u": "caf\xe9", "i": 2}\n{"u": "x", "i": 3}\n')
    assert read(path, reading) == [(3, "x", "3")]
    assert reading.bad.places == {"bytes that are not UTF-8": ["a.jsonl:1", "a.jsonl:2"]}


@pytest.mark.parametrize("content", ["", "\n\n", "[1]\n5\n", "{}\n", '{"a":\n1}\n'])
def test_file_without_an_object_is_refused(content: str, tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(UserError, match=r"a\.jsonl holds no JSON object"):
        read(tmp_path / "a.jsonl", reading)


@given(st.one_of(st.integers(-(10**40), 10**40), st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_keep_their_value_as_text(number: float) -> None:
    text = record_reader.as_text(json.loads(json.dumps(number)))
    assert text is not None
    assert "e" not in text.lower()
    assert type(number)(text) == number


def test_keys_beyond_floats_are_missing_and_zero_has_one_sign(
    tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / "a.jsonl").write_text('{"u": 1e400}\n{"u": -1e400}\n{"u": -0.0}\n{"u": 0.0}\n')
    assert read(tmp_path / "a.jsonl", reading) == [(1, None), (2, None), (3, "0"), (4, "0")]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("sep=;\nuser;item\na;x\n", "starts with a line that names the separator"),
        ("SEP=,\nuser,item\na,x\n", "starts with a line that names the separator"),
        ("user,item\ra,x\rb,y\r", "has lines that end with a carriage return alone"),
    ],
)
def test_lines_of_spreadsheets_are_refused(content: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content, newline="")
    with pytest.raises(UserError, match=f"a.csv {error}"):
        rf.prepare(tmp_path / "a.csv")


def test_columns_are_text_and_the_line_a_number(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "a.csv").write_text("x,y\n")
    frame = record_reader.read(tmp_path / "a.csv", ",", reading, everything)
    assert frame.collect_schema() == pl.Schema({LINE: pl.Int64, "x": pl.String, "y": pl.String})
    assert frame.collect().rows() == []
