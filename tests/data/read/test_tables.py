"""Tables of every format give the same rows; unreadable ones are refused."""

from pathlib import Path

import polars as pl
import pytest
from pair_tables import FRAME, ROWS, SUFFIXES, Pack, read, write

from rankfold.data.read import record_reader, tables
from rankfold.data.read.columns import PairColumns
from rankfold.data.read.reading import Reading
from rankfold.data.read.tables import read_frame, read_keys, stack
from rankfold.errors import UserError

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
        ("t[1].csv", PLAIN),
        ("t.csv", "\ufeff" + PLAIN.replace("\n", "\r\n")),
        ("t.csv", "\n" + PLAIN.replace("\n", "\n\n")),
        ("t.csv", PLAIN.replace("user,item", " user , item").replace("ann", '"a,""n"')),
        ("t.csv", "".join(f"{line},\n" for line in PLAIN.splitlines())),
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
    (tmp_path / "t.csv").write_text("user,item,note,note\n1,2,3,4\n")
    assert read(tmp_path / "t.csv", reading) == [("1", "2")]


@pytest.mark.parametrize(("name", "word"), [("t.xlsx", "CSV"), ("t.sqlite", "export")])
def test_files_of_other_programs_are_refused_with_a_way(
    name: str, word: str, tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04user,item\n1,2\n")
    with pytest.raises(UserError, match=f"cannot read {name}") as error:
        read(tmp_path / name, reading)
    assert word in error.value.hint


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
