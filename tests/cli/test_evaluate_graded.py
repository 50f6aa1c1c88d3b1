"""The command ``evaluate`` on a model of graded rows."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from commands import Command
from linear_grades import data_of, grader_of

import rankfold as rf
from rankfold.data import folder
from rankfold.models.grader import FITTED


def model_with_train_thresholds(graded: Path) -> Path:
    """A model whose thresholds come from its training rows."""
    grader_of(data_of(), operating_on="train").save(graded / "sure")
    return graded / "sure"


def test_evaluate_json_is_one_document(rankfold: Command, graded: Path) -> None:
    done = rankfold(
        "evaluate", graded / "model", graded / "data", "--json", "--bootstrap", 50,
        "--metrics", "tpr@fpr=0.1,order", "--seed", 3, "--calibration", 5,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    results = json.loads(done.out)
    expected = rf.evaluate(
        str(graded / "model"),
        graded / "data",
        metrics=["tpr@fpr=.1", "order"],
        bootstrap=50,
        seed=3,
        calibration=5,
    )
    assert results == json.loads(json.dumps(expected.to_json()))
    assert list(results["metrics"]) == ["tpr@fpr=.1", "order"]
    assert list(results["intervals"]) == ["tpr@fpr=.1", "order"]
    assert len(results["thresholds"]["tpr@fpr=.1"]) == 2
    assert results["queries"] == 200


def test_an_undefined_interval_is_null(rankfold: Command, graded: Path) -> None:
    data = data_of()
    rows = data.graded("test")
    places = torch.stack([(rows.grades == grade).nonzero()[0, 0] for grade in (0, 2)])
    folder.save(replace(data, test=rows.select(places)), graded / "two")
    words = ("evaluate", graded / "model", graded / "two", "--metrics", "auc", "--bootstrap", 2)
    for seed in range(8):  # half of the samples have only one grade
        done = rankfold(*words, "--seed", seed, "--json")
        assert (done.code, "NaN" in done.out) == (0, False)
        if json.loads(done.out)["intervals"]["auc"] is None:
            break
    else:
        pytest.fail("every sample had two grades")
    assert " - " in rankfold(*words, "--seed", seed).err


def test_evaluate_shows_a_column_per_threshold(rankfold: Command, graded: Path) -> None:
    done = rankfold("evaluate", graded / "model", graded / "data", "--bootstrap", 20)
    assert (done.code, done.out) == (0, "")
    results = rf.evaluate(str(graded / "model"), graded / "data", bootstrap=20).to_json()
    lines = {line.split()[1]: line for line in done.err.splitlines() if len(line.split()) > 4}
    assert "> none" in done.err
    assert "> mild" in done.err
    assert "> severe" not in done.err
    for name, mean in results["metrics"].items():
        assert f"{mean:.4f}" in lines[name]
        low, high = results["intervals"][name]
        assert f"{low:.4f} to {high:.4f}" in lines[name]
        for value in results["thresholds"].get(name, []):
            assert f"{value:.4f}" in lines[name]
    assert "rates at the cuts of the model, chosen on validation" in done.err
    assert "will be higher" not in done.err


def test_thresholds_from_train_warn(rankfold: Command, graded: Path) -> None:
    model, out = model_with_train_thresholds(graded), graded / "out.parquet"
    words = ("the false-positive rate on new rows", "will be higher")
    done = rankfold("evaluate", model, graded / "data", "--bootstrap", 0)
    assert all(some in " ".join(done.err.split()) for some in words)
    output = rankfold("predict", model, graded / "new.csv", "--out", out, "--query-column", "id")
    assert all(some in " ".join(output.err.split()) for some in words)
    silent = rankfold("predict", model, graded / "new.csv", "--out", out, "--quiet")
    assert (silent.code, silent.err) == (0, "")


def test_too_few_rows_for_a_rate_warn(rankfold: Command, graded: Path) -> None:
    words = ("predict", graded / "model", graded / "new.csv", "--out", graded / "x.parquet")
    grades = data_of().graded("validation").grades
    none, mild = (int((grades < k).sum()) for k in (1, 2))
    done = rankfold(*words, "--fpr", 0.001)
    output = " ".join(done.err.split())
    assert "a false-positive rate of 0.001: it needs 1,000 below a grade" in output
    assert f"{none} below mild, {mild} below severe" in output
    assert none < 125 <= mild
    output = " ".join(rankfold(*words, "--fpr", 0.008).err.split())
    assert f"needs 125 below a grade, and there are {none} below mild; the rate" in output
    assert "too few" not in rankfold(*words, "--fpr", 0.02).err
    assert "needs 1,000,000,000,000 below" in " ".join(rankfold(*words, "--fpr", 1e-12).err.split())
    assert rankfold(*words, "--fpr", 0.001, "--quiet").err == ""
    assert rankfold(*words, "--fpr", 0.001, "--json").err == ""


def test_rows_from_training_warn(rankfold: Command, graded: Path) -> None:
    data = data_of()
    mixed = data.graded("train").part(0, 30).join(data.graded("test").part(30, 200))
    folder.save(replace(data, test=mixed, fingerprint="g"), graded / "again")
    words = ("evaluate", graded / "model", graded / "again", "--bootstrap", 0)
    output = "30 rows of the test split equal rows that the model was fitted on"
    assert output in " ".join(rankfold(*words).err.split())
    assert json.loads(rankfold(*words, "--json").out)["trained_on"] == 30
    grader = grader_of(data)
    kept = {name: t for name, t in grader.model.tensors.items() if name != FITTED}
    replace(grader, model=replace(grader.model, tensors=kept)).save(graded / "model")
    assert "whether the model was fitted on some of these rows is unknown" in " ".join(
        rankfold(*words).err.split()
    )


def test_evaluate_shows_calibration(rankfold: Command, graded: Path) -> None:
    words = ("evaluate", graded / "model", graded / "data", "--bootstrap", 0)
    done = rankfold(*words, "--calibration", 4)
    results = rf.evaluate(str(graded / "model"), graded / "data", bootstrap=0, calibration=4)
    assert "the share of rows above each grade, by score" in done.err
    lines = [line.replace("│", " ").split() for line in done.err.splitlines()]
    for first, second in zip(*results.calibration, strict=True):
        cells = [first["score"], first["share"], second["share"]]
        score, *shares = (f"{cell:.4f}" for cell in cells)
        assert [score, str(first["rows"]), *shares] in lines
    assert "the share of rows above" not in rankfold(*words).err


def test_evaluate_warns_of_new_values(rankfold: Command, tmp_path: Path) -> None:
    """Like ``predict``, for levels of test that are not in train."""
    train = [{"x": n, "site": "ab"[n % 2], "y": n // 20} for n in range(40)]
    test = [{"x": n, "site": "abcd"[n % 4] if n else None, "y": n // 20} for n in range(40)]
    for name, rows in (("train", train), ("test", test)):
        pl.DataFrame(rows).write_csv(tmp_path / f"{name}.csv")
    splits = ("--train", tmp_path / "train.csv", "--test", tmp_path / "test.csv")
    rankfold(
        "prepare", *splits, "--format", "features", "--grade-column", "y", "--out", tmp_path / "d"
    )
    rankfold("fit", "ce", tmp_path / "d", "--out", tmp_path / "m", "--set", "epochs=1")
    words = ("evaluate", tmp_path / "m", tmp_path / "d", "--bootstrap", 0)
    output = "20 of 40 values of site are new to the model and count as missing"
    assert output in " ".join(rankfold(*words).err.split())
    cautions = json.loads(rankfold(*words, "--json").out)["cautions"]
    assert cautions[0] == output
    assert "site has drifted" in cautions[1]
    assert "cautions" not in json.loads(rankfold(*words, "--json", "--split", "validation").out)
    new = rankfold(
        "predict", tmp_path / "m", tmp_path / "test.csv", "--out", tmp_path / "p.parquet", "--json"
    )
    assert output in json.loads(new.out)["cautions"]


def test_evaluate_writes_a_report(rankfold: Command, graded: Path) -> None:
    words = ("evaluate", graded / "model", graded / "data", "--bootstrap", 10)
    done = rankfold(*words, "--report", graded / "r.html")
    assert "Open the report in a browser" in done.err
    assert "<title>model on data</title>" in (graded / "r.html").read_text()
    done = rankfold(*words, "--report", graded / "none" / "r.html")
    assert (done.code, "none" in done.err) == (2, True)
