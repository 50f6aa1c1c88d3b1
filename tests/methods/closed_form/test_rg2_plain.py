"""rg2-plain finds the least of its objective; puresvd gives the scores of the dense SVD."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import dense, groups, split_groups

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.methods.closed_form.spectral import factors
from rankfold.objectives.rg import rg2
from rankfold.training.history import History
from rankfold.types import Model, Step


def scores(model: Model) -> torch.Tensor:
    return (model.tensors["queries"] @ model.tensors["candidates"].T).double()


@pytest.mark.parametrize("reg", [0.05, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_spectral_solution_is_no_worse_than_alternating_and_that_comes_close(
    seed: int, reg: float
) -> None:
    frame = groups(seed, m=60, n=40)
    options: dict[str, Any] = {"width": 6, "reg": reg}
    spectral = rf.fit("rg2-plain", frame, tolerance=1e-4, **options)
    alternating = rf.fit("rg2-plain", frame, solver="als", sweeps=300, **options)
    least, reached = (
        ranker.model.notes["history"][-1]["loss"] for ranker in (spectral, alternating)
    )
    assert least <= reached * (1 + 1e-6)
    assert reached <= least * (1 + 1e-3)


@pytest.mark.parametrize("solver", ["spectral", "als"])
@pytest.mark.parametrize("weights", ["none", "grade"])
def test_fold_in_gives_the_trained_rows(solver: str, weights: str) -> None:
    data = split_groups(graded=True)
    model = rf.fit("rg2-plain", data, width=6, reg=0.05, solver=solver, weights=weights).model
    fold_in = METHODS["rg2-plain"].fold_in
    assert fold_in is not None
    found = fold_in(model, data.split("train"))
    torch.testing.assert_close(found, model.tensors["queries"], rtol=1e-5, atol=1e-5)
    ones = fold_in(model, replace(data.split("train"), grades=None))
    assert torch.allclose(ones, found) is (weights == "none")


def test_reg_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="`reg` is above every singular value") as error:
        rf.fit("rg2-plain", groups(), reg=1e6)
    assert "smaller reg" in error.value.hint


def test_components_below_the_threshold_are_left_out() -> None:
    rows = rf.prepare(groups(), split=(1, 0, 0)).split("train")
    objective = rg2(rows, 0.0)
    vectors = torch.eye(60)[:, :4]
    values = torch.tensor([8.0, 4.0, 2.0, 1.0])
    found = factors(objective, values, vectors, 2.0)
    assert found.candidates.shape == (60, 2)
    ratio = float(objective.query_weight.sum() / 60) ** -0.25
    expected = [ratio * (8.0 - 2.0) ** 0.5, ratio * (4.0 - 2.0) ** 0.5]
    assert found.candidates.diagonal().tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("weights", ["none", "grade"])
def test_puresvd_scores_are_those_of_the_dense_svd(weights: str) -> None:
    """At rank 6 the groups' singular values stand apart from the noise."""
    frame = groups(graded=True)
    rows = rf.prepare(frame, split=(1, 0, 0)).split("train")
    r = dense(rows if weights == "grade" else replace(rows, grades=None))
    u, sigma, v = torch.linalg.svd(r, full_matrices=False)
    assert sigma[5] > 1.2 * sigma[6]
    expected = (u[:, :6] * sigma[:6]) @ v[:6]
    found = scores(rf.fit("puresvd", frame, width=6, tolerance=1e-4, weights=weights).model)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


def test_puresvd_of_full_rank_gives_the_pairs_back() -> None:
    frame = groups(m=30, n=20)
    rows = rf.prepare(frame, split=(1, 0, 0)).split("train")
    found = scores(rf.fit("puresvd", frame, width=50).model)
    torch.testing.assert_close(found, dense(rows), rtol=0, atol=1e-4)


class Stop(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("name", ["rg2-plain", "puresvd"])
def test_resumed_after_any_pass_is_bit_identical(name: str, tmp_path: Path) -> None:
    data, options = split_groups(), {"width": 8, "tolerance": 1e-4}
    whole = rf.fit(name, data, **options).model
    last = whole.notes["chosen"]
    assert last > 2

    for n in range(1, last):

        def report(_course: History, step: Step, n: int = n) -> None:
            if step.number > n:
                raise Stop

        out = tmp_path / f"after-{n}"
        with pytest.raises(Stop):
            rf.fit(name, data, out=out, checkpoint_seconds=0, report=report, **options)
        model = rf.fit(name, data, out=out, resume=True, **options).model
        assert model.notes["chosen"] == last
        for key, tensor in whole.tensors.items():
            assert torch.equal(model.tensors[key], tensor)
