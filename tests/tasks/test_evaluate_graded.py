"""Evaluation of graded rows: the metrics of the scores, and their intervals."""

import importlib
import json
import math
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from linear_grades import COLUMNS, LINEAR, NAMES, data_of, grader_of, random_rows

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.metrics.graded import graded_mean, graded_values, parse_graded
from rankfold.models.grader import FITTED, Grader
from rankfold.tasks.evaluate_graded import (
    GRADED_DEFAULTS,
    GradedEvaluation,
    evaluate_graded,
    matched,
)
from rankfold.tasks.significance import resampled
from rankfold.types import Columns, Dataset, Graded


@pytest.fixture(autouse=True)
def _linear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "linear", LINEAR)


@pytest.fixture
def data() -> Dataset:
    return data_of()


@pytest.fixture
def grader(data: Dataset) -> Grader:
    return grader_of(data)


def evaluate(grader: Grader, data: Dataset, **how: object) -> GradedEvaluation:
    result = rf.evaluate(grader, data, **how)  # type: ignore[arg-type]
    assert isinstance(result, GradedEvaluation)
    return result


@pytest.mark.parametrize("split", ["validation", "test"])
def test_values_are_the_metrics_of_the_scores(grader: Grader, data: Dataset, split: str) -> None:
    result = evaluate(grader, data, split=split, bootstrap=20)
    rows = getattr(data, split)
    scores = grader.score(rows)
    assert tuple(result.metrics) == GRADED_DEFAULTS
    for name in GRADED_DEFAULTS:
        spec = parse_graded(name)
        assert result[name] == graded_mean(scores, rows.grades, 3, spec)
        values = graded_values(scores, rows.grades, 3, spec).tolist()
        assert result.thresholds.get(name) == (None if name == "order" else values)
    assert (result.queries, result.without_grade, result.trained_on) == (200, 0, 0)
    assert result["tpr@fpr=0.01"] == result.metrics["tpr@fpr=.01"]


def test_to_json_is_valid_json(grader: Grader, data: Dataset) -> None:
    rare = replace(data, test=data.graded("test").select((data.test.grades < 2).nonzero()[:, 0]))
    result = evaluate(grader, rare, metrics="auc", bootstrap=10).to_json()
    result = json.loads(json.dumps(result, allow_nan=False))
    assert result["split"] == "test"
    assert result["thresholds"]["auc"][1] is None  # no row is above mild
    assert result["metrics"]["auc"] == result["thresholds"]["auc"][0]
    low, high = result["intervals"]["auc"]
    assert low < result["metrics"]["auc"] < high
    assert "calibration" not in result


def test_the_result_is_a_table(grader: Grader, data: Dataset) -> None:
    result = evaluate(grader, data, metrics=["auc", "order"], bootstrap=20)
    table = result.to_polars()
    assert table.columns == ["metric", "value", "low", "high", *(f"> {n}" for n in NAMES[:-1])]
    assert table["value"].to_list() == [result["auc"], result["order"]]
    assert table.row(0)[4:] == tuple(result.thresholds["auc"])
    assert table["low"][0] < table["value"][0] < table["high"][0]
    assert result.to_pandas().shape == table.shape
    assert "auc" in result._repr_html_()


def test_rows_without_a_grade_are_left_out(grader: Grader, data: Dataset) -> None:
    rows = data.graded("test")
    grades = rows.grades.clone()
    grades[:50] = -1
    result = evaluate(grader, replace(data, test=replace(rows, grades=grades)), bootstrap=0)
    alone = evaluate(grader, replace(data, test=rows.select(torch.arange(50, 200))), bootstrap=0)
    assert (result.queries, result.without_grade) == (150, 50)
    assert dict(result.metrics) == pytest.approx(dict(alone.metrics))
    assert result.intervals == {}


# ---------------------------------------------------------------------------------- bootstrap


def test_intervals_follow_seed_and_confidence(grader: Grader, data: Dataset) -> None:
    def interval(**how: object) -> tuple[float, float]:
        return evaluate(grader, data, metrics="auc", **how).intervals["auc"]

    assert interval(seed=1) == interval(seed=1) != interval(seed=2)
    wide, narrow = interval(confidence=0.99), interval(confidence=0.5)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


@pytest.mark.parametrize("seed", range(8))
def test_too_few_samples_give_no_interval(grader: Grader, data: Dataset, seed: int) -> None:
    """There are two rows: half of the samples contain both."""
    rows = data.graded("test")
    places = torch.stack([(rows.grades == grade).nonzero()[0, 0] for grade in (0, 2)])
    result = evaluate(grader, replace(data, test=rows.select(places)), bootstrap=3, seed=seed)
    samples = torch.cat(list(resampled(2, 3, seed=seed)))
    enough = int((samples > 0).all(dim=1).sum()) > 1
    assert all((ends is not None) == enough for ends in result.intervals.values())
    json.dumps(result.to_json(), allow_nan=False)


def test_one_sample_is_refused(grader: Grader, data: Dataset) -> None:
    with pytest.raises(UserError, match="`bootstrap` must be 0 or at least 2, got 1"):
        evaluate(grader, data, bootstrap=1)


def test_intervals_cover_the_true_value() -> None:
    """Of 80 samples of rows, about nine in ten have the true value in their interval of .9."""
    everything = random_rows(100, 40_000)
    data = data_of()
    grader = grader_of(data)
    truth = graded_mean(grader.score(everything), everything.grades, 3, parse_graded("auc"))
    covered = 0
    for start in range(80):
        some = everything.select(torch.arange(start * 300, (start + 1) * 300))
        result = evaluate(
            grader, replace(data, test=some), metrics="auc", bootstrap=300, confidence=0.9
        )
        low, high = result.intervals["auc"]
        covered += low <= truth <= high
    assert 64 <= covered <= 79  # binomial(80, .9) is below or above it once in 300 times


# ---------------------------------------------------------------------------------- cuts, curves


def test_rates_at_the_cuts_of_the_model_are_measured(grader: Grader, data: Dataset) -> None:
    result = evaluate(grader, data, metrics=["tpr@fpr=.1", "pauc@fpr=.1", "auc"], bootstrap=0)
    (entry,) = result.operating
    assert (entry.fpr, result.operating_on) == (0.1, "validation")
    scores, grades = grader.score(data.graded("test")), data.graded("test").grades
    for k, cut in enumerate(grader.cuts(0.1)):
        passed = scores > cut
        assert entry.false_positives[k] == pytest.approx(passed[grades <= k].double().mean().item())
        assert entry.true_positives[k] == pytest.approx(passed[grades > k].double().mean().item())
    own = evaluate(grader, data, metrics="tpr@fpr=.1", split="validation", bootstrap=0).operating[0]
    assert all(rate is not None and rate <= 0.1 for rate in own.false_positives)


def test_a_model_without_cuts_can_be_evaluated(grader: Grader, data: Dataset) -> None:
    kept = {"weights": grader.model.tensors["weights"]}
    bare = replace(grader, model=replace(grader.model, tensors=kept))
    result = evaluate(bare, data, bootstrap=0)
    assert result.operating == []
    assert result.metrics == evaluate(grader, data, bootstrap=0).metrics


def test_calibration_is_returned_on_request(grader: Grader, data: Dataset) -> None:
    curves = evaluate(grader, data, bootstrap=0, calibration=4).to_json()["calibration"]
    assert [len(curve) for curve in curves] == [4, 4]
    assert all(entry["rows"] == 50 for curve in curves for entry in curve)
    lowest, highest = curves[0][0], curves[0][-1]
    assert lowest["score"] < highest["score"]
    assert lowest["share"] < highest["share"]


def test_rows_used_by_a_refit_are_counted(data: Dataset) -> None:
    grader = grader_of(data, refit=True, data=data.fingerprint)
    assert evaluate(grader, data, split="validation", bootstrap=0).trained_on == 200
    assert evaluate(grader, data, split="test", bootstrap=0).trained_on == 0
    assert evaluate(grader_of(data), data, split="validation", bootstrap=0).trained_on == 0


@pytest.mark.parametrize("refit", [False, True])
def test_training_rows_in_another_split_are_counted(*, refit: bool) -> None:
    """The same table, split again: rows are recognised by their values, without ``id``."""
    table = pl.DataFrame(
        {
            "id": range(200),
            "x": [(number * 37 % 200) / 7 for number in range(200)],
            "site": [None if number % 9 == 0 else "abc"[number % 3] for number in range(200)],
            "y": [number * 37 % 200 // 70 for number in range(200)],
        }
    )
    how = {"format": "features", "grade_column": "y"}
    first, second = (rf.prepare(table, drop="id", seed=s, **how) for s in (0, 1))
    ids = [rf.prepare(table, seed=s, **how) for s in (0, 1)]
    grader = rf.fit("ce", first, epochs=1, seed=0, refit=refit)
    learnt = {*_ids(ids[0], "train"), *(_ids(ids[0], "validation") if refit else ())}
    for split in ("validation", "test"):
        again = learnt & set(_ids(ids[1], split))
        assert evaluate(grader, second, split=split, bootstrap=0).trained_on == len(again) > 10
    assert evaluate(grader, first, bootstrap=0).trained_on == 0


def _ids(data: Dataset, split: str) -> list[int]:
    assert data.columns is not None
    numbers = getattr(data, split).numbers[:, data.columns.numbers.index("id")]
    return [int(number) for number in numbers]


def test_training_rows_are_recognised_by_the_models_columns(grader: Grader, data: Dataset) -> None:
    """The order of columns and levels does not matter, nor do columns unknown to the model."""
    theirs = Columns(("age", "bmi", "dose"), {"site": ("0", "a", "b")})
    rows = data.graded("train")
    bmi = torch.arange(200.0)
    numbers = torch.stack([rows.numbers[:, 0] + 0.0, bmi, rows.numbers[:, 1]], dim=1)
    sites = torch.where(rows.categories >= 0, rows.categories + 1, -1)
    grades = rows.grades.clone()
    numbers[:10, 0] += 1
    sites[10:20] = 0
    grades[20:30] = (grades[20:30] + 1) % 3
    other = replace(data, columns=theirs, test=Graded(numbers, sites, None, grades))
    same = int((rows.categories[10:20] == -1).sum())  # the model treats a new level as missing
    assert evaluate(grader, other, bootstrap=0).trained_on == 170 + same


def test_lost_values_make_trained_on_unknown() -> None:
    """With a column of keys, each test row of another split has a value that train lacks."""
    rows = range(200)
    table = pl.DataFrame(
        {"key": [f"k{n}" for n in rows], "x": [n % 50 for n in rows], "y": [n % 2 for n in rows]}
    )
    first, second = (rf.prepare(table, format="features", grade_column="y", seed=s) for s in (0, 1))
    grader = rf.fit("ce", first, epochs=1)
    result = evaluate(grader, second, bootstrap=0)
    assert result.trained_on is None
    assert "is unknown: train lacks values of key" in result.cautions[-1]
    assert evaluate(grader, first, bootstrap=0).trained_on == 0


def test_trained_on_is_unknown_for_an_old_model_and_other_data(data: Dataset) -> None:
    grader = grader_of(data, data=data.fingerprint)
    tensors = {name: t for name, t in grader.model.tensors.items() if name != FITTED}
    old = replace(grader, model=replace(grader.model, tensors=tensors))
    assert evaluate(old, data, bootstrap=0).trained_on == 0
    other = evaluate(old, replace(data, fingerprint="g"), bootstrap=0)
    assert other.trained_on is None
    assert other.to_json()["trained_on"] is None


# ---------------------------------------------------------------------------------- other data


def test_grades_are_matched_by_name(grader: Grader, data: Dataset) -> None:
    turned = data_of(names=[NAMES[2], NAMES[0], NAMES[1]])
    rows = turned.graded("test")
    other = replace(turned, test=replace(rows, grades=(rows.grades + 1) % 3))
    expected = evaluate(grader, data, bootstrap=0).metrics
    assert evaluate(grader, other, bootstrap=0).metrics == expected
    unknown = data_of(names=["none", "mild", "dire"])
    with pytest.raises(UserError, match="does not know the grade 'dire'") as caught:
        evaluate(grader, unknown)
    assert "none, mild, severe" in caught.value.hint


def test_columns_and_levels_are_matched_by_name(grader: Grader, data: Dataset) -> None:
    theirs = Columns(("age", "bmi", "dose"), {"city": ("x",), "site": ("0", "a", "b")})
    rows = data.graded("test")
    numbers = torch.stack([rows.numbers[:, 0], torch.full((200,), 9.0), rows.numbers[:, 1]], dim=1)
    sites = torch.where(rows.categories >= 0, rows.categories + 1, -1)
    sites[:20] = 0  # a level that the model does not know
    test = Graded(numbers, torch.cat([torch.zeros_like(sites), sites], dim=1), None, rows.grades)
    result = matched(grader, replace(data, columns=theirs), test)
    assert torch.equal(result.numbers, rows.numbers)
    assert torch.equal(result.categories[20:], rows.categories[20:])
    assert (result.categories[:20] == -1).all()
    assert result.categories.dtype == torch.int32
    other = replace(data, columns=theirs, train=test, validation=test, test=test)
    cautions = evaluate(grader, other, bootstrap=0).cautions
    assert cautions == ["20 of 200 values of site are new to the model and count as missing"]


def test_new_values_are_reported(grader: Grader, data: Dataset) -> None:
    """Including values that the data dropped because its own train rows lack them."""
    assert not evaluate(grader, data, bootstrap=0).cautions
    assert "cautions" not in evaluate(grader, data, bootstrap=0).to_json()
    lost = replace(data, summary={"unknown": {"test": {"site": 7}, "validation": {"site": 2}}})
    expected = "7 of 200 values of site are new to the model and count as missing"
    assert evaluate(grader, lost, bootstrap=0).to_json()["cautions"][0] == expected
    rows = data.graded("test")
    more = Columns(COLUMNS.numbers, {"site": ("a", "b", "c")})
    other = replace(lost, columns=more, test=replace(rows, categories=rows.categories + 1))
    new = 7 + int((rows.categories == 1).sum())  # now "c"
    caution = evaluate(grader, other, bootstrap=0).cautions[0]
    assert caution.startswith(f"{new} of 200 values of site are new to the model, or to the train")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns(("age",), dict(COLUMNS.levels)), "column 'dose', which is not in the data"),
        (Columns((*COLUMNS.numbers, "site"), {}), "column 'site', which is of another kind"),
        (None, "the data has images alone, but the model was fitted on columns"),
    ],
)
def test_missing_columns_are_an_error(
    grader: Grader, data: Dataset, columns: Columns, message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        evaluate(grader, replace(data, columns=columns))
    assert caught.value.hint


def test_the_error_for_a_word_among_numbers_has_its_line(grader: Grader, data: Dataset) -> None:
    columns = Columns(("age",), {"dose": ("1", "x"), **COLUMNS.levels})
    doubtful = [{"column": "dose", "why": "'x' (new.csv:17) is not a number"}]
    other = replace(data, columns=columns, summary={"doubtful": doubtful})
    with pytest.raises(UserError, match="'dose', which is of another kind") as caught:
        evaluate(grader, other)
    assert caught.value.hint == "prepare says: 'x' (new.csv:17) is not a number"


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"metrics": ["ndcg@10"]}, "graded rows have no metric 'ndcg'"),
        ({"metrics": []}, "`metrics` is empty"),
        ({"split": "train"}, "`split` must be validation or test, got 'train'"),
        ({"bootstrap": -1}, "`bootstrap` must be at least 0, got -1"),
        ({"confidence": 1.0}, "`confidence` must be above 0 and below 1, got 1.0"),
        ({"sampels": 5}, "there is no option 'sampels'"),
        ({"strata": True}, "`strata` is for models that rank"),
        ({"index": "auto"}, "`index` is for models that rank"),
    ],
)
def test_invalid_options_are_errors(
    grader: Grader, data: Dataset, how: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        evaluate(grader, data, **how)
    assert caught.value.hint


def test_a_split_with_one_grade_is_an_error(grader: Grader, data: Dataset) -> None:
    rows = data.graded("test")
    same = replace(rows, grades=torch.ones_like(rows.grades))
    with pytest.raises(UserError, match="rows of the test split all have the same grade"):
        evaluate(grader, replace(data, test=same))


def test_pairs_and_graded_rows_do_not_mix(grader: Grader, data: Dataset) -> None:
    table = pl.DataFrame({"user": [1, 1, 2, 2, 2, 2, 2], "item": [1, 2, 1, 2, 3, 4, 5]})
    pairs = rf.prepare(table)
    ranker = rf.fit("popularity", pairs)
    with pytest.raises(UserError, match="this data holds pairs"):
        rf.evaluate(grader, pairs)
    with pytest.raises(UserError, match="this data holds graded rows"):
        rf.evaluate(ranker, data)
    with pytest.raises(UserError, match="`bootstrap` is for models that grade, but this one ranks"):
        rf.evaluate(ranker, pairs, bootstrap=10)


def test_evaluate_graded_has_the_same_defaults(grader: Grader, data: Dataset) -> None:
    result = evaluate_graded(grader, data)
    assert result.intervals == evaluate(grader, data).intervals
    assert all(not math.isnan(end) for ends in result.intervals.values() for end in ends)


def test_the_benchmark_creates_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    bench = importlib.import_module("benchmarks.quality.ordinal")
    monkeypatch.setattr(bench, "FOLDERS", tmp_path / "scratch" / "data")
    monkeypatch.setattr(bench, "ARRAYS", tmp_path / "scratch" / "graded")
    bench.export("retinamnist", tmp_path)
    assert len(bench.load("retinamnist").graded("train")) == 1080
