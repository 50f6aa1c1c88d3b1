"""A grader scores rows, cuts scores into grades, and is saved and loaded unchanged."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from linear_grades import COLUMNS, LINEAR, NAMES, data_of, grader_of, score_rows

import rankfold as rf
from rankfold import storage
from rankfold.data.build.new_rows import NewRows
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.metrics.binomial import most_allowed
from rankfold.models.grader import Grader
from rankfold.models.load import load, load_ranker
from rankfold.types import Graded, Method, Opened, Vocabulary


@pytest.fixture(autouse=True)
def _linear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "linear", LINEAR)


@pytest.fixture
def grader() -> Grader:
    return grader_of(data_of())


def with_tensors(grader: Grader, **tensors: torch.Tensor) -> Grader:
    model = grader.model
    return replace(grader, model=replace(model, tensors={**model.tensors, **tensors}))


def without_operating(grader: Grader) -> Grader:
    kept = {name: t for name, t in grader.model.tensors.items() if "operating" not in name}
    return replace(grader, model=replace(grader.model, tensors=kept))


def test_scores_are_the_methods_in_blocks(grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, sizes = data_of().graded("test"), []

    def counted(some: Graded) -> torch.Tensor:
        sizes.append(len(some))
        return score_rows(grader.model, some)

    monkeypatch.setitem(METHODS, "linear", replace(LINEAR, open=lambda _: Opened(rows=counted)))
    monkeypatch.setattr(
        "rankfold.models.grader.BLOCK_BYTES", 4 * 4 * 30
    )  # of 2 numbers and a category
    torch.testing.assert_close(grader.score(rows), score_rows(grader.model, rows))
    assert sizes == [30] * 6 + [20]
    assert grader.score(rows.select(torch.empty(0, dtype=torch.int64))).shape == (0,)


def test_a_nan_score_is_refused(grader: Grader) -> None:
    rows = data_of().graded("test")
    rows.numbers[3, 0] = torch.nan
    with pytest.raises(UserError, match="scores 1 row as NaN") as caught:
        grader.score(rows)
    assert "diverge" in caught.value.hint


@pytest.mark.parametrize("fpr", [0.004, 0.01, 0.1, 0.3])
def test_cuts_keep_the_rate_on_the_operating_rows(grader: Grader, fpr: float) -> None:
    scores, grades = (grader.model.tensors[f"operating_{x}"] for x in ("scores", "grades"))
    cuts = grader.cuts(fpr)
    assert cuts.shape == (2,)
    assert cuts[0] <= cuts[1]
    for k in range(2):
        negatives = scores[grades <= k].sort(descending=True).values
        passed = int((negatives > cuts[k]).sum())
        assert passed <= fpr * len(negatives)
    allowed = max(0, int(fpr * (1 + int((grades <= 0).sum())) + 1e-9) - 1)
    lowest = scores[grades <= 0].sort(descending=True).values[allowed]
    assert cuts[0] == (lowest + scores[scores > lowest].min()) / 2


@pytest.mark.parametrize("fpr", [0.004, 0.1, 0.3])
def test_rows_equal_to_the_one_at_the_cut_stay_below_it_despite_rounding(
    grader: Grader, fpr: float
) -> None:
    scores, grades = (grader.model.tensors[f"operating_{x}"] for x in ("scores", "grades"))
    scores = scores.round(decimals=1)  # few values, each of many rows
    few = with_tensors(grader, operating_scores=scores)
    expected = few.grade(scores, fpr)
    rng = torch.Generator().manual_seed(0)
    for _ in range(20):
        noise = 1e-7 * torch.randn(len(scores), generator=rng, dtype=torch.float64)
        assert torch.equal(few.grade(scores + noise * scores.abs().max(), fpr), expected)
    assert bool(((expected > 0) & (grades <= 0)).double().sum() <= fpr * (grades <= 0).sum())


def test_a_cut_never_falls(grader: Grader) -> None:
    """The lowest grade scores highest: its cut holds for the next threshold too."""
    scores = torch.tensor([9.0, 8.0, 1.0, 0.0, 0.5, 0.2])
    crossed = with_tensors(
        grader, operating_scores=scores, operating_grades=torch.tensor([0, 0, 1, 1, 2, 2])
    )
    first, second = crossed.cuts(0.3).tolist()
    assert first == second == pytest.approx(9.0, abs=1e-5)  # on its own the second would be 8.5
    assert first > 9


def test_grades_are_the_cuts_that_are_passed(grader: Grader) -> None:
    low, high = grader.cuts(0.1).tolist()
    scores = [low - 1, low, low + 1e-9, (low + high) / 2, high, high + 1e-9]
    assert grader.grade(torch.tensor(scores, dtype=torch.float64), 0.1).tolist() == [
        0,
        0,
        1,
        1,
        1,
        2,
    ]


def test_rows_without_a_grade_do_not_affect_cuts(grader: Grader) -> None:
    tensors = grader.model.tensors
    more = with_tensors(
        grader,
        operating_scores=torch.cat([tensors["operating_scores"], torch.tensor([99.0])]),
        operating_grades=torch.cat([tensors["operating_grades"], torch.tensor([-1])]),
    )
    assert torch.equal(more.cuts(0.01), grader.cuts(0.01))


def test_a_threshold_without_rows_below_it_equals_the_next(grader: Grader) -> None:
    some = with_tensors(
        grader, operating_scores=torch.tensor([1.0, 2.0]), operating_grades=torch.tensor([1, 2])
    )
    assert some.cuts(0.1).tolist() == [1.5, 1.5]
    assert some.grade(torch.tensor([-5.0, 1.5, 1.6]), 0.1).tolist() == [0, 0, 2]
    assert "no row below mild was kept" in some.cautions(0.1)[0]


def test_without_rows_below_any_threshold_no_row_passes(grader: Grader) -> None:
    some = with_tensors(
        grader, operating_scores=torch.tensor([1.0]), operating_grades=torch.tensor([2])
    )
    assert some.grade(torch.tensor([1e30]), 0.1).tolist() == [0]


def test_cautions_explain_an_unreliable_rate(grader: Grader) -> None:
    grades = torch.arange(3).repeat_interleave(50)
    enough = with_tensors(grader, operating_scores=torch.randn(150), operating_grades=grades)
    assert enough.cautions(0.1) == []
    assert "it needs 1,000 below a grade" in enough.cautions(0.001)[0]
    assert "1e+300" in enough.cautions(1e-300)[0]
    model = enough.model
    trained = replace(enough, model=replace(model, notes={**model.notes, "operating_on": "train"}))
    assert "rows that the model was fitted on" in trained.cautions(0.1)[0]
    other = replace(enough, model=replace(model, config={**model.config, "fpr": 0.05}))
    assert other.cautions(0.1) == ["the model was fitted for a false-positive rate of 0.05"]
    assert other.cautions(0.05) == []


@pytest.mark.parametrize("fpr", [0.0, 1.0, -0.1, float("nan")])
def test_an_invalid_rate_is_refused(grader: Grader, fpr: float) -> None:
    with pytest.raises(UserError, match="above 0 and below 1"):
        grader.cuts(fpr)


def test_a_rate_with_too_few_rows_is_reported(grader: Grader) -> None:
    grades = torch.tensor([0] * 9 + [1] * 11 + [2] * 5 + [-1] * 90)
    few = with_tensors(grader, operating_scores=torch.randn(len(grades)), operating_grades=grades)
    assert few.scarce(0.04) == {"mild": 9, "severe": 20}
    assert few.scarce(0.05) == {"mild": 9}  # a twentieth of 20 is one row
    assert few.scarce(0.2) == {}
    scores = few.model.tensors["operating_scores"]
    assert few.cuts(0.05)[0] > scores[grades == 0].max()
    assert few.cuts(0.2)[0] < scores[grades == 0].max()


@pytest.mark.parametrize("fpr", [0.05, 0.2])
def test_promised_cuts_let_as_many_pass_as_the_binomial_allows(grader: Grader, fpr: float) -> None:
    clean = replace(grader, model=replace(grader.model, notes={"operating_on": "calibration"}))
    scores, grades = (grader.model.tensors[f"operating_{x}"] for x in ("scores", "grades"))
    cuts = clean.cuts(fpr, 0.9)
    for k, cut in enumerate(cuts):
        n = int((grades <= k).sum())
        passed = int((scores[grades <= k] > cut).sum())
        assert passed <= most_allowed(n, fpr, 0.9) < fpr * n
    assert int((scores[grades <= 0] > cuts[0]).sum()) == most_allowed(
        int((grades <= 0).sum()), fpr, 0.9
    )
    assert torch.equal(clean.cuts(fpr), grader.cuts(fpr))


def test_few_cuts_are_kept(grader: Grader) -> None:
    """A server is asked for any rate."""
    for place in range(1, 200):
        grader.cuts(place / 1000)
        assert len(grader._cuts) <= 64


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        ({"operating_on": "train"}, "fitted on the rows"),
        ({"operating_on": "validation", "is_chosen": True}, "also selected"),
        ({"operating_on": "validation", "is_chosen": False, "trial": 3}, "also selected"),
        ({"operating_on": "validation", "is_chosen": False}, None),
        ({"operating_on": "calibration", "is_chosen": True, "trial": 3}, None),
    ],
)
def test_rows_that_took_part_promise_nothing(
    grader: Grader, notes: dict[str, object], why: str | None
) -> None:
    model = replace(grader, model=replace(grader.model, notes=notes))
    if why is None:
        assert model.cuts(0.2, 0.9).isfinite().all()
        return
    with pytest.raises(UserError, match=why):
        model.cuts(0.2, 0.9)


def test_without_operating_rows_there_are_no_cuts(grader: Grader) -> None:
    with pytest.raises(UserError, match="no rows to find cuts from") as caught:
        without_operating(grader).cuts(0.01)
    assert "fit it again" in caught.value.hint


def test_predict_names_rows_and_grades(grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = data_of().graded("test")
    arguments = {}

    def read(source: object, columns: object, **how: object) -> NewRows:
        arguments.update(source=source, columns=columns, **how)
        return NewRows(rows, pl.Series([f"row {i}" for i in range(len(rows))]))

    monkeypatch.setattr("rankfold.models.grader.read_rows", read)
    model = replace(grader.model, notes={**grader.model.notes, "image_shape": [4, 5, 3]})
    result = replace(grader, model=model).predict("new.csv", fpr=0.1, key_column="id")
    assert arguments == {
        "source": "new.csv",
        "columns": COLUMNS,
        "key_column": "id",
        "usual_key": None,
        "image_shape": (4, 5, 3),
    }
    assert result.columns == ["query", "score", "grade", *(f"probability_{n}" for n in NAMES)]
    assert result["query"][7] == "row 7"
    scores = score_rows(grader.model, rows)
    assert result["score"].to_list() == pytest.approx(scores.tolist())
    passed = [sum(s > c for c in grader.cuts(0.1)) for s in scores]
    assert result["grade"].to_list() == [NAMES[number] for number in passed]
    assert result["grade"].n_unique() == 3


def test_the_column_of_keys_of_the_prepared_data_names_new_rows(tmp_path: Path) -> None:
    n = 60
    table = pl.DataFrame(
        {"id": [f"p{i}" for i in range(n)], "age": range(n), "grade": ["low", "high"] * (n // 2)}
    )
    options = {"format": "features", "grade_column": "grade", "query_column": "id"}
    data = rf.prepare(table, out=tmp_path / "data", grades=["low", "high"], **options)
    fitted = rf.fit("ce", data, epochs=1, out=tmp_path / "model")
    new = table.select("id", "age").tail(3)
    for grader in (fitted, load(tmp_path / "model")):
        assert grader.predict(new)["query"].to_list() == ["p57", "p58", "p59"]
        assert grader.predict(new.drop("id"))["query"].to_list() == [0, 1, 2]
        assert grader.predict(new, key_column="age")["query"].to_list() == [57, 58, 59]
        assert grader.predict(new, key_column="none")["query"].to_list() == [0, 1, 2]


def test_search_hints_at_predict(grader: Grader) -> None:
    with pytest.raises(UserError, match="grades rows and does not rank") as caught:
        grader.search(["a"], k=3)
    assert "predict" in caught.value.hint


# ---------------------------------------------------------------------------------- folders


def test_save_and_load_round_trip(grader: Grader, tmp_path: Path) -> None:
    grader.save(tmp_path / "m")
    back = rf.load(tmp_path / "m")
    assert isinstance(back, rf.Grader)
    assert (back.names, back.columns) == (NAMES, COLUMNS)
    assert (back.model.method, back.model.notes) == ("linear", grader.model.notes)
    assert back.model.tensors.keys() == grader.model.tensors.keys()
    rows = data_of().graded("test")
    assert torch.equal(back.grade(back.score(rows)), grader.grade(grader.score(rows)))


def test_save_and_load_without_columns_and_names(grader: Grader, tmp_path: Path) -> None:
    """Images alone, grades that are numbers."""
    plain = without_operating(replace(grader, columns=None, grades=Vocabulary.numbered(4)))
    plain.save(tmp_path / "m")
    back = load(tmp_path / "m")
    assert isinstance(back, Grader)
    assert back.columns is None
    assert back.names == ["0", "1", "2", "3"]


def test_load_returns_a_ranker_for_a_ranker_folder(tmp_path: Path) -> None:
    rf.fit("popularity", (["a", "b"], ["x", "x"]), out=tmp_path / "m")
    assert isinstance(load(tmp_path / "m"), rf.Ranker)
    assert load(tmp_path / "m").search(["a"], include_seen=True).keys == [["x"]]


def test_a_ranker_refuses_a_grader_folder(grader: Grader, tmp_path: Path) -> None:
    grader.save(tmp_path / "m")
    with pytest.raises(UserError, match="linear, which grades rows") as caught:
        load_ranker(tmp_path / "m")
    assert "predict" in caught.value.hint
    with pytest.raises(UserError, match="no vectors to search"):
        load(tmp_path / "m", index="auto")


def test_an_unknown_method_is_an_error(
    grader: Grader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grader.save(tmp_path / "m")
    monkeypatch.delitem(METHODS, "linear")
    with pytest.raises(UserError, match="'linear', which this rankfold does not have"):
        load(tmp_path / "m")


def rewrite(path: Path, meta: dict[str, object], tensors: dict[str, torch.Tensor]) -> None:
    """The same folder with other content and valid checksums."""
    folder = storage.read(path)
    kept = ("method", "data_kind", "config", "notes", "sizes", "columns")
    manifest = {name: folder.manifest[name] for name in kept} | meta
    files: dict[str, storage.Content] = {
        "tensors": {**folder.tensors("tensors"), **tensors},
        "grades": folder.table("grades"),
    }
    storage.write(path, "model", manifest, files)


SCORES = torch.zeros(3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("meta", "tensors"),
    [
        ({}, {"operating_scores": SCORES}),
        ({}, {"operating_scores": SCORES[:, None], "operating_grades": SCORES[:, None].long()}),
        ({}, {"operating_scores": SCORES, "operating_grades": SCORES}),
        ({}, {"operating_scores": SCORES, "operating_grades": SCORES.long() + 3}),
        ({}, {"operating_scores": SCORES, "operating_grades": SCORES.long() - 2}),
        ({}, {"operating_scores": SCORES / 0, "operating_grades": SCORES.long()}),
        ({}, {"fitted_rows": SCORES}),
        ({}, {"fitted_rows": SCORES[:, None].long()}),
        ({"columns": {"numbers": ["age"], "levels": {"site": [1, 2]}}}, {}),
        ({"columns": {"numbers": ["b", "a"], "levels": {}}}, {}),
        ({"columns": {"numbers": [], "levels": {"site": ["a", "a"]}}}, {}),
        ({"columns": {"numbers": []}}, {}),
        ({"sizes": [0, 2]}, {}),
        ({"sizes": [0]}, {}),
        ({"sizes": [0, 10**30]}, {}),
        ({"config": 3}, {}),
        ({"config": {"fpr": "x"}}, {}),
        ({"notes": []}, {}),
        ({"notes": {"history": [3]}}, {}),
        ({"notes": {"history": [{"score": "x"}]}}, {}),
        ({"notes": {"history": [{"seconds": None}]}}, {}),
    ],
)
def test_a_damaged_folder_is_refused(
    grader: Grader,
    tmp_path: Path,
    meta: dict[str, object],
    tensors: dict[str, torch.Tensor],
) -> None:
    grader.save(tmp_path / "m")
    rewrite(tmp_path / "m", {}, {})
    assert isinstance(load(tmp_path / "m"), Grader)
    rewrite(tmp_path / "m", meta, tensors)
    with pytest.raises(UserError, match="is damaged"):
        load(tmp_path / "m")


@pytest.mark.parametrize("shape", [{}, 3, {"numbers": [], "levels": [], "image": 3}])
def test_notes_of_another_model_are_one_error(shape: object) -> None:
    rows = data_of()
    model = rf.fit("ce", rows, epochs=1, width=4)
    forged = replace(model.model, notes={**model.model.notes, "shape": shape})
    with pytest.raises(UserError, match="cannot open this ce model"):
        replace(model, model=forged).score(rows.graded("train"))


def test_a_method_without_scores_is_an_error(
    grader: Grader, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent: Method = replace(LINEAR, open=lambda _: Opened())
    monkeypatch.setitem(METHODS, "linear", silent)
    with pytest.raises(UserError, match="linear does not score rows"):
        grader.score(data_of().graded("test"))
