"""Tables of every format give the same rows; bad rows are recorded by line."""

import csv
import io
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.data.read import record_reader, tables
from rankfold.data.read.columns import NONE, PairColumns
from rankfold.data.read.reading import Reading
from rankfold.data.read.tables import read_frame, read_keys, read_table, stack
from rankfold.errors import UserError

Pack = Callable[[bytes, str], bytes]
Written = Callable[[str, str | bytes], AbstractContextManager[tuple[Path, Reading]]]

SUFFIXES = [*tables.SEPARATORS, ".txt", *record_reader.JSON_LINES, ".parquet", *tables.ARROW]
USERS = ["ann", "bob", "zoë", "ann", 'q"uote', "com,ma"]
ITEMS = ["x", "y", "x", "日本", "a b", "tab\tbed"]
GRADES = [1.0, 2.5, 3.0, 0.5, 4.0, 5.0]
FRAME = pl.DataFrame({"user": USERS, "note": "n", "item": ITEMS, "rating": GRADES})
ROWS = list(zip(USERS, ITEMS, GRADES, strict=True))


def read(path: Path, reading: Reading, *, header: bool = True, **columns: str) -> list[Any]:
    frame = read_table(path, PairColumns(**{"time": NONE, **columns}), reading, header=header)
    return frame.collect(engine="streaming").rows()


def write(frame: pl.DataFrame, suffix: str) -> bytes:
    match suffix:
        case ".csv":
            return frame.write_csv().encode()
        case ".tsv" | ".tab":
            return frame.write_csv(separator="\t").encode()
        case ".txt":
            return frame.write_csv(separator=";").encode()
        case ".jsonl" | ".ndjson" | ".json":
            return frame.write_ndjson().encode()
        case ".parquet":
            frame.write_parquet(file := io.BytesIO())
        case _:
            frame.write_ipc(file := io.BytesIO())
    return file.getvalue()


# ---------------------------------------------------------------------------------- formats


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_same_rows(
    suffix: str, packed: str, tmp_path: Path, reading: Reading, pack: Pack
) -> None:
    path = tmp_path / f"t{suffix}{packed}"
    path.write_bytes(pack(write(FRAME, suffix), packed))
    assert read(path, reading) == ROWS
    assert reading.bad.counts == {}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".arrow"])
@pytest.mark.parametrize("name", ["a[1]", "a*", "a?b", "{a,b}", "~a", "a b%20#"])
def test_name_may_have_glob_characters(
    name: str, suffix: str, tmp_path: Path, reading: Reading
) -> None:
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(write(FRAME, suffix))
    assert read(path, reading) == ROWS


PLAIN = "user,item,rating\nann,x,1\nbob,y,2\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(PLAIN.removesuffix("\n"), id="no final newline"),
        pytest.param(PLAIN.replace("\n", "\r\n"), id="from Windows"),
        pytest.param("\ufeff" + PLAIN, id="byte order mark"),
        pytest.param("\ufeff" + PLAIN.replace("user", '"user"'), id="mark before a quote"),
        pytest.param("\n\n" + PLAIN.replace("\n", "\n\n") + "\n\n", id="blank lines"),
        pytest.param(PLAIN.replace("\n", "\r\n\r\n"), id="blank lines from Windows"),
        pytest.param(PLAIN.replace("bob", "  \nbob"), id="line of spaces"),
        pytest.param(PLAIN.replace("ann", '"ann"').replace("x", '"x"'), id="quotes"),
        pytest.param(
            PLAIN.replace(",1", ", 1 ").replace(",2", ",\t2"), id="spaces around a number"
        ),
        pytest.param(PLAIN.replace("user,item", " user , item"), id="spaces around names"),
        pytest.param("".join(f"{line},\n" for line in PLAIN.splitlines()), id="trailing commas"),
        pytest.param(PLAIN.replace(",", ";"), id="semicolons in a CSV"),
        pytest.param(
            "user; item; rating; a note on it\nann;x;1;p\nbob;y;2;q\n", id="semicolons and spaces"
        ),
        pytest.param(
            '"user";"item";"rating";"a note, or two, on it"\nann;x;1;p\nbob;y;2;q\n',
            id="commas in quotes",
        ),
    ],
)
def test_every_spelling_of_a_csv_gives_the_same_rows(
    text: str, tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / "t.csv").write_text(text, newline="")
    assert read(tmp_path / "t.csv", reading) == [("ann", "x", 1.0), ("bob", "y", 2.0)]
    assert reading.bad.counts == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", PLAIN),
        ("t.csv", "\ufeff" + PLAIN.replace("\n", "\r\n")),
        ("t.csv", "\n" + PLAIN.replace("\n", "\n\n")),
        ("t.csv", PLAIN.replace("user,item", " user , item").replace("ann", '"a,""n"')),
        ("t.csv", "".join(f"{line},\n" for line in PLAIN.splitlines())),
        ("t[1].jsonl", '{"user": 1, "item": 2}\n{"user": 3, "item": 4}\n\n'),
    ],
)
def test_ordinary_text_uses_the_fast_reader(
    name: str, text: str, tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(record_reader, "read")
    (tmp_path / name).write_text(text, newline="")
    assert len(read(tmp_path / name, reading)) == 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_column_may_have_any_name(suffix: str, tmp_path: Path, reading: Reading) -> None:
    frame = FRAME.rename({"note": "__line__"})
    path = tmp_path / f"t{suffix}"
    path.write_bytes(write(frame, suffix))
    assert read(path, reading) == ROWS
    assert read_frame(frame.lazy(), PairColumns(), "it", reading).collect().height == len(ROWS)


def test_columns_may_be_separated_by_spaces(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.txt").write_text("user item rating\nann x 1\nbob y 2\n")
    assert read(tmp_path / "t.txt", reading) == [("ann", "x", 1.0), ("bob", "y", 2.0)]


@pytest.mark.parametrize(
    ("name", "lines", "columns"),
    [
        ("a.csv", ["bmi (kg, m);age;city", "1;2;x", "", "2;3;y"], ["bmi (kg, m)", "age", "city"]),
        ("a.csv", ["bmi (kg, m);age", "22,5;2,1", "22;3"], ["bmi (kg, m)", "age"]),
        ("a.tsv", ["a\tb;c;d", "1;2;3"], ["a\tb", "c", "d"]),
        ("a.csv", ["a,b|c", "1,x|y", "2,z"], ["a", "b|c"]),  # both are steady, then one
        ("a.csv", ["a,b;c,d", "1,x;y", "2,x,3"], ["a", "b;c", "d"]),  # neither is
        (
            "a.csv",
            ["id,title,genres", "1,Title,A|B|C", "2,Of, two,A|B|C"],
            ["id", "title", "genres"],
        ),
        ("a.csv", ["a,b", "1,2,", "3,4"], ["a", "b"]),
        ("a.csv", ['a,"b; c"', '1,"x', 'y, z; ""w"", v"', "2,q"], ["a", "b; c"]),
        ("a.csv", ["m, n;b", '1;"x', 'y, z"', '2;"open, '], ["m, n", "b"]),
        ("a.csv", ["m, n;b"], ["m", "n;b"]),  # one line decides nothing
        ("a.txt", ["a,b,c;d", "1;2", "3;4"], ["a", "b", "c;d"]),  # by the first line
    ],
)
def test_the_separator_occurs_equally_often_in_every_line(
    name: str, lines: list[str], columns: list[str], tmp_path: Path, reading: Reading
) -> None:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    assert tables.read_columns(path, reading).columns[1:] == columns


def test_keys_of_one_column_may_have_spaces(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.csv").write_text("query\nann lee\nbob\n")
    assert read_keys(tmp_path / "t.csv", None, reading).to_list() == ["ann lee", "bob"]
    assert reading.bad.counts == {}


def test_without_header_the_columns_are_numbered(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.csv").write_text("\nann,x,1\n,y,2\nbob,y,3\n")
    path, columns = tmp_path / "t.csv", {"query": "column_0", "candidate": "column_1"}
    assert read(path, reading, header=False, **columns) == [("ann", "x"), ("bob", "y")]
    assert read(path, reading, header=False, **columns, grade="column_2")[1] == ("bob", "y", 3.0)
    assert reading.bad.places["a missing query"][0] == "t.csv:3"


def test_wide_table_is_read(tmp_path: Path, reading: Reading) -> None:
    more = ",".join(f"c{i}" for i in range(2000))
    (tmp_path / "t.csv").write_text(f"user,{more},item\nann,{more},x\nbob,{more}\n")
    assert read(tmp_path / "t.csv", reading) == [("ann", "x")]
    assert reading.bad.places == {"a wrong number of columns": ["t.csv:3"]}


def test_missing_grade_and_time_columns_are_not_read(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.csv").write_text("user,item,rating,time\nann,x,1,5\n")
    path = tmp_path / "t.csv"
    assert read(path, reading, grade="none") == [("ann", "x")]
    assert read(path, reading, time="time") == [("ann", "x", 1.0, 5.0)]


# ---------------------------------------------------------------------------------- malformed


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
        if value == "":
            return f"a missing {role}"
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


# ---------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("1", 1.0), ("-2.5", -2.5), ("+3", 3.0), ("1e3", 1000.0), (".5", 0.5), ("5.", 5.0),
        ("0", 0.0), ("-0", 0.0), ("1e-50", 0.0), ("16777217", 16777216.0),
    ],
)  # fmt: skip
def test_numbers_are_read_as_grades(
    text: str, grade: float, tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / "t.csv").write_text(f"user,item,rating\na,b,{text}\n")
    assert read(tmp_path / "t.csv", reading) == [("a", "b", grade)]


@pytest.mark.parametrize(
    "text", ["x", "1 2", "1_0", "0x1", "nan", "inf", "-Infinity", "1e39", "--1"]
)
def test_other_texts_are_not_grades(text: str, tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.csv").write_text(f"user,item,rating\na,b,{text}\n")
    assert read(tmp_path / "t.csv", reading) == []
    assert reading.bad.counts == {"a grade that is not a number": 1}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1577934245", 1577934245.0),
        (" 1577934245.5 ", 1577934245.5),
        ("2020-01-02", 1577923200.0),
        ("2020-01-02 03:04", 1577934240.0),
        ("2020-01-02 03:04:05", 1577934245.0),
        ("2020-01-02T03:04:05.25", 1577934245.25),
        ("2020-01-02T03:04:05Z", 1577934245.0),
        (" 2020-01-02T03:04:05.5+00:00 ", 1577934245.5),
        ("2020-01-02 05:04:05+02:00", 1577934245.0),
        ("1969-12-31", -86400.0),
    ],
)
def test_times_are_seconds_since_1970(
    text: str, seconds: float, tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / "t.csv").write_text(f"user,item,time\na,b,{text}\n")
    assert read(tmp_path / "t.csv", reading, time="time") == [("a", "b", seconds)]


def test_other_texts_are_not_times(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.csv").write_text("user,item,time\na,b,2020-13-01\na,b,soon\na,b,\na,b,nan\n")
    assert read(tmp_path / "t.csv", reading, time="time") == []
    assert reading.bad.counts == {
        "a time that is neither a number nor a date": 3,
        "a missing time": 1,
    }


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pl.Series([3, -1], dtype=pl.Int8), [3, -1]),
        (pl.Series([3, 2**32 - 1], dtype=pl.UInt32), [3, 2**32 - 1]),
        (pl.Series([3, 2**64 - 1], dtype=pl.UInt64), ["3", str(2**64 - 1)]),
        (pl.Series([3, -(10**30)], dtype=pl.Int128), ["3", str(-(10**30))]),
        (pl.Series([3.0, 2.5]), ["3", "2.5"]),
        (pl.Series([True, False]), ["true", "false"]),
        (pl.Series(["a", "b"], dtype=pl.Categorical), ["a", "b"]),
        (pl.Series(["a", "b"], dtype=pl.Enum(["b", "a"])), ["a", "b"]),
        (pl.Series(["2020-01-02", "2020-01-03"]).str.to_date(), ["2020-01-02", "2020-01-03"]),
        (pl.Series(["07", " 7"]), ["07", " 7"]),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, pl.Series) else "",
)
def test_keys_of_any_type_become_integers_or_text(
    column: pl.Series, keys: list[Any], reading: Reading
) -> None:
    frame = pl.LazyFrame({"user": column, "item": ["x", "y"]})
    rows = read_frame(frame, PairColumns(), "t", reading).collect().rows()
    assert [key for key, _ in rows] == keys


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([None, 5]),
        pl.Series(["", "5"]),
        pl.Series([float("nan"), 5.0]),
        pl.Series([float("inf"), 5.0]),
    ],
    ids=lambda column: str(column.to_list()[0]),
)
def test_null_key_is_missing(column: pl.Series, reading: Reading) -> None:
    frame = pl.LazyFrame({"user": column, "item": ["x", "y"]})
    assert read_frame(frame, PairColumns(), "t", reading).collect().height == 1
    assert reading.bad.describe() == ["1 row with a missing query (t:1)"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"user": [[1]]}, "column 'user' of t holds List"),
        ({"user": [b"a"]}, "column 'user' of t holds Binary"),
        ({"user": [{"a": 1}]}, "column 'user' of t holds Struct"),
        ({"rating": [[1]]}, "column 'rating' of t holds List"),
        ({"time": [[1]]}, "column 'time' of t holds List"),
        ({"time": [True]}, "column 'time' of t holds Boolean"),
    ],
)
def test_unsupported_type_is_refused(
    column: dict[str, Any], message: str, reading: Reading
) -> None:
    frame = pl.LazyFrame({"user": [1], "item": [1], **column})
    with pytest.raises(UserError) as error:
        read_frame(frame, PairColumns(), "t", reading)
    assert str(error.value).startswith(message)
    assert error.value.hint


def test_grades_and_times_of_any_type_become_numbers(reading: Reading) -> None:
    frame = pl.LazyFrame({"user": [1, 2], "item": [1, 2], "rating": [True, False]})
    dated = frame.with_columns(time=pl.datetime(1970, 1, 2, time_zone="UTC"))
    rows = read_frame(dated, PairColumns(), "t", reading).collect().rows()
    assert rows == [(1, 1, 1.0, 86400.0), (2, 2, 0.0, 86400.0)]


# ---------------------------------------------------------------------------------- refused files


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("packed", [".gz", ".zst"])
@pytest.mark.parametrize("size", [3, 20_000])
def test_cut_off_file_is_refused(
    suffix: str, packed: str, size: int, tmp_path: Path, reading: Reading, pack: Pack
) -> None:
    frame = pl.DataFrame({"user": range(size), "item": range(size)})
    path = tmp_path / f"t{suffix}{packed}"
    path.write_bytes(pack(write(frame, suffix), packed)[:-5])
    with pytest.raises(UserError, match=rf"t{suffix}{packed}") as error:
        read(path, reading)
    assert "complete" in error.value.hint or "again" in error.value.hint


@pytest.mark.parametrize("packed", [".gz", ".zst"])
def test_cut_off_file_with_a_bad_row_is_refused(
    packed: str, tmp_path: Path, reading: Reading, pack: Pack
) -> None:
    text = "user,item\n1,2,3\n" + "".join(f"{i},{i}\n" for i in range(50_000))
    path = tmp_path / f"t.csv{packed}"
    path.write_bytes(pack(text.encode(), packed)[:-5])
    with pytest.raises(UserError, match=rf"t\.csv{packed}"):
        read(path, reading)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"user,item\n1,2\n", b"PAR1" + bytes(100)])
def test_file_with_a_wrong_suffix_is_refused(
    suffix: str, content: bytes, tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / f"t{suffix}").write_bytes(content)
    with pytest.raises(UserError, match=f"cannot read t{suffix}"):
        read(tmp_path / f"t{suffix}", reading)


def test_cut_off_parquet_is_refused(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.parquet").write_bytes(write(FRAME, ".parquet")[:-9])
    with pytest.raises(UserError, match=r"cannot read t\.parquet"):
        read(tmp_path / "t.parquet", reading)


def test_parquet_named_csv_is_refused(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.csv").write_bytes(write(FRAME, ".parquet"))
    with pytest.raises(UserError, match=r"t\.csv"):
        read(tmp_path / "t.csv", reading)


@pytest.mark.parametrize("text", ["", "\n\n"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt", ".jsonl"])
def test_empty_text_is_refused(text: str, suffix: str, tmp_path: Path, reading: Reading) -> None:
    (tmp_path / f"t{suffix}").write_text(text)
    with pytest.raises(UserError, match=rf"t{suffix} (is empty|holds no JSON object)"):
        read(tmp_path / f"t{suffix}", reading)


@pytest.mark.parametrize("text", ["user,item", "user,item\n", "user,item\n\n"])
def test_header_alone_has_no_rows(text: str, tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert read(tmp_path / "t.csv", reading) == []
    assert reading.bad.counts == {}


def test_column_named_twice_is_refused(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.csv").write_text("user,item,user\n1,2,3\n")
    with pytest.raises(UserError, match=r"t\.csv has two columns named 'user'"):
        read(tmp_path / "t.csv", reading)


def test_first_line_of_numbers_is_not_a_header(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.csv").write_text("1,2\n3,4\n")
    with pytest.raises(UserError, match=r"first line of t\.csv has no column names: 1,2") as error:
        read(tmp_path / "t.csv", reading)
    assert "--no-header" in error.value.hint
    assert read(tmp_path / "t.csv", reading, header=False) == [("1", "2"), ("3", "4")]
    assert read(tmp_path / "t.csv", reading, query="1", candidate="2") == [("3", "4")]


def test_latin_1_spoils_only_the_rows_whose_keys_have_it(tmp_path: Path, reading: Reading) -> None:
    text = "user,item,title\nann,x,é\nbôb,y,b\nzoe,z,c\n"
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    assert read(tmp_path / "t.csv", reading) == [("ann", "x"), ("zoe", "z")]
    assert reading.bad.describe() == ["1 row with bytes that are not UTF-8 (t.csv:3)"]


def test_unreadable_file_is_refused(unprivileged: Path) -> None:
    (unprivileged / "scratch").mkdir()
    for suffix in (".csv", ".jsonl", ".parquet", ".arrow"):
        path = unprivileged / f"t{suffix}"
        path.write_bytes(write(FRAME, suffix))
        path.chmod(0)
        with pytest.raises(UserError, match=f"t{suffix}.*Permission denied"):
            read(path, Reading(unprivileged / "scratch"))


# ---------------------------------------------------------------------------------- several


def test_stacked_tables_are_concatenated() -> None:
    one = pl.LazyFrame({"query": [1], "candidate": ["x"]})
    two = pl.LazyFrame({"candidate": ["y"], "query": ["007"]})
    stacked = stack([("one", one), ("two", two)]).collect()
    assert stacked.rows() == [("1", "x"), ("007", "y")]


@pytest.mark.parametrize("role", ["grade", "time"])
def test_column_of_one_table_only_is_refused(role: str) -> None:
    one = pl.LazyFrame({"query": [1], "candidate": ["x"]})
    two = one.with_columns(pl.lit(1.0).alias(role))
    with pytest.raises(UserError, match=f"b.csv has a {role} column, a.csv has none") as e:
        stack([("a.csv", one), ("b.csv", two)])
    assert f"--{role}-column none" in e.value.hint


# ---------------------------------------------------------------------------------- keys only


@pytest.mark.parametrize(
    ("name", "text", "keys"),
    [
        ("k.csv", "user,item\nann,x\n,y\nbob,z\nann,x\n", ["ann", "bob", "ann"]),
        ("k.txt", "anything\n007\n\n7\n", ["007", "7"]),
        ("k.csv", "user,item\nann\nbob,x\n", ["bob"]),
        ("k.jsonl", '{"query": 5}\n\n{"query": "x"}\n', ["5", "x"]),
    ],
)
def test_query_keys_are_read_in_order(
    name: str, text: str, keys: list[str], tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / name).write_text(text)
    assert read_keys(tmp_path / name, None, reading).to_list() == keys


def test_query_keys_of_a_binary_file_keep_their_type(tmp_path: Path, reading: Reading) -> None:
    pl.DataFrame({"a": [3, None, 1], "b": [1, 2, 3]}).write_parquet(tmp_path / "k.parquet")
    assert read_keys(tmp_path / "k.parquet", "a", reading).to_list() == [3, 1]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("a,b\n1,2\n", None, "k.csv has no column with a usual name of queries"),
        ("a,b\n1,2\n", "c", "k.csv has no column 'c'"),
        ("17\n18\n", None, "the first line of k.csv has no column names: 17"),
    ],
)
def test_query_keys_without_their_column_are_refused(
    text: str, column: str | None, message: str, tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / "k.csv").write_text(text)
    with pytest.raises(UserError) as error:
        read_keys(tmp_path / "k.csv", column, reading)
    assert str(error.value) == message
    assert error.value.hint
