"""Boosted trees: their text, their rounds, and what LightGBM by itself makes of the same rows."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import torch

import rankfold as rf
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.methods.ordinal import boosting
from rankfold.methods.ordinal.tree_text import head_and_trees, is_sound, write
from rankfold.methods.ordinal.trees import (
    TREES,
    Members,
    TreesConfig,
    logistic,
    members_for,
    of_columns,
    sum_of_sigmoids,
)
from rankfold.types import Columns, Dataset, Graded, Run, Vocabulary


def rows(n: int, seed: int, n_grades: int) -> Graded:
    """The grade follows a product of two numbers, a category, and whether a number is missing."""
    rng = torch.Generator().manual_seed(seed)
    numbers = torch.randn(n, 3, generator=rng)
    numbers[torch.rand(n, generator=rng) < 0.2, 2] = torch.nan
    level = torch.randint(-1, 12, (n, 1), generator=rng, dtype=torch.int32)
    hidden = numbers[:, 0] * numbers[:, 1] + (level[:, 0] % 3 == 0) + numbers[:, 2].isnan()
    hidden = hidden + 0.3 * torch.randn(n, generator=rng)
    return Graded(numbers, level, None, torch.bucketize(hidden, torch.linspace(0, 2, n_grades - 1)))


def data(n_grades: int = 3, n: int = 1500) -> Dataset:
    parts = [rows(size, seed, n_grades) for seed, size in enumerate((n, 400, 600))]
    names = Vocabulary.numbered(n_grades, [f"g{place}" for place in range(n_grades)])
    columns = Columns(("a", "b", "c"), {"d": tuple(f"l{place:02}" for place in range(12))})
    known = Vocabulary.numbered(n + 1000)
    return Dataset("graded", *parts, known, names, columns=columns, fingerprint=f"{n_grades}")


def test_a_fit_is_the_fit_of_lightgbm() -> None:
    """Two grades, a fixed number of rounds: equal up to the constant that LightGBM finds itself."""
    train, test = data(2).graded("train"), data(2).graded("test")
    model = rf.fit("trees", data(2), rounds=30, lr=0.1, columns=1, members=1)
    settings = {"objective": "binary", "learning_rate": 0.1, "lambda_l2": 1.0, "verbosity": -1}
    known = lightgbm.Dataset(boosting.matrix(train), train.grades.numpy(), categorical_feature=[3])
    direct = lightgbm.train({**settings, "num_threads": 1}, known, 30)
    expected = direct.predict(boosting.matrix(test), raw_score=True)
    np.testing.assert_allclose(model.score(test).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_grades", [2, 4])
def test_derivatives_are_those_of_the_loss(n_grades: int) -> None:
    made = data(n_grades, 50)
    loss, grades = logistic(made, TreesConfig()), made.graded("train").grades
    outputs = torch.randn(50, n_grades - 1, dtype=torch.float64)
    first, second = loss.derivatives(0)(outputs)
    step = 1e-4
    for place in ((3, 0), (7, n_grades - 2)):
        moved = [outputs.clone() for _ in range(3)]
        moved[0][place] -= step
        moved[2][place] += step
        low, middle, high = (50 * loss.value(one, grades) for one in moved)
        assert float(first[place]) == pytest.approx((high - low) / 2 / step, abs=1e-5)
        assert float(second[place]) == pytest.approx((high - 2 * middle + low) / step**2, abs=1e-4)


def test_the_start_has_the_smallest_loss_of_all_constants() -> None:
    made = data(4)
    loss, grades = logistic(made, TreesConfig()), made.graded("train").grades
    start = loss.start.expand(len(grades), -1)
    assert loss.derivatives(0)(start)[0].mean(dim=0).abs().max() < 1e-9


@pytest.mark.parametrize("n_grades", [2, 4])
def test_lightgbm_reads_the_text_of_the_folder(n_grades: int, tmp_path: Path) -> None:
    made = data(n_grades)
    model = rf.fit("trees", made, out=tmp_path / "model", lr=0.2, members=1)
    assert 0 < model.model.config["rounds"] < 2000
    [text] = (tmp_path / "model").glob("trees-*.txt")
    direct = lightgbm.Booster(model_file=text).predict(
        boosting.matrix(made.graded("test")), raw_score=True
    )
    outputs = torch.from_numpy(direct).reshape(-1, n_grades - 1)
    assert torch.equal(sum_of_sigmoids(outputs), model.score(made.graded("test")))


def test_validation_keeps_the_best_round() -> None:
    made = data()
    validation, loss = made.graded("validation"), logistic(made, TreesConfig())

    def value(rounds: int) -> float:
        model = rf.fit("trees", made, rounds=rounds, lr=0.3, members=1).model
        outputs = boosting.open_trees(boosting.as_text(model.tensors[TREES]), 4)(validation)
        return loss.fit(outputs, validation.grades)

    settings = {"lr": 0.3, "wait": 20, "calibration_share": 0, "members": 1}
    best = rf.fit("trees", made, **settings).model.config["rounds"]
    assert value(best) > max(value(best + 1), value(best - 1), value(best + 15))


def test_few_rows_have_four_members() -> None:
    assert rf.fit("trees", data(), rounds=2).model.config["members"] == 4
    assert [members_for(n) for n in (19_999, 20_000)] == [4, 1]


@pytest.mark.parametrize("n_grades", [2, 3])
def test_the_outputs_of_members_are_averaged(n_grades: int) -> None:
    """In one text; they differ by their columns, and follow from the seed."""
    made = data(n_grades)
    test, fixed = made.graded("test"), {"rounds": 7, "lr": 0.2}
    both, again, other = (
        rf.fit("trees", made, members=2, seed=seed, **fixed).model for seed in (0, 0, 1)
    )
    settings = TreesConfig(members=2, columns=0.5, **fixed)
    loss, run = (
        logistic(made, settings),
        Run(torch.Generator(), torch.device("cpu"), SINGLE_PROCESS),
    )
    members = Members(made.graded("train"), None, settings, loss, run)
    for done in range(7):
        members.grow(done)
    texts = [one.text(7) for one in members.boosters]
    assert texts[0] != texts[1]
    each = [boosting.open_trees(text, 4)(test) for text in texts]
    mean = boosting.open_trees(members.text(7), 4)(test)
    torch.testing.assert_close(mean, (each[0] + each[1]) / 2, rtol=1e-9, atol=1e-9)
    assert torch.equal(both.tensors[TREES], again.tensors[TREES])
    assert not torch.equal(both.tensors[TREES], other.tensors[TREES])


def test_without_validation_there_is_a_fixed_number_of_rounds() -> None:
    alone = replace(data(), validation=None)
    assert rf.fit("trees", alone, members=1).model.config["rounds"] == 200


def test_a_refit_has_the_rounds_of_the_fit() -> None:
    made = data()
    first, again = (
        rf.fit("trees", made, lr=0.2, refit=both, calibration_share=0.5) for both in (False, True)
    )
    assert again.model.config["rounds"] == first.model.config["rounds"]
    assert again.model.notes["score"] == first.model.notes["score"]
    assert not torch.equal(again.model.tensors[TREES], first.model.tensors[TREES])


def test_a_cut_text_is_refused(tmp_path: Path) -> None:
    model = rf.fit("trees", data(), out=tmp_path / "model", rounds=3)
    [text] = (tmp_path / "model").glob("trees-*.txt")
    text.write_text(text.read_text().replace("leaf_value", "leaf_worth"))
    with pytest.raises(rf.UserError, match="damaged"):
        rf.load(tmp_path / "model")
    broken = boosting.as_text(model.model.tensors[TREES])[:400]
    with pytest.raises(rf.UserError, match="are damaged"):
        boosting.open_trees(broken, 4)


@pytest.fixture(scope="module")
def sound() -> str:
    """Two outputs; the first trees are constants, others split by category."""
    text = boosting.as_text(rf.fit("trees", data(3), rounds=2).model.tensors[TREES])
    assert is_sound(text)
    assert re.search(r"^num_cat=[1-9]", text, re.MULTILINE)
    return text


HOSTILE = {  # what LightGBM would read or run without end, as a pattern and its replacement
    "a child that is no node": (r"left_child=\S+", "left_child=99999"),
    "a node that is its own child": (r"left_child=\S+", "left_child=0"),
    "a leaf that is none": (r"right_child=\S+", "right_child=-999"),
    "a column that is none": (r"split_feature=\S+", "split_feature=4"),
    "a column below 0": (r"split_feature=\S+", "split_feature=-1"),
    "a kind of split that is none": (r"decision_type=\S+", "decision_type=12"),
    "too few leaves": (r"num_leaves=\d\d+", "num_leaves=2147483647"),
    "no leaves": (r"num_leaves=\d\d+", "num_leaves=0"),
    "a set that is none": (r"num_cat=[1-9]\d*", "num_cat=1000000"),
    "words beyond the sets": (r"cat_boundaries=0 \d+", "cat_boundaries=0 999999"),
    "a negative boundary": (r"cat_boundaries=0", "cat_boundaries=-5"),
    "sets that are missing": (r"cat_threshold=.*\n", ""),
    "values that are missing": (r"leaf_value=\S+ ", "leaf_value="),
    "a word for a number": (r"shrinkage=0.05", "shrinkage=x"),
    "linear leaves": (r"is_linear=0", "is_linear=1"),
    "a field twice": (r"num_cat=0\n", "num_cat=0\nnum_cat=0\n"),
    "an unknown field": (r"is_linear=0\n", "is_linear=0\nleaf_coeff=1\n"),
    "a blank line": (r"is_linear=0\n", "\nis_linear=0\n"),
    "more outputs than trees": (r"(num_class|per_iteration)=2", r"\1=900000"),
    "no outputs": (r"(num_class|per_iteration)=2", r"\1=0"),
    "more columns than are named": (r"max_feature_idx=3", "max_feature_idx=99999999"),
    "another version": (r"version=v\d", "version=v44"),
    "bytes that are no text": (r"shrinkage=0.05", "shrinkage=0.0\ufffd5"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_trees_are_refused(what: str, sound: str) -> None:
    """LightGBM trusts its input: most of these end the process, or let it run for ever."""
    changed, n = re.subn(*HOSTILE[what], sound)
    assert n > 0
    changed = write(*head_and_trees(changed))  # with the sizes that fit
    assert not is_sound(changed)
    with pytest.raises(rf.UserError, match="are damaged"):
        boosting.open_trees(changed, 4)


def test_trees_of_other_columns_are_refused(sound: str) -> None:
    with pytest.raises(rf.UserError, match="read 4 columns, and its rows have 5"):
        boosting.open_trees(sound, 5)


def test_without_lightgbm_there_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(rf.UserError, match="needs lightgbm") as caught:
        rf.fit("trees", data())
    assert "rankfold[trees]" in str(caught.value.hint)


def test_images_are_pixels() -> None:
    rng = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 255, (400, 3, 3, 1), generator=rng, dtype=torch.uint8)
    grades = (pixels[:, 1, 1, 0] > 127).long()
    none: dict[str, Any] = {"numbers": torch.zeros(400, 0)}
    made = Graded(none["numbers"], torch.zeros(400, 0, dtype=torch.int32), pixels, grades)
    names = Vocabulary.numbered(2, ["dark", "light"])
    whole = Dataset("graded", made, None, None, Vocabulary.numbered(400), names, fingerprint="p")
    scores = rf.fit("trees", whole, rounds=20).score(made)
    assert scores[grades == 1].min() > scores[grades == 0].max()


def test_gains_are_lightgbms_as_shares() -> None:
    model = rf.fit("trees", data(), rounds=5)
    text = boosting.as_text(model.model.tensors[TREES])
    gains = torch.from_numpy(lightgbm.Booster(model_str=text).feature_importance("gain"))
    notes = model.model.notes["importance"]["gain"]
    assert [notes[name] for name in "abcd"] == pytest.approx((gains / gains.sum()).tolist())


@pytest.mark.parametrize("n_grades", [2, 4])
def test_contributions_add_up_to_the_score(n_grades: int) -> None:
    """The rest is the same for all rows; noise and known levels move little."""
    made = data(n_grades)
    model = rf.fit("trees", made, rounds=20, lr=0.2)
    test = made.graded("test")
    parts = model.explain(test)
    assert parts.shape == (600, 4)
    rest = model.score(test) - parts.sum(dim=1)
    torch.testing.assert_close(rest, rest[:1].expand(600), rtol=0, atol=1e-6)
    missing = test.numbers[:, 2].isnan()
    assert parts[missing, 2].min() > 0 > parts[~missing, 2].mean()


def test_contributions_of_a_row_like_the_mean_are_finite() -> None:
    parts = torch.zeros(1, 2, 4, dtype=torch.float64)
    parts[0, 0] = torch.tensor([1e-9, 1.0, -1.0, 0.5])
    assert of_columns(parts).isfinite().all()
    slope = float(torch.tensor(0.5).sigmoid() * (1 - torch.tensor(0.5).sigmoid()))
    assert float(of_columns(parts)[0, 1]) == pytest.approx(slope, rel=1e-5)
