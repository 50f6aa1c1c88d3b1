"""Bad rows of tables are recorded by line, and all others are kept."""

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_tables import Written, read

from rankfold.data.read import record_reader
from rankfold.data.read.dialect import MISSING
from rankfold.data.read.reading import Reading
from rankfold.errors import UserError


def expected(text: str) -> tuple[list[tuple[Any, ...]], dict[str, list[int]]]:
    """Rows, and the lines of bad rows, by a plain loop over the records of the exact reader."""
    rows: list[tuple[Any, ...]] = []
    bad: dict[str, list[int]] = {}
    for line, record in naive_records(text):
        reason = record if isinstance(record, str) else problem(record)
        if reason is None:
            rows.append((record[0], record[1], float(record[2])))
        else:
            bad.setdefault(reason, []).append(line)
    return rows, bad


LARGEST = 3.4028235e38  # of float32


def problem(record: list[str]) -> str | None:
    if len(record) != 3:
        return "a wrong number of columns"
    for value, role in zip(record, ("query", "candidate", "grade"), strict=True):
        if value == "" or (role == "grade" and value in MISSING):
            return f"a missing {role}"
        if value in MISSING:
            return f"a {role} {value}, which counts as missing"
    try:
        grade = float(record[2])
    except ValueError:
        grade = math.nan
    return None if abs(grade) <= LARGEST else "a grade that is not a number"


def naive_records(text: str) -> Iterator[tuple[int, list[str] | str]]:
    """The shortest run of lines that Python's reader accepts; else the first line is bad."""
    lines = text.split("\n")
    start = 1
    while start < len(lines):
        if not lines[start].strip(" "):
            start += 1
            continue
        wrong, used = "", 1
        for end in range(start + 1, len(lines) + 1):
            try:
                (record,) = csv.reader(io.StringIO("\n".join(lines[start:end]), ""), strict=True)
            except csv.Error as error:
                wrong = (
                    record_reader.UNCLOSED
                    if "unexpected end" in str(error)
                    else record_reader.STRAY
                )
                if wrong == record_reader.STRAY:
                    break
            else:
                wrong, used = "", end - start
                break
        yield start + 1, wrong or record
        start += used


WORDS = ["a", "b b", "", "é", '"q"', '"q,q"', '"n\nn"', '"', 'a"b', '"a"b', '""']
NUMBERS = ["1", "2.5", " 3 ", "", "x", "nan", "inf", "-1", "1e39", '"4"', "1,5"]


@given(
    rows=st.lists(
        st.lists(st.sampled_from(WORDS + NUMBERS), max_size=4)
        | st.tuples(*map(st.sampled_from, (WORDS, WORDS, NUMBERS))),
        max_size=8,
    )
)
def test_bad_rows_are_recorded_by_line_and_all_others_kept(
    rows: list[list[str]], written: Written
) -> None:
    text = "user,item,rating\n" + "\n".join(map(",".join, rows))
    good, bad = expected(text)
    with written("t.csv", text) as (path, reading):
        assert read(path, reading) == good
        counts = {reason: len(lines) for reason, lines in bad.items()}
        places = {reason: [f"t.csv:{n}" for n in lines[:3]] for reason, lines in bad.items()}
        assert reading.bad.counts == counts
        assert reading.bad.places == places


def test_bad_rows_of_a_binary_file_are_recorded_by_number(tmp_path: Path, reading: Reading) -> None:
    frame = pl.DataFrame({"user": ["a", None, "b", ""], "item": [1, 2, None, 4]})
    frame.write_parquet(tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet", reading) == [("a", 1)]
    assert reading.bad.describe() == [
        "2 rows with a missing query (t.parquet:2, t.parquet:4)",
        "1 row with a missing candidate (t.parquet:3)",
    ]


def test_bad_rows_of_a_regular_file_are_recorded_by_line(tmp_path: Path, reading: Reading) -> None:
    good = [f"u{i},i{i},{i}" for i in range(1, 500)]
    lines = ["", "user,item,rating", *good]
    for number, line in {40: ",i,1", 41: "u,,1", 300: "u,i,", 301: "u,i,x", 402: ",i,1"}.items():
        lines[number - 1] = line
    lines[99] = ""
    (tmp_path / "t.csv").write_text("\n".join(lines))
    kept = [
        line for i, line in enumerate(lines, 1) if i > 2 and i not in (40, 41, 100, 300, 301, 402)
    ]
    assert [f"{u},{i},{g:g}" for u, i, g in read(tmp_path / "t.csv", reading)] == kept
    assert reading.bad.describe() == [
        "2 rows with a missing query (t.csv:40, t.csv:402)",
        "1 row with a missing candidate (t.csv:41)",
        "1 row with a missing grade (t.csv:300)",
        "1 row with a grade that is not a number (t.csv:301)",
    ]


def test_row_of_commas_is_a_bad_row_not_a_blank_line(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.csv").write_text("user,item,rating\nann,x,1\n\n,,\nbob,y,2\n")
    assert len(read(tmp_path / "t.csv", reading)) == 2
    assert reading.bad.describe() == ["1 row with a missing query (t.csv:4)"]


@pytest.mark.parametrize("blank", ["", "\n"])
def test_bad_rows_of_json_are_recorded_by_line(
    blank: str, tmp_path: Path, reading: Reading
) -> None:
    lines = ['{"user": 1, "item": "a", "rating": 2}', '{"item": "a", "rating": 2}',
             '{"user": "", "item": "a", "rating": 2}', '{"user": 2, "item": "b", "rating": "x"}',
             '{"user": 2, "item": "b", "rating": "4"}']  # fmt: skip
    (tmp_path / "t.jsonl").write_text(blank + "\n".join(lines))
    assert read(tmp_path / "t.jsonl", reading) == [("1", "a", 2.0), ("2", "b", 4.0)]
    first = 1 + len(blank)
    assert reading.bad.places == {
        "a missing query": [f"t.jsonl:{first + 1}", f"t.jsonl:{first + 2}"],
        "a grade that is not a number": [f"t.jsonl:{first + 3}"],
    }


def test_broken_line_of_json_is_recorded_and_the_others_kept(
    tmp_path: Path, reading: Reading
) -> None:
    lines = ['{"user": 1, "item": 1.0}', '{"user": 2, "item":', "", '{"user": 3, "item": 2.50}']
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    assert read(tmp_path / "t.jsonl", reading) == [("1", "1"), ("3", "2.5")]
    assert reading.bad.describe() == ["1 row with no JSON object (t.jsonl:2)"]


def test_name_that_comes_late_in_json_is_found(tmp_path: Path, reading: Reading) -> None:
    lines = ['{"user": 1, "item": 1}\n'] * 1500 + ['{"user": 2, "item": 3, "rating": 5}\n']
    (tmp_path / "t.jsonl").write_text("".join(lines))
    assert read(tmp_path / "t.jsonl", reading) == [("2", "3", 5.0)]
    assert reading.bad.counts == {"a missing grade": 1500}


def test_two_fields_of_json_are_taken_in_the_order_of_the_first_object(
    tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / "t.jsonl").write_text('{"z": 1}\n{"a": 3, "z": 2}\n{"z": 4, "a": 5}\n')
    assert read(tmp_path / "t.jsonl", reading) == [("2", "3"), ("4", "5")]


def test_list_in_json_is_not_a_key(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.jsonl").write_text('{"user": 1, "item": [1, 2]}\n')
    with pytest.raises(UserError, match=r"column 'item' of t\.jsonl holds List"):
        read(tmp_path / "t.jsonl", reading)


def test_name_that_is_not_utf_8_makes_a_line_of_json_a_bad_row(
    tmp_path: Path, reading: Reading
) -> None:
    lines = [b'{"user": 1, "item": 2}', b'{"user": 1, "it\xd4em": 2}', b'{"\\ud800": 1, "item": 2}']
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(lines))
    assert read(tmp_path / "t.jsonl", reading) == [("1", "2")]
    assert reading.bad.counts == {"no JSON object": 2}
