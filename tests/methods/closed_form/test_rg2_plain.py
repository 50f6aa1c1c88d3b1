"""rg2-plain reaches the minimum of its objective, by one decomposition and by sweeps."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from dense import dense_rg2
from planted import dense, groups, split_groups

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.methods.closed_form.spectral import factors
from rankfold.objectives.rg import rg2
from rankfold.training.early_stopping import History
from rankfold.types import Step


@pytest.mark.parametrize("reg", [0.05, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_spectral_solution_is_the_minimum_and_sweeps_come_close(seed: int, reg: float) -> None:
    frame = groups(seed, m=60, n=40)
    options: dict[str, Any] = {"width": 6, "reg": reg}
    spectral = rf.fit("rg2-plain", frame, **options)
    alternating = rf.fit("rg2-plain", frame, solver="als", sweeps=300, **options)
    least, reached = (
        ranker.model.notes["history"][-1]["loss"] for ranker in (spectral, alternating)
    )
    assert least <= reached * (1 + 1e-6)
    assert reached <= least * (1 + 1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_defaults_reach_the_minimum_of_the_dense_svd(seed: int) -> None:
    """Random pairs, whose singular values decay slowly; the default width is below the rank."""
    data = rf.prepare(random_pairs(seed, 400, 300, 0.02), split=(1, 0, 0))
    r = dense(data.split("train"))
    sizes, n, reg = r.sum(dim=1, keepdim=True), r.shape[1], METHODS["rg2-plain"].config().reg
    u, sigma, v = torch.linalg.svd(n * r / sizes.sqrt() - sizes.sqrt(), full_matrices=False)
    shrunk = (sigma[:64] - reg * float(n * r.sum()) ** 0.5).clamp(min=0).sqrt()
    ratio = float(r.sum() / n) ** 0.25
    p, q = ratio * u[:, :64] / sizes.sqrt() * shrunk, v[:64].T / ratio * shrunk
    least = dense_rg2(-0.5, 0.0, reg)(r, p, q)
    model = rf.fit("rg2-plain", data).model
    found = (model.tensors[side].double() for side in ("queries", "candidates"))
    torch.testing.assert_close(dense_rg2(-0.5, 0.0, reg)(r, *found), least, rtol=1e-6, atol=0)


@pytest.mark.parametrize("solver", ["spectral", "als"])
@pytest.mark.parametrize("weights", ["none", "grade"])
def test_fold_in_gives_the_trained_rows(solver: str, weights: str) -> None:
    data = split_groups(graded=True)
    model = rf.fit("rg2-plain", data, width=6, reg=0.05, solver=solver, weights=weights).model
    fold_in = METHODS["rg2-plain"].open(model).histories
    assert fold_in is not None
    result = fold_in(data.split("train"))
    torch.testing.assert_close(result, model.tensors["queries"], rtol=1e-5, atol=1e-5)
    ones = fold_in(replace(data.split("train"), grades=None))
    assert torch.allclose(ones, result) is (weights == "none")


def test_reg_above_every_singular_value_is_refused() -> None:
    with pytest.raises(UserError, match="`reg` is above every singular value") as error:
        rf.fit("rg2-plain", groups(), reg=1e6)
    assert "smaller reg" in error.value.hint


def test_components_below_the_threshold_are_left_out() -> None:
    rows = rf.prepare(groups(), split=(1, 0, 0)).split("train")
    objective = rg2(rows, 0.0)
    vectors = torch.eye(60)[:, :4]
    values = torch.tensor([8.0, 4.0, 2.0, 1.0])
    actual = factors(objective, values, vectors, 2.0)
    assert actual.candidates.shape == (60, 2)
    ratio = float(objective.query_weight.sum() / 60) ** -0.25
    expected = [ratio * (8.0 - 2.0) ** 0.5, ratio * (4.0 - 2.0) ** 0.5]
    assert actual.candidates.diagonal().tolist() == pytest.approx(expected, rel=1e-5)


class Stop(Exception):
    """Stops a fit as a kill would."""


@pytest.mark.parametrize("name", ["rg2-plain", "puresvd"])
def test_resumed_after_any_pass_is_bit_identical(name: str, tmp_path: Path) -> None:
    data, options = split_groups(), {"width": 8, "tolerance": 1e-4}
    whole = rf.fit(name, data, **options).model
    last = whole.notes["chosen"]
    assert last > 2

    for n in range(1, last):

        def report(_history: History, step: Step, n: int = n) -> None:
            if step.number > n:
                raise Stop

        out = tmp_path / f"after-{n}"
        with pytest.raises(Stop):
            rf.fit(name, data, out=out, checkpoint_seconds=0, report=report, **options)
        model = rf.fit(name, data, out=out, resume=True, **options).model
        assert model.notes["chosen"] == last
        for key, tensor in whole.tensors.items():
            assert torch.equal(model.tensors[key], tensor)


# ---------------------------------------------------------------------------------- sweeps


def random_pairs(
    seed: int, m: int = 40, n: int = 30, share: float = 0.2
) -> tuple[list[int], list[int]]:
    rng = torch.Generator().manual_seed(seed)
    pairs = (torch.rand(m, n, generator=rng) < share).nonzero()
    return pairs[:, 0].tolist(), pairs[:, 1].tolist()


@pytest.mark.parametrize("seed", range(3))
def test_objective_never_rises(seed: int) -> None:
    ranker = rf.fit("rg2-plain", random_pairs(seed), solver="als", width=4, reg=0.01, sweeps=12)
    losses = [entry["loss"] for entry in ranker.model.notes["history"]]
    assert len(losses) == 12
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in pairwise(losses))
    assert losses[-1] < losses[0]


def test_starts_reach_the_same_optimum() -> None:
    """With this objective every local minimum is global: seeds agree once converged."""
    losses = [
        rf.fit(
            "rg2-plain", random_pairs(0), solver="als", width=4, reg=0.05, sweeps=200, seed=seed
        ).model.notes["history"][-1]["loss"]
        for seed in range(3)
    ]
    assert max(losses) - min(losses) < 1e-4 * abs(min(losses))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "`width` must be at least 1, got 0"),
        ({"reg": -1.0}, "`reg` must be at least 0, got -1.0"),
        ({"reg": float("nan")}, "`reg` must be at least 0, got nan"),
        ({"sweeps": 0}, "`sweeps` must be at least 1, got 0"),
        ({"widht": 3}, "no option 'widht'"),
        ({"width": "many"}, "`width` must be a whole number, got 'many'"),
    ],
)
def test_meaningless_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        rf.fit("rg2-plain", random_pairs(0), **settings)


def test_width_beyond_the_matrix_is_harmless() -> None:
    ranker = rf.fit("rg2-plain", random_pairs(1), width=100)
    assert all(tensor.isfinite().all() for tensor in ranker.model.tensors.values())
