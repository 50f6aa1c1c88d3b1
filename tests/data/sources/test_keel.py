"""Files of the KEEL repository, including fars."""

import os
from pathlib import Path

import pytest

from rankfold.data.prepare import prepare
from rankfold.data.sources.keel import SEVERITIES
from rankfold.errors import UserError
from rankfold.types import Columns

FARS = Path(os.environ.get("RANKFOLD_FARS", "fars.dat.zst"))  # the real file, if present
HEADER = """@relation car
@attribute Doors {2, 3, 5more}
@attribute Age integer [0, 99]
@attribute Price real[0.0, 10.0]
@attribute Code {1, 2}
@attribute Class {bad, fair, good}
@inputs Doors, Age, Price, Code
@outputs Class
@data
"""
CLASSES = ("bad", "fair", "good")


@pytest.fixture
def car(tmp_path: Path) -> Path:
    """30 rows: the age is the number of the row, some values are missing, two rows are bad."""
    lines = ["% a comment"]
    for i in range(30):
        doors = "?" if i == 3 else ("2", "3", "5more")[i % 3]
        price = "<null>" if i == 4 else f"{i / 4}"
        lines.append(f"{doors}, {i}, {price}, {1 + i % 2}, {CLASSES[i % 3]}")
    lines += ["2, 1, 1.0, 1", "2, old, 1.0, 1, good"]
    (tmp_path / "car.dat").write_text(HEADER + "\n".join(lines) + "\n")
    return tmp_path / "car.dat"


def test_columns_follow_the_header(car: Path) -> None:
    data = prepare(car, source="keel", split=(1.0, 0.0, 0.0))
    levels = {"Code": ("1", "2"), "Doors": ("2", "3", "5more")}
    assert data.columns == Columns(("Age", "Price"), levels)
    train = data.graded("train")
    assert train.numbers[:, 0].tolist() == list(range(30))
    assert train.numbers[4, 1].isnan()
    assert train.numbers[5, 1] == 1.25
    assert train.categories[:, 0].tolist() == [i % 2 for i in range(30)]
    assert train.categories[:, 1].tolist() == [-1 if i == 3 else i % 3 for i in range(30)]


def test_the_order_of_grades_is_that_of_the_header(car: Path) -> None:
    data = prepare(car, source="keel", split=(1.0, 0.0, 0.0))
    assert data.summary["grade_names"] == ["bad", "fair", "good"]
    assert data.graded("train").grades.tolist() == [i % 3 for i in range(30)]
    other = prepare(car, source="keel", grades="good,bad", split=(1.0, 0.0, 0.0))
    assert other.graded("train").grades.tolist() == [1, 0] * 10


def test_rows_that_contradict_the_header_are_bad(car: Path) -> None:
    dropped = prepare(car, source="keel").summary["dropped"]
    assert dropped == [
        {"why": "a wrong number of columns", "rows": 1, "first": ["car.dat:41"]},
        {"why": "a value of 'Age' that is not a number", "rows": 1, "first": ["car.dat:42"]},
    ]
    with pytest.raises(UserError, match="wrong number of columns"):
        prepare(car, source="keel", strict=True)


def test_the_split_is_stratified(car: Path) -> None:
    data = prepare(car, source="keel", split="0.6,0.2,0.2")
    for name, n in (("train", 6), ("validation", 2), ("test", 2)):
        assert data.summary[name]["grades"] == [n] * 3


def test_folds_are_given_splits(car: Path) -> None:
    data = prepare(
        train=car, test=car, format="features", grade_column="Class", validation_share=0.0
    )
    assert data.summary["train"] == data.summary["test"] == {"rows": 30, "grades": [10] * 3}
    assert data.fingerprint != prepare(car, source="keel").fingerprint


def test_columns_can_be_dropped(car: Path) -> None:
    data = prepare(car, source="keel", drop="Doors,Age")
    assert data.columns == Columns(("Price",), {"Code": ("1", "2")})


def test_without_outputs_the_last_attribute_is_the_grade(car: Path) -> None:
    text = car.read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("@in", "@out"))]
    car.write_text("\n".join(lines))
    data = prepare(car, source="keel")
    assert data.summary["grade_names"] == ["bad", "fair", "good"]
    assert data.columns is not None
    assert data.columns.numbers == ("Age", "Price")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@data", "", "is not a line of a KEEL header"),
        ("@outputs Class", "@outputs Grade", "no attribute 'Grade'"),
        ("@outputs Class", "@outputs Class, Age", "2 outputs"),
        ("integer [0, 99]", "date", "type 'date'"),
        ("@attribute Age", "@attribute Price", "repeated names"),
    ],
)
def test_broken_header_is_refused(old: str, new: str, message: str, car: Path) -> None:
    car.write_text(car.read_text().replace(old, new))
    with pytest.raises(UserError, match=message):
        prepare(car, source="keel")


def test_other_files_are_not_keel(tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_text("1::2::3\n")
    with pytest.raises(UserError, match="not a line of a KEEL header"):
        prepare(tmp_path / "a.dat", source="keel")
    (tmp_path / "a.dat").write_text("@relation a\n")
    with pytest.raises(UserError, match="has no @data"):
        prepare(tmp_path / "a.dat", source="keel")


# ---------------------------------------------------------------------------------- fars


def test_fars_in_its_format(tmp_path: Path) -> None:
    others = ("Injured_Severity_Unknown", "Died_Prior_to_Accident", "Unknown")
    every = ",".join((*SEVERITIES, *others))
    header = (
        "@relation fars\n@attribute AGE real [0.0,99.0]\n"
        "@attribute HISPANIC_ORIGIN {Not_a_Fatality_(Not_Applicable),Mexican}\n"
        "@attribute RACE {Not_a_Fatality_(Not_Applicable),White}\n"
        f"@attribute INJURY_SEVERITY {{{every}}}\n@data\n"
    )
    values = [(*SEVERITIES, *others)[i % 8] for i in range(40)]
    rows = [f"{i},Mexican,White,{value}" for i, value in enumerate(values)]
    (tmp_path / "fars.dat").write_text(header + "\n".join(rows) + "\n")
    data = prepare(tmp_path / "fars.dat", source="fars", strict=True)
    assert data.columns == Columns(("AGE",), {})
    assert [entry["column"] for entry in data.summary["left_out"]] == ["HISPANIC_ORIGIN", "RACE"]
    assert data.summary["grade_names"] == list(SEVERITIES)
    assert sum(entry["rows"] for entry in data.summary["dropped"]) == 15
    train = data.graded("train")
    assert train.grades.tolist() == [int(age) % 8 for age in train.numbers[:, 0]]


def test_fars_needs_its_own_file(car: Path) -> None:
    with pytest.raises(UserError, match="no output INJURY_SEVERITY"):
        prepare(car, source="fars")


@pytest.mark.skipif(not FARS.exists(), reason="the file of fars is not here")
def test_fars_has_the_rows_that_are_known_of_it() -> None:
    data = prepare(FARS, source="fars", split="0.7,0.1,0.2")
    counts = [data.summary[name]["grades"] for name in ("train", "validation", "test")]
    assert [sum(n) for n in zip(*counts, strict=True)] == [20_007, 8_674, 13_890, 15_072, 42_116]
    assert len(data.queries) == 99_759
    assert sum(entry["rows"] for entry in data.summary["dropped"]) == 1_209
    assert data.columns is not None
    assert {"RACE", "HISPANIC_ORIGIN"}.isdisjoint(data.columns.levels)
    assert (len(data.columns.numbers), len(data.columns.levels)) == (5, 22)
