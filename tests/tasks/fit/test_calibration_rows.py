"""Validation rows of grades that are set apart: they select nothing."""

from dataclasses import replace

import pytest
import torch
from linear_grades import COLUMNS, NAMES, random_rows

import rankfold as rf
from rankfold.tasks.fit.calibration_rows import apart_rows
from rankfold.types import Dataset, Vocabulary

FEW = {"epochs": 3, "width": 4, "device": "cpu"}


def data_with(n_validation: int) -> Dataset:
    parts = [random_rows(1, 300), random_rows(2, n_validation), None]
    grades = Vocabulary.numbered(3, NAMES)
    numbered = Vocabulary.numbered(300 + n_validation)
    return Dataset("graded", *parts, numbered, grades, columns=COLUMNS, fingerprint="f")


def test_the_rows_apart_are_a_share_of_each_grade() -> None:
    grades = torch.tensor([0] * 101 + [1] * 7 + [2])
    apart = apart_rows(grades, 0.5)
    assert [int(apart[grades == g].sum()) for g in range(3)] == [50, 3, 0]
    assert torch.equal(apart, apart_rows(grades, 0.5))
    assert not apart_rows(grades, 0.0).any()


def test_rows_apart_select_nothing_and_set_the_cuts() -> None:
    """Other rows apart change no score of the history, and all of the kept ones."""
    data = data_with(300)
    rows = data.graded("validation")
    apart = apart_rows(rows.grades, 0.5)
    whole = rf.fit("ce", data, seed=1, patience=9, **FEW)
    assert whole.model.notes["operating_on"] == "calibration"
    assert len(whole.model.tensors["operating_scores"]) == int(apart.sum()) == 149
    other = rows.numbers.clone()
    other[apart] = 100.0
    changed = replace(data, validation=replace(rows, numbers=other))
    moved = rf.fit("ce", changed, seed=1, patience=9, **FEW)
    assert moved.model.notes["history"][0]["score"] == whole.model.notes["history"][0]["score"]
    assert moved.model.tensors["operating_scores"].unique().numel() < 5


@pytest.mark.parametrize(
    ("n", "options", "kept", "source"),
    [
        (200, {}, 200, "validation"),  # too few select: all of them set the cuts
        (200, {"patience": 2}, 99, "calibration"),
        (300, {"calibration_share": 0}, 300, "validation"),
        (300, {"refit": True}, 300, "train"),
        (300, {"refit": True, "calibration_share": 0.5}, 149, "calibration"),
    ],
)
def test_what_the_cuts_come_from(
    n: int, options: dict[str, object], kept: int, source: str
) -> None:
    grader = rf.fit("ce", data_with(n), **{**FEW, "epochs": 1, **options})
    scores, notes = grader.model.tensors["operating_scores"], grader.model.notes
    assert notes["operating_on"] == source
    assert abs(len(scores) - kept) <= 1
    if source != "train":
        assert grader.cuts(0.3, 0.9).isfinite().all()
    else:
        with pytest.raises(rf.UserError, match="cannot be promised"):
            grader.cuts(0.3, 0.9)


def test_a_refit_learns_from_the_rows_that_select() -> None:
    data = data_with(300)
    rows = data.graded("validation")
    grader = rf.fit("ce", data, refit=True, calibration_share=0.5, **{**FEW, "epochs": 1})
    result = rf.evaluate(grader, data, split="validation", bootstrap=0)
    assert result.trained_on == int((~apart_rows(rows.grades, 0.5)).sum())


def test_resuming_with_another_share_is_refused(tmp_path: object) -> None:
    data, how = data_with(300), {**FEW, "epochs": 1, "out": f"{tmp_path}/m"}
    rf.fit("ce", data, **how)
    rf.fit("ce", data, resume=True, **how)
    with pytest.raises(rf.UserError, match="calibration_share"):
        rf.fit("ce", data, resume=True, calibration_share=0.2, **how)
