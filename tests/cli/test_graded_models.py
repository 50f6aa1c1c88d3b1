"""The commands on a model of graded rows."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from commands import Command, assert_refused
from linear_grades import NAMES, data_of, grader_of

import rankfold as rf


def test_predict_writes_scores_and_grades(rankfold: Command, graded: Path) -> None:
    out = graded / "grades.parquet"
    done = rankfold(
        "predict", graded / "model", graded / "new.csv", "--out", out, "--fpr", 0.1,
        "--query-column", "id",
    )  # fmt: skip
    assert (done.code, done.out) == (0, "")
    assert "200 rows" in done.err
    results, grader = pl.read_parquet(out), rf.load(graded / "model")
    assert isinstance(grader, rf.Grader)
    assert results.columns == ["query", "score", "grade", *(f"probability_{n}" for n in NAMES)]
    assert results["query"].to_list() == [f"p{number}" for number in range(200)]
    scores = grader.score(data_of().graded("test"))
    assert results["score"].to_list() == pytest.approx(scores.tolist(), abs=1e-5)
    expected = [NAMES[number] for number in grader.grade(scores, 0.1).tolist()]
    assert sum(a != b for a, b in zip(results["grade"], expected, strict=True)) <= 1  # by rounding
    assert not list(graded.glob(".writing*"))


def test_the_default_fpr_of_predict_is_a_hundredth(rankfold: Command, graded: Path) -> None:
    words = ("predict", graded / "model", graded / "new.csv", "--json", "--out")
    first = rankfold(*words, graded / "a.parquet")
    output = json.loads(first.out)
    assert "too few rows were kept" in output.pop("cautions")[0]
    rate = output.pop("rate")
    assert (rate["fpr"], rate["confidence"]) == (0.01, None)
    assert "on average" in rate["means"]
    assert output.pop("drift") == []  # the model has no profile
    assert output == {"out": str(graded / "a.parquet"), "queries": 200, "left_out": 0}
    rankfold(*words, graded / "b.parquet", "--fpr", 0.01)
    rankfold(*words, graded / "c.parquet", "--fpr", 0.3)
    tables = [pl.read_parquet(graded / f"{name}.parquet")["grade"] for name in "abc"]
    assert tables[0].equals(tables[1])
    assert (tables[2] == "none").sum() < (tables[0] == "none").sum()


def test_a_promised_rate_needs_rows_that_selected_nothing(rankfold: Command, graded: Path) -> None:
    words = (graded / "new.csv", "--out", graded / "x.parquet", "--confidence", 0.95, "--fpr", 0.05)
    done = rankfold("predict", graded / "model", *words)
    assert (done.code, "cannot be promised with confidence 0.95" in done.err) == (2, True)
    grader_of(data_of(), operating_on="calibration").save(graded / "clean")
    done = rankfold("predict", graded / "clean", *words)
    assert (done.code, "at most, with confidence 0.95" in " ".join(done.err.split())) == (0, True)
    few = rankfold("predict", graded / "clean", *words[:-1], 0.01)
    assert few.code == 2
    assert "it needs 299 kept rows below each grade, and there are" in " ".join(few.err.split())
    evaluated = rankfold("evaluate", graded / "clean", graded / "data", "--json", "--bootstrap", 0)
    entries = json.loads(evaluated.out)["operating"]
    assert [(e["fpr"], e["confidence"]) for e in entries[:3]] == [
        (0.01, None),
        (0.05, None),
        (0.05, 0.95),
    ]
    low, high = entries[2]["false_positive_intervals"][0]
    assert low <= entries[2]["false_positives"][0] <= high
    assert entries[2]["false_positives"][0] <= entries[1]["false_positives"][0]


def test_predict_warns_of_new_values(rankfold: Command, graded: Path) -> None:
    rows = (graded / "new.csv").read_text().splitlines()
    place = rows[0].split(",").index("site")
    odd = [row.split(",") for row in rows]
    for row in odd[1:4]:
        row[place] = " " + row[place]
    odd[4][place] = ""  # a missing value is not new
    (graded / "odd.csv").write_text("\n".join(map(",".join, odd)) + "\n")
    words = ("predict", graded / "model", graded / "odd.csv", "--out", graded / "x.parquet")
    output = "3 of 200 values of site are new to the model and count as missing"
    assert output in " ".join(rankfold(*words).err.split())
    assert output in json.loads(rankfold(*words, "--json").out)["cautions"]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("search", "model", "--query", "1"), "linear, which grades rows", "predict"),
        (
            ("predict", "model", "new.csv", "--out", "x.parquet", "-k", "3"),
            "`k` is for models that rank",
            "-k",
        ),
        (
            ("predict", "model", "new.csv", "--out", "x.parquet", "-k", "0"),
            "`k` is for models that rank",
            "-k",
        ),
        (
            ("predict", "model", "new.csv", "--out", "x.parquet", "--include-seen"),
            "`include_seen` is for models that rank",
            "--include-seen",
        ),
        (
            ("predict", "model", "new.csv", "--out", "x.parquet", "--text-column", "site"),
            "`text_column` is for models that rank, but this one grades rows",
            "leave --text-column out",
        ),
        (("predict", "model", "new.csv", "--out", "x.parquet", "--fpr", "2"), "got 2", ".01"),
        (("predict", "model", "new.csv", "new.csv", "--out", "x.parquet"), "one input", "by one"),
        (
            ("predict", "model", "new.csv", "--out", "x.txt"),
            "must end in one of .parquet",
            "x.parquet",
        ),
        (
            ("predict", "model", "new.csv", "--out", "x.parquet", "--index", "auto"),
            "no vectors",
            "--index",
        ),
        (("evaluate", "model", "data", "--metrics", "ndcg@10"), "no metric 'ndcg'", "tpr@fpr"),
        (("evaluate", "model", "data", "--metrics", "tpr@fpr=7"), "got 7", ".01"),
        (("evaluate", "model", "data", "--strata"), "`strata` is for", "--strata"),
        (("evaluate", "model", "data", "--index", "auto"), "`index` is for", "--index"),
        (
            ("evaluate", "model", "data", "--propensity", ".55,1.5"),
            "`propensity` is",
            "--propensity",
        ),
        (
            ("evaluate", "model", "data", "--bootstrap", "-3"),
            "at least 0, got -3",
            "0: no intervals",
        ),
        (("evaluate", "model", "data", "--bootstrap", "1"), "0 or at least 2", "no interval"),
        (("forget", "model", "p1"), "grades rows", "predict"),
    ],
)
def test_invalid_input_gets_one_error_with_a_hint(
    rankfold: Command,
    graded: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
    hint: str,
) -> None:
    monkeypatch.chdir(graded)
    assert_refused(rankfold(*words), message, hint)
    assert not (graded / "x.parquet").exists()


def test_a_model_that_ranks_has_no_rate(rankfold: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "who.csv").write_text("user\nuser-1\n")
    words = ("predict", model, tmp_path / "who.csv", "--out", tmp_path / "l.parquet")
    done = rankfold(*words, "--fpr", 0.01)
    assert done.code == 2
    assert "`fpr` is for models that grade, but this one ranks candidates" in done.err
    assert "leave --fpr out" in done.err
    for option in ("bootstrap", "calibration", "seed"):
        done = rankfold("evaluate", model, model.with_name("data"), f"--{option}", 5)
        assert done.code == 2
        assert f"`{option}` is for models that grade" in done.err
        assert f"leave --{option} out" in done.err
    assert rankfold(*words, "-k", 0).err.startswith("error: `k` must be at least 1, got 0")


def test_a_feature_column_may_be_the_query_column(rankfold: Command, graded: Path) -> None:
    words = ("predict", graded / "model", graded / "new.csv", "--out", graded / "x.parquet")
    by_id = rankfold(*words, "--query-column", "id")
    expected = pl.read_parquet(graded / "x.parquet")
    by_age = rankfold(*words, "--query-column", "age")
    assert (by_id.code, by_age.code) == (0, 0)
    results = pl.read_parquet(graded / "x.parquet")
    assert results.drop("query").equals(expected.drop("query"))
    ages = pl.read_csv(graded / "new.csv", infer_schema=False)["age"]
    assert results["query"].to_list() == ages.to_list()


def test_rows_that_cannot_be_used_are_counted_or_refused(rankfold: Command, graded: Path) -> None:
    with (graded / "new.csv").open("a") as file:
        file.write("p200,1.0\n")
    words = ("predict", graded / "model", graded / "new.csv", "--out", graded / "x.parquet")
    done = rankfold(*words, "--strict")
    assert done.code == 2
    assert "a wrong number of columns" in done.err
    assert not (graded / "x.parquet").exists()
    assert "200 rows; 1 row that could not be used" in rankfold(*words).err
    assert len(pl.read_parquet(graded / "x.parquet")) == 200


def test_rows_are_named_by_their_number_in_the_file(rankfold: Command, graded: Path) -> None:
    lines = (graded / "new.csv").read_text().splitlines()
    words = ("predict", graded / "model", graded / "new.csv", "--out", graded / "x.parquet")
    rankfold(*words)
    whole = pl.read_parquet(graded / "x.parquet")
    lines[3] += ",one,too,many"
    (graded / "new.csv").write_text("\n".join(lines))
    output = rankfold(*words).err
    assert "199 rows; 1 row that could not be used" in output
    assert "dropped: 1 for a wrong number of columns (new.csv:4)" in output
    assert pl.read_parquet(graded / "x.parquet").equals(whole.filter(pl.col("query") != 2))
    dropped = [{"why": "a wrong number of columns", "rows": 1, "first": ["new.csv:4"]}]
    assert json.loads(rankfold(*words, "--json").out)["dropped"] == dropped


def test_rows_without_a_key_are_counted_or_refused(rankfold: Command, graded: Path) -> None:
    table = pl.read_csv(graded / "new.csv")
    key = table.columns[0]
    named = pl.when(pl.int_range(pl.len()) == 2).then(None).otherwise(pl.col(key)).alias(key)
    table.with_columns(named).write_csv(graded / "new.csv")
    words = ("predict", graded / "model", graded / "new.csv", "--out", graded / "x.parquet")
    words = (*words, "--query-column", key)
    done = rankfold(*words, "--strict")
    assert done.code == 2
    assert "a missing key" in done.err
    assert "new.csv:4" in done.err  # after the names and two rows
    assert not (graded / "x.parquet").exists()
    assert "199 rows; 1 row that could not be used" in rankfold(*words).err
    assert pl.read_parquet(graded / "x.parquet")["query"].null_count() == 0


def test_a_fit_without_validation_rows_says_so(rankfold: Command, graded: Path) -> None:
    rows = "".join(f"{i},{i % 2}\n" for i in range(20))
    (graded / "rows.csv").write_text(f"x,y\n{rows}")
    words = ("--format", "features", "--grade-column", "y", "--split", "0.8,0,0.2")
    rankfold("prepare", graded / "rows.csv", *words, "--out", graded / "few")
    done = rankfold("fit", "ce", graded / "few", "--out", graded / "m", "--set", "epochs=1")
    assert done.code == 0
    assert "the last: no validation rows to choose by" in " ".join(done.err.split())


def test_info_and_verify(rankfold: Command, graded: Path) -> None:
    assert rankfold("verify", graded / "model").code == 0
    done = rankfold("info", graded / "model")
    assert done.code == 0
    assert "linear" in done.err


def test_a_missing_column_is_an_error(rankfold: Command, graded: Path) -> None:
    pl.read_csv(graded / "new.csv").drop("dose").write_csv(graded / "new.csv")
    done = rankfold("predict", graded / "model", graded / "new.csv", "--out", graded / "x.parquet")
    assert done.code == 2
    assert "'dose'" in done.err


def test_a_model_without_thresholds_cannot_predict(rankfold: Command, graded: Path) -> None:
    grader = grader_of(data_of())
    weights = {"weights": grader.model.tensors["weights"]}
    replace(grader, model=replace(grader.model, tensors=weights)).save(graded / "bare")
    done = rankfold("predict", graded / "bare", graded / "new.csv", "--out", graded / "x.parquet")
    assert done.code == 2
    assert "no rows to find cuts from" in done.err
