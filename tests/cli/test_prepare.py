"""What ``prepare`` says about the columns it took, and which folders it replaces."""

from pathlib import Path

from commands import Command


def test_columns_and_three_rows_are_shown(rankfold: Command, ratings: Path, tmp_path: Path) -> None:
    err = rankfold("prepare", ratings, "--out", tmp_path / "d").err
    roles = "ratings.csv: query = user, candidate = item, grade = rating; unused: timestamp"
    assert roles in " ".join(err.split())
    first = ratings.read_text().splitlines()[1:4]
    for line in first:
        assert " ".join(line.split(",")[:3]) in " ".join(err.split())


def test_columns_are_shown_before_an_error(rankfold: Command, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user,item,rating\na,x,good\nb,y,bad\n")
    done = rankfold("prepare", tmp_path / "r.csv", "--out", tmp_path / "d")
    assert done.code == 2
    assert "grade = rating" in done.err


def test_guessed_times_are_shown(rankfold: Command, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user,item,date\na,x,31.12.2023\na,y,01.01.2024\n")
    done = rankfold("prepare", tmp_path / "r.csv", "--split", "last", "--out", tmp_path / "d")
    assert "time = date; times are %d.%m.%Y" in " ".join(done.err.split())


def test_folder_of_another_kind_is_replaced_only_if_asked(
    rankfold: Command, fitted: Path, model: Path
) -> None:
    words = ("prepare", fitted / "ratings.csv", "--out", model)
    done = rankfold(*words)
    assert done.code == 2
    assert "is a model folder" in done.err
    assert "--overwrite" in done.err
    assert rankfold("info", model).err.startswith(f"{model}: model")
    assert rankfold(*words, "--overwrite").code == 0
    assert rankfold("info", model).err.startswith(f"{model}: data")
    done = rankfold("verify", model)
    assert done.code == 0


def test_graded_rows_do_not_replace_pairs(rankfold: Command, ratings: Path, tmp_path: Path) -> None:
    assert rankfold("prepare", ratings, "--out", tmp_path / "d").code == 0
    (tmp_path / "g.csv").write_text("age,stage\n" + "1,0\n2,1\n" * 10)
    words = ("prepare", tmp_path / "g.csv", "--format", "features", "--grade-column", "stage")
    done = rankfold(*words, "--out", tmp_path / "d")
    assert done.code == 2
    assert "graded rows would replace" in done.err
    done = rankfold(*words, "--out", tmp_path / "d", "--overwrite")
    assert done.code == 0
    assert "g.csv: grade = stage; features: age" in done.err
