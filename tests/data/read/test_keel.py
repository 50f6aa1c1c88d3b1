"""KEEL files: which attribute is the output, and rows that violate the header."""

from pathlib import Path

import polars as pl
import pytest
import torch

from rankfold.data.build.new_rows import read_rows
from rankfold.data.prepare import prepare
from rankfold.data.read import keel
from rankfold.data.read.reading import LINE, Reading
from rankfold.errors import UserError
from rankfold.types import Columns

ATTRIBUTES = "@attribute Age integer [0, 99]\n@attribute Sex {Male, Female}\n"
CLASS = "@attribute Class {low, high}\n"


def write(home: Path, header: str, *rows: str) -> Path:
    (home / "k.dat").write_text("\n".join([f"@relation k\n{header}@data", *rows]) + "\n")
    return home / "k.dat"


# ---------------------------------------------------------------------------------- the output


@pytest.mark.parametrize(
    ("directions", "output", "used"),
    [
        ("", "Class", ("Age", "Sex", "Class")),
        ("@outputs Sex\n", "Sex", ("Age", "Sex", "Class")),
        ("@inputs Age, Sex\n", "Class", ("Age", "Sex", "Class")),
        ("@inputs Sex, Class\n", "Age", ("Age", "Sex", "Class")),
        ("@inputs Age\n@outputs Class\n", "Class", ("Age", "Class")),
        ("@inputs Age, Sex, Class\n@outputs Class\n", "Class", ("Age", "Sex", "Class")),
        ("@inputs Age, Sex, Class\n", None, ("Age", "Sex", "Class")),
        ("@inputs Age\n", None, ("Age",)),
    ],
)
def test_the_output_is_named_or_inferred(
    directions: str, output: str | None, used: tuple[str, ...], tmp_path: Path, reading: Reading
) -> None:
    path = write(tmp_path, ATTRIBUTES + CLASS + directions, "31, Male, low")
    header, frame = keel.read(path, reading)
    assert (header.output, header.used) == (output, used)
    assert frame.columns == [LINE, *used]


@pytest.mark.parametrize(
    ("grade", "inputs"), [("Class", "@inputs Age\n"), ("Sex", ""), ("Sex", "@inputs Age, Sex\n")]
)
def test_named_output_overrides_the_header(grade: str, inputs: str, tmp_path: Path) -> None:
    """Unlisted values of it are grades like others."""
    rows = [
        f"{i}, {('Male', 'Female', 'Alien')[i % 3]}, {('low', 'high')[i % 2]}" for i in range(30)
    ]
    path = write(tmp_path, ATTRIBUTES + CLASS + inputs, *rows)
    names = {"Class": "low,high", "Sex": "Male,Female,Alien"}[grade]
    data = prepare(path, format="features", grade_column=grade, grades=names.split(","))
    counts = {"Class": [10, 10] if "Sex" in inputs else [15, 15], "Sex": [10, 10, 10]}[grade]
    every = torch.cat([data.graded(s).grades for s in ("train", "validation", "test")])
    assert torch.bincount(every).tolist() == counts


def test_rows_without_an_output_can_be_predicted(tmp_path: Path) -> None:
    path = write(tmp_path, f"{ATTRIBUTES}@inputs Age, Sex\n", "31, Male", "32, Female")
    rows = read_rows(path, Columns(("Age",), {"Sex": ("Female", "Male")})).rows
    assert rows.numbers[:, 0].tolist() == [31, 32]
    assert rows.categories[:, 0].tolist() == [1, 0]
    assert rows.grades.tolist() == [-1, -1]


def test_file_with_a_single_input_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, "@attribute Age integer [0, 99]\n@inputs Age\n", "31")
    assert read_rows(path, Columns(("Age",), {})).rows.numbers.tolist() == [[31]]
    with pytest.raises(UserError, match="too few attributes"):
        prepare(write(tmp_path, "@attribute Age real\n", "31"), format="features")


@pytest.mark.parametrize("inputs", ["Age, Sex, Class", "Age"])
@pytest.mark.parametrize("options", [{"format": "features"}, {"source": "keel"}])
def test_rows_to_learn_from_need_one_output(
    inputs: str, options: dict[str, str], tmp_path: Path
) -> None:
    path = write(tmp_path, f"{ATTRIBUTES}{CLASS}@inputs {inputs}\n", "31, Male, low")
    with pytest.raises(UserError, match="cannot tell where the grades") as caught:
        prepare(path, **options)
    assert caught.value.hint == "it has Age, Sex, Class; add @outputs NAME to its header"


# ---------------------------------------------------------------------------------- promises

PROMISES = (
    "@attribute Age integer [0, 99]\n@attribute Dose REAL[-1.5e1 , .5]\n@attribute Free real\n"
    "@attribute Sex {Male, 'Fe male'}\n@attribute Ward {}\n@attribute Id integer [0, 1]\n"
    "@attribute Class {low, high}\n@inputs Age, Dose, Free, Sex, Ward\n@outputs Class\n"
)
GOOD = ("0", "-15", "1e9", "Male", "x", "7", "low")
AGE, DOSE = "a value of 'Age' outside [0, 99]", "a value of 'Dose' outside [-15, 0.5]"
NO_NUMBER = "a value of 'Age' that is not a number"
SEX = "a value of 'Sex' that is not listed"


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        (0, "99", None),
        (0, "99.00001", None),  # rounded
        (0, "99.01", AGE),
        (0, "500", AGE),
        (0, "-1", AGE),
        (0, "inf", AGE),
        (0, "old", NO_NUMBER),
        (0, "nan", None),
        (0, "?", None),
        (1, "0.5", None),
        (1, "0.51", DOSE),
        (1, "-15.1", DOSE),
        (2, "-1e9", None),
        (3, "Fe male", None),
        (3, "'Fe male'", None),
        (3, "<NULL>", None),
        (3, "", None),
        (3, "Alien", SEX),
        (3, "male", SEX),
        (4, "y", None),  # an empty list allows all values
        (5, "500", None),  # no input
        (6, "middle", None),  # no input
    ],
)
def test_rows_that_contradict_the_header_are_bad(
    column: int, value: str, why: str | None, tmp_path: Path, reading: Reading
) -> None:
    row = [*GOOD[:column], value, *GOOD[column + 1 :]]
    path = write(tmp_path, PROMISES, ",".join(GOOD), ",".join(row), ",".join(GOOD))
    _, frame = keel.read(path, reading)
    assert frame[LINE].to_list() == ([12, 13, 14] if why is None else [12, 14])
    assert frame["Age"].dtype == frame["Dose"].dtype == pl.Float64
    assert reading.bad.places == ({} if why is None else {why: ["k.dat:13"]})


def test_each_bad_row_is_counted_once(tmp_path: Path) -> None:
    rows = [f"{i}, {('Male', 'Female')[i % 2]}, {('low', 'high')[i // 2 % 2]}" for i in range(40)]
    bad = [
        "500, Alien, low",
        "old, Alien, low",
        "7, Alien, low",
        "7, Male, odd",
        *["100, ?, ?"] * 4,
    ]
    path = write(tmp_path, ATTRIBUTES + CLASS, *rows, *bad)
    summary = prepare(path, format="features").summary
    assert summary["dropped"] == [
        {"why": NO_NUMBER, "rows": 1, "first": ["k.dat:47"]},
        {"why": AGE, "rows": 5, "first": ["k.dat:46", "k.dat:50", "k.dat:51"]},
        {"why": SEX, "rows": 1, "first": ["k.dat:48"]},
        {"why": "a grade that is not among those given", "rows": 1, "first": ["k.dat:49"]},
    ]
    assert summary["rows"] == 48


def test_new_rows_keep_their_numbers_despite_bad_rows(tmp_path: Path, reading: Reading) -> None:
    path = write(
        tmp_path, f"{ATTRIBUTES}@inputs Age, Sex\n", "0, Male", "1, Alien", "500, ?", "3, ?"
    )
    new = read_rows(path, Columns(("Age",), {}), reading=reading)
    assert new.keys.to_list() == new.rows.numbers[:, 0].tolist() == [0, 3]
    with pytest.raises(UserError, match=r"not listed \(k\.dat:7\)"):
        read_rows(path, Columns(("Age",), {}))


def test_rows_with_grades_are_not_read_as_pairs(tmp_path: Path) -> None:
    path = write(tmp_path, ATTRIBUTES + CLASS, *["31, Male, low"] * 9)
    for options in ({"train": path}, {"train": path, "test": path}):
        with pytest.raises(UserError, match="is a KEEL file") as caught:
            prepare(**options)
        assert caught.value.hint == "add --format features"
    with pytest.raises(UserError, match="is a KEEL file"):
        prepare(path)
