"""Graded rows on the command line: prepare, info, verify."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import Command


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    rows = [f"p{i},{20 + i},{'mf'[i % 2]},x,{('low', 'high')[i % 2]}" for i in range(20)]
    (tmp_path / "patients.csv").write_text(
        "\n".join(["id,age,sex,site,severity", *rows, "p20,30,m,x,odd"]) + "\n"
    )
    return tmp_path / "patients.csv"


@pytest.fixture
def words(patients: Path) -> tuple[object, ...]:
    columns = ("--query-column", "id", "--grade-column", "severity", "--grades", "low,high")
    return ("prepare", patients, "--format", "features", *columns)


def test_prepare_and_info_describe_the_data(
    rankfold: Command, words: tuple[object, ...], tmp_path: Path
) -> None:
    done = rankfold(*words, "--out", tmp_path / "d")
    assert done.code == 0
    output = rankfold("info", tmp_path / "d")
    for shown in (done.err, output.err):
        assert "20 rows of 2 grades" in shown
        assert "split: train 16, validation 2, test 2" in shown
        assert "grade 0, low: 10 (train 8, validation 1, test 1)" in shown
        assert "grade 1, high: 10 (train 8, validation 1, test 1)" in shown
        assert "columns: 1 number, 1 category" in shown
        assert "column dropped: site (it has the same value in all training rows)" in shown
        assert "rows read: 21" in shown
        assert "dropped: 1 for a grade that is not among those given (patients.csv:22)" in shown
    about = json.loads(rankfold("info", tmp_path / "d", "--json").out)
    assert about["columns"] == {"numbers": ["age"], "levels": {"sex": ["f", "m"]}}
    assert len(about["fingerprint"]) == 64
    assert rankfold("verify", tmp_path / "d").code == 0


def test_stray_word_among_numbers_is_reported(
    rankfold: Command, words: tuple[object, ...], patients: Path, tmp_path: Path
) -> None:
    patients.write_text(patients.read_text().replace("p7,27,", "p7,2 7,"))
    done = rankfold(*words, "--out", tmp_path / "d")
    for shown in (done.err, rankfold("info", tmp_path / "d").err):
        output = "column age is read as categories: '2 7' (patients.csv:9) is not a number"
        assert output in " ".join(shown.split())
    table = "id,age\n" + "".join(f"u{i},{i if i else 'x'}\n" for i in range(20))
    (tmp_path / "users.csv").write_text(table)
    (tmp_path / "pairs.csv").write_text("user,item\nu1,a\nu2,b\n")
    pairs = ("--query-features", tmp_path / "users.csv", "--out", tmp_path / "p")
    output = rankfold("prepare", tmp_path / "pairs.csv", *pairs).err
    assert "query feature age is read as categories: 'x' is not a number" in " ".join(
        output.split()
    )


def test_leaking_columns_and_equal_rows_are_reported(rankfold: Command, tmp_path: Path) -> None:
    rows = [f"{i % 30},{i % 2},{i},{('low', 'high')[i % 2]}" for i in range(100)]
    (tmp_path / "rows.csv").write_text("\n".join(["age,died,number,severity", *rows]) + "\n")
    words = ("prepare", tmp_path / "rows.csv", "--format", "features", "--grade-column", "severity")
    words = (*words, "--grades", "low,high", "--out", tmp_path / "d")
    for done in (rankfold(*words), rankfold("info", tmp_path / "d")):
        shown = " ".join(done.err.split())
        assert "column died: it alone gives the grade (AUC 1.0000 for grades above low)" in shown
        assert "leave it out: --drop died" in shown
        assert "column number: its values follow the order of the rows" in shown
    done = rankfold(*words, "--drop", "died,number", "--json")
    assert done.err == ""
    summary = json.loads(done.out)["summary"]
    assert [entry["column"] for entry in summary["suspicious"]] == ["age"]  # 30 values of one grade
    _, test, _ = summary["equal_rows"]
    assert (test["split"], test["equal_to"], test["of"]) == ("test", "train", 10)
    assert test["rows"] == 10
    shown = " ".join(rankfold(*words, "--drop", "died,number").err.split())
    assert "10 rows of 10 in test equal a row of train (rows.csv:" in shown
    words = (*words, "--split", "group:age", "--drop", "died,number")
    assert rankfold(*words).code == 2  # the only column names the groups


def test_json_is_the_summary(rankfold: Command, words: tuple[object, ...], tmp_path: Path) -> None:
    more = ("--drop", "site,sex", "--split", "0.6,0.2,0.2", "--json")
    summary = json.loads(rankfold(*words, "--out", tmp_path / "d", *more).out)["summary"]
    assert summary["train"] == {"rows": 12, "grades": [6, 6]}
    assert [entry["column"] for entry in summary["left_out"]] == ["sex", "site"]


def test_fit_and_info_say_which_epoch_was_kept(
    rankfold: Command, words: tuple[object, ...], tmp_path: Path
) -> None:
    data, model = tmp_path / "d", tmp_path / "m"
    rankfold(*words, "--out", data, "--split", "0.6,0.2,0.2")
    few = ("--set", "epochs=3", "--set", "width=4")
    done = rankfold("fit", "ce", data, "--out", model, *few)
    assert "step 3, the last, validation pauc" in " ".join(done.err.split())
    assert "last on validation: step 3, score" in rankfold("info", model).err
    done = rankfold("fit", "ce", data, "--out", model, "--patience", "3", *few)
    assert "few rows" not in done.err
    assert "best on validation: step" in rankfold("info", model).err


def test_strict_refuses_bad_rows(
    rankfold: Command, words: tuple[object, ...], tmp_path: Path
) -> None:
    done = rankfold(*words, "--out", tmp_path / "d", "--strict")
    assert done.code == 2
    assert "patients.csv:22" in done.err
    assert not (tmp_path / "d").exists()


def test_text_without_an_order_is_an_error(
    rankfold: Command, patients: Path, tmp_path: Path
) -> None:
    words = ("--format", "features", "--grade-column", "severity", "--out", tmp_path / "d")
    done = rankfold("prepare", patients, *words)
    assert done.code == 2
    assert "no natural order: high,low,odd" in " ".join(done.err.split())
    assert "--grades LOWEST,...,HIGHEST" in " ".join(done.err.split())


def test_bundled_retinas(rankfold: Command, tmp_path: Path) -> None:
    done = rankfold("prepare", "--source", "retinamnist", "--out", tmp_path / "d")
    assert done.code == 0
    assert "1,600 rows of 5 grades" in done.err
    assert "grade 4: 92 (train 66, validation 6, test 20)" in done.err
    assert "images: 28 x 28, colour" in done.err


def test_keel_rows_are_predicted_without_their_grade(rankfold: Command, tmp_path: Path) -> None:
    header = "@relation k\n@attribute Age integer [0, 99]\n@attribute Sex {Male, Female}\n"
    values = [f"{i}, {('Male', 'Female')[i // 2 % 2]}" for i in range(40)]
    graded = [f"{row}, {('low', 'high')[i // 20]}" for i, row in enumerate(values)]
    text = "\n".join([f"{header}@attribute Class {{low, high}}\n@data", *graded])
    (tmp_path / "k.dat").write_text(text)
    text = "\n".join([f"{header}@inputs Age, Sex\n@data", *values, "500, Male", "7, Alien"])
    (tmp_path / "new.dat").write_text(text)
    words = ("--format", "features", "--out", tmp_path / "d")
    assert rankfold("prepare", tmp_path / "k.dat", *words).code == 0
    fitted = rankfold("fit", "ce", tmp_path / "d", "--out", tmp_path / "m", "--set", "epochs=1")
    assert fitted.code == 0
    out = tmp_path / "p.parquet"
    done = rankfold("predict", tmp_path / "m", tmp_path / "new.dat", "--out", out)
    shown = " ".join(done.err.split())
    assert done.code == 0, shown
    assert pl.read_parquet(out)["query"].to_list() == list(range(40))
    assert "a value of 'Age' outside [0, 99] (new.dat:46)" in shown
    assert "a value of 'Sex' that is not listed (new.dat:47)" in shown


def test_arrays_by_split_have_the_named_grades(rankfold: Command, tmp_path: Path) -> None:
    rows = {f"{name}_X": np.arange(20.0)[:, None] for name in ("train", "validation", "test")}
    rows |= {name.replace("_X", "_severity"): np.arange(20) % 2 for name in rows}
    np.savez(tmp_path / "a.npz", **rows)  # type: ignore[arg-type]
    words = ("prepare", tmp_path / "a.npz", "--format", "features", "--out", tmp_path / "d")
    done = rankfold(*words)
    assert done.code == 2
    assert "it has severity; use --grade-column NAME" in " ".join(done.err.split())
    done = rankfold(*words, "--grade-column", "severity")
    assert done.code == 0
    assert "split: train 20, validation 20, test 20" in done.err
