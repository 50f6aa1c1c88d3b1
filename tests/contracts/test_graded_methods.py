"""The contract of every method for ordered grades, on rows with a planted order."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import rankfold as rf
from rankfold import config
from rankfold.distributed.collectives import SingleProcess
from rankfold.methods import METHODS
from rankfold.models.grader import Grader
from rankfold.types import Columns, Dataset, Graded, Run, Step, Vocabulary

GRADED = [name for name, method in METHODS.items() if method.data_kind == "graded"]
NETWORK: dict[str, Any] = {"epochs": 8, "batch_size": 32, "width": 8, "lr": 0.02}
TREES: dict[str, Any] = {"max_rounds": 60, "lr": 0.2, "leaves": 7}


def few(name: str, **network: Any) -> dict[str, Any]:
    """Settings of a short fit. ``network`` is for networks only."""
    is_network = "epochs" in config.declarations(METHODS[name].config)
    return {**NETWORK, **network} if is_network else TREES


def planted(n: int, seed: int, n_grades: int = 4) -> Graded:
    """A grade follows from one number and one category, and a little noise; one number is noise."""
    rng = torch.Generator().manual_seed(seed)
    numbers = torch.randn(n, 2, generator=rng)
    categories = torch.randint(0, 3, (n, 1), generator=rng, dtype=torch.int32)
    noise = 0.2 * torch.randn(n, generator=rng)
    hidden = 1.5 * numbers[:, 0] + categories[:, 0] - 1 + noise
    edges = torch.linspace(-2, 2, n_grades - 1)
    numbers = numbers.masked_fill(torch.rand(n, 2, generator=rng) < 0.02, torch.nan)
    return Graded(numbers, categories, None, torch.bucketize(hidden, edges))


def data(n_grades: int = 4) -> Dataset:
    parts = [planted(n, seed, n_grades) for seed, n in enumerate((400, 100, 300))]
    names = [f"g{place}" for place in range(n_grades)]
    columns = Columns(("a", "b"), {"c": ("x", "y", "z")})
    rows, grades = Vocabulary.numbered(800), Vocabulary.numbered(n_grades, names)
    return Dataset("graded", *parts, rows, grades, columns=columns, fingerprint="planted")


def run(resume: dict[str, Tensor] | None = None) -> Run:
    return Run(
        torch.Generator().manual_seed(5), torch.device("cpu"), SingleProcess(), resume=resume
    )


def steps(name: str, resume: dict[str, Tensor] | None = None) -> list[Step]:
    short = {**few(name, epochs=4), **({} if "epochs" in few(name) else {"rounds": 40})}
    settings = METHODS[name].config(**short)
    result = []
    for step in METHODS[name].fit(data(), settings, run(resume)):
        kept = {key: tensor.clone() for key, tensor in step.state().items()}
        result.append(step._replace(state=lambda kept=kept: kept))
    return result


@cache
def fitted(name: str, n_grades: int = 4) -> Grader:
    return rf.fit(name, data(n_grades), **few(name))


@pytest.mark.parametrize("name", GRADED)
class TestGradedMethod:
    def test_a_row_has_the_same_score_alone_and_in_a_batch(self, name: str) -> None:
        """Up to rounding; grades are equal wherever a score is further from the cuts than that."""
        result, rows = fitted(name), data().graded("test")
        among, cuts = result.score(rows), result.cuts(0.1)
        tolerance = 1e-5 * float(among.abs().max())
        clear = ((among[:, None] - cuts).abs() > 2 * tolerance).all(dim=1)
        assert clear.double().mean() > 0.85
        for some in torch.randperm(len(rows)).split([1, 1, 7, 50, 241]):
            alone, kept = result.score(rows.select(some)), clear[some]
            torch.testing.assert_close(alone, among[some], rtol=0, atol=tolerance)
            grades = result.grade(alone, 0.1), result.grade(among[some], 0.1)
            assert torch.equal(grades[0][kept], grades[1][kept])

    @pytest.mark.parametrize("n_grades", [2, 4])
    def test_finds_the_planted_order(self, name: str, n_grades: int) -> None:
        result = fitted(name, n_grades)
        assert isinstance(result, Grader)
        metrics = rf.evaluate(result, data(n_grades), metrics=["order", "auc"], bootstrap=10)
        assert metrics["order"] > 0.93
        assert metrics["auc"] > 0.93

    def test_same_seed_same_model(self, name: str) -> None:
        first, second = fitted(name).model.tensors, rf.fit(name, data(), **few(name)).model.tensors
        assert all(torch.equal(first[key], second[key]) for key in first)

    def test_resumed_fit_is_bit_identical(self, name: str) -> None:
        whole = steps(name)
        rest = steps(name, {**whole[1].state(), "number": torch.tensor(2)})
        assert [step.number for step in rest] == [3, 4]
        for key, tensor in whole[-1].state().items():
            assert torch.equal(rest[-1].state()[key], tensor), key

    def test_save_and_load_round_trip(self, name: str, tmp_path: Path) -> None:
        result, rows = fitted(name), data().graded("test")
        result.save(tmp_path / "model")
        again = rf.load(tmp_path / "model")
        assert torch.equal(again.score(rows), result.score(rows))
        assert again.names == ["g0", "g1", "g2", "g3"]
        assert torch.equal(again.cuts(0.1), result.cuts(0.1))

    def test_unused_grades_and_unseen_levels_are_harmless(self, name: str) -> None:
        whole = data()
        some = whole.graded("train")
        without = some.select((some.grades != 2).nonzero().flatten())
        result = rf.fit(name, replace(whole, train=without), **few(name))
        odd = Graded(
            torch.tensor([[torch.nan, torch.nan], [1e30, -1e30]]),
            torch.full((2, 1), -1, dtype=torch.int32),
            None,
            torch.tensor([-1, -1]),
        )
        assert result.score(odd).isfinite().all()

    def test_a_batch_of_one_row_is_harmless(self, name: str) -> None:
        result = rf.fit(name, data(), **few(name, batch_size=399, epochs=1))
        assert all(t.isfinite().all() for t in result.model.tensors.values())

    def test_a_single_grade_is_refused(self, name: str) -> None:
        some = data().graded("train")
        alone = some.select((some.grades == 1).nonzero().flatten())
        with pytest.raises(rf.UserError, match="at least two grades"):
            rf.fit(name, replace(data(), train=alone))

    def test_validation_of_one_grade_is_refused_before_the_fit(self, name: str) -> None:
        some = data().graded("validation")
        alone = some.select((some.grades == 1).nonzero().flatten())
        steps: list[Step] = []
        with pytest.raises(
            rf.UserError, match="validation split all have the same grade"
        ) as caught:
            rf.fit(
                name,
                replace(data(), validation=alone),
                report=lambda _history, step: steps.append(step),
                **few(name),
            )
        assert "--split" in str(caught.value.hint)
        assert not steps

    def test_a_finished_model_is_not_fitted_again(self, name: str, tmp_path: Path) -> None:
        how = {**few(name, epochs=1), "out": tmp_path / "model"}
        first = rf.fit(name, data(), **how)
        again = rf.fit(name, data(), resume=True, **how)
        assert first.model.tensors.keys() == again.model.tensors.keys()
        for key, tensor in first.model.tensors.items():
            assert torch.equal(tensor, again.model.tensors[key]), key
        with pytest.raises(rf.UserError, match="was finished with lr"):
            rf.fit(name, data(), resume=True, **{**how, "lr": 0.5})

    def test_refit_trains_on_validation_too(self, name: str) -> None:
        result = rf.fit(name, data(), refit=True, **few(name))
        assert result.model.notes["refit"]
        assert result.operates_on_train
