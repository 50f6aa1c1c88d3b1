"""EASE matches its formula, chooses its settings on validation, and refuses too many candidates."""

from itertools import product
from typing import Any

import pytest
import torch
from planted import dense, groups

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.methods.closed_form import all_scores, ease, settings_search
from rankfold.methods.closed_form.ease import EasePoint, weights, weights_reference
from rankfold.methods.closed_form.settings_search import DEFAULTS, GRIDS, middle
from rankfold.solvers.progress import finished
from rankfold.types import Dataset, Interactions

PLAIN: dict[str, Any] = {  # of the paper, without any normalisation
    "query_exponent": 0.0, "candidate_exponent": 0.0, "candidate_reg": 0.0, "diagonal": 0.0,
    "discount": 0.0,
}  # fmt: skip


@pytest.fixture
def data() -> Dataset:
    return rf.prepare(groups(), split=(1, 0, 0))


@pytest.fixture
def judged() -> Dataset:
    return rf.prepare(groups(), split=(0.7, 0.3, 0), seed=1)


def closed_formula(r: torch.Tensor, reg: float) -> torch.Tensor:
    """B_ij = -P_ij / P_jj off the diagonal, P = (R^T R + reg I)^-1; [steck2019], Eq. 8."""
    p = torch.linalg.inv(r.T @ r + reg * torch.eye(r.shape[1], dtype=torch.float64))
    weights = torch.zeros_like(p)
    for i in range(len(p)):
        for j in range(len(p)):
            weights[i, j] = 0.0 if i == j else -p[i, j] / p[j, j]
    return weights


@pytest.mark.parametrize("reg", [0.1, 30.0])
def test_without_normalisation_it_is_the_paper(data: Dataset, reg: float) -> None:
    weights = rf.fit("ease", data, reg=reg, **PLAIN).model.tensors["weights"]
    r = dense(data.split("train"))
    expected = closed_formula(r, reg * float(r.sum(dim=0).mean()))
    torch.testing.assert_close(weights.double(), expected, rtol=1e-4, atol=1e-5)


POINTS = [
    EasePoint(-0.25, 0.3, 2.0, 0.5, 0.0, 0.1),
    EasePoint(-0.5, 0.0, 0.5, 0.0, 0.2, -0.1),
    EasePoint(0.0, 0.5, 10.0, 3.0, 1.0, 0.3),
]


@pytest.mark.parametrize("point", POINTS)
def test_weights_match_the_formula(data: Dataset, point: EasePoint) -> None:
    rows = data.split("train")
    fitted = rf.fit("ease", data, **point._asdict()).model.tensors["weights"]
    torch.testing.assert_close(
        fitted.double(), weights_reference(rows, point), rtol=2e-4, atol=1e-6
    )


@pytest.mark.parametrize("memory_budget", [1, 2**30])
@pytest.mark.parametrize("point", POINTS)
def test_columns_one_by_one_give_the_same_weights(
    data: Dataset, point: EasePoint, memory_budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = data.split("train")
    monkeypatch.setattr(ease, "_SPARSE", 0)
    monkeypatch.setattr(ease, "invert", None)
    found = finished(weights(rows, point, memory_budget))
    torch.testing.assert_close(found.double(), weights_reference(rows, point), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("bound", [0.0, 0.05, 1.0])
def test_weights_minimise_the_squares_under_the_bound(data: Dataset, bound: float) -> None:
    """|X - X B|^2 + sum_y t_y |B_y|^2 is stationary, but for diagonal entries at the bound.

    t = reg mean(g) + candidate_reg g. At the bound the gradient is below 0.
    """
    point = EasePoint(-0.25, 0.3, 0.5, 0.7, bound, 0.0)
    r = dense(data.split("train"))
    sizes, counts = r.sum(dim=1), r.sum(dim=0)
    x = sizes[:, None] ** -0.25 * r * counts**-0.3
    g = (x**2).sum(dim=0)
    fitted = finished(weights(data.split("train"), point, 2**20)).double()
    b = counts[:, None] ** 0.3 * fitted * counts**-0.3
    gradient = x.T @ (x @ b - x) + (0.5 * g.mean() + 0.7 * g)[:, None] * b
    own, scale = gradient.diagonal().clone(), float(g.mean())
    assert float((gradient - torch.diag(own)).abs().max()) < 1e-4 * scale
    at_bound = b.diagonal() > bound - 1e-5
    assert bool(at_bound.any()) is (bound < 1)
    assert float(b.diagonal().max()) <= bound + 1e-5
    assert bool((own[at_bound] < 1e-4 * scale).all())
    assert float(own[~at_bound].abs().sum()) < 1e-4 * scale


def test_search_sums_the_weights_of_the_history(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_scores, "QUERY_BLOCK", 7)  # several blocks
    model = rf.fit("ease", data, reg=5.0).model
    search = METHODS["ease"].open(model).search_histories
    assert search is not None
    rows = data.split("train")
    expected = dense(rows) @ model.tensors["weights"].double()
    ranked = search(rows, 60, None)
    torch.testing.assert_close(
        ranked.scores.double(), expected.gather(1, ranked.ids), atol=1e-5, rtol=0
    )
    assert torch.equal(ranked.ids.sort(dim=1).values, torch.arange(60).expand(120, -1))
    best = expected.masked_fill(dense(rows) > 0, -torch.inf).max(dim=1).values
    unseen = search(rows, 1, rows)
    torch.testing.assert_close(unseen.scores[:, 0].double(), best, atol=1e-5, rtol=0)


def test_search_without_histories_is_empty(data: Dataset) -> None:
    search = METHODS["ease"].open(rf.fit("ease", data).model).search_histories
    assert search is not None
    none = Interactions(torch.zeros(1).long(), torch.empty(0).int(), None, 60)
    assert search(none, 5, None).ids.shape == (0, 5)


def test_too_many_candidates_are_refused_with_a_hint(data: Dataset) -> None:
    with pytest.raises(UserError, match="60 x 60") as error:
        rf.fit("ease", data, largest=59)
    assert "largest=60" in error.value.hint
    assert "rg2" in error.value.hint
    rf.fit("ease", data, largest=60)


# ---------------------------------------------------------------------------------- the search


def test_without_validation_the_defaults_apply(data: Dataset) -> None:
    model = rf.fit("ease", data, reg=3.0).model
    expected = DEFAULTS._replace(reg=3.0)
    assert {name: model.config[name] for name in EasePoint._fields} == expected._asdict()
    assert model.notes["chosen_by"] == "the defaults"


def test_scores_of_the_search_are_those_of_the_model(judged: Dataset) -> None:
    """Measured by conjugate gradients, a point has the metric of the model fitted with it."""
    model = rf.fit("ease", judged, metric="ndcg@5").model
    chosen = {name: model.config[name] for name in EasePoint._fields}
    (mine,) = [
        entry for entry in model.notes["points"] if {name: entry[name] for name in chosen} == chosen
    ]
    assert mine["score"] == model.notes["score"]
    again = rf.fit("ease", judged, **chosen)
    assert "chosen_by" not in again.model.notes
    found = rf.evaluate(again, judged, split="validation", metrics="ndcg@5")["ndcg@5"]
    assert found == pytest.approx(mine["score"], abs=0.01)


def test_search_finds_the_best_of_the_grid(judged: Dataset) -> None:
    """Its score is within an error of the best of all regs and candidate exponents."""
    free = {"reg", "candidate_exponent"}
    fixed = {k: v for k, v in DEFAULTS._asdict().items() if k not in free}
    notes = rf.fit("ease", judged, **fixed).model.notes
    points = {(entry["reg"], entry["candidate_exponent"]) for entry in notes["points"]}
    grid = list(product(GRIDS["reg"], GRIDS["candidate_exponent"]))
    every = [
        rf.evaluate(
            rf.fit("ease", judged, reg=reg, candidate_exponent=power, **fixed),
            judged,
            split="validation",
            metrics="ndcg@10",
        )["ndcg@10"]
        for reg, power in grid
    ]
    assert len(points) < len(grid)
    assert notes["score"] > max(every) - max(entry["error"] for entry in notes["points"])
    assert max(every) - min(every) > 0.02  # it matters


def test_given_settings_are_kept_and_the_rest_is_searched(judged: Dataset) -> None:
    model = rf.fit("ease", judged, reg=7.0, discount=0.25).model
    assert {entry["reg"] for entry in model.notes["points"]} == {7.0}
    assert {entry["discount"] for entry in model.notes["points"]} == {0.25}
    assert len({entry["candidate_exponent"] for entry in model.notes["points"]}) > 1
    described = METHODS["ease"].describe(model)
    assert described is not None
    assert "validation from" in described
    assert "reg 7" in described


def test_small_memory_gives_the_same_choice(
    judged: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rf.fit("ease", judged).model
    monkeypatch.setattr(settings_search, "_MOST_QUERIES", 3)
    few = rf.fit("ease", judged).model
    assert few.notes["score"] == pytest.approx(whole.notes["score"], abs=0.005)
    for name in EasePoint._fields:  # means of equally good points, whose weights follow rounding
        assert few.config[name] == pytest.approx(whole.config[name], rel=0.2, abs=0.05), name


def test_middle_is_the_weighted_mean() -> None:
    one, other = EasePoint(-0.5, 0.25, 1.0, 0.0, 0.0, 0.1), EasePoint(0.0, 0.25, 100.0, 1.0, 0, 0.3)
    assert middle({one: 1.0, other: 1.0}) == EasePoint(-0.25, 0.25, 10.0, 0.5, 0.0, 0.2)
    assert middle({one: 3.0, other: 1.0}).query_exponent == -0.375
    assert middle({one: 1.0}) == one


def test_a_refit_keeps_the_choice(judged: Dataset) -> None:
    model = rf.fit("ease", judged, refit=True).model
    plain = rf.fit("ease", judged).model
    assert model.config == plain.config
    assert model.notes["refit"]
    both = judged.split("train").union(judged.split("validation"))
    point = EasePoint(*(model.config[name] for name in EasePoint._fields))
    torch.testing.assert_close(
        model.tensors["weights"].double(), weights_reference(both, point), rtol=2e-4, atol=1e-6
    )


def test_progress_is_reported_within_the_step(judged: Dataset) -> None:
    shares: list[float | None] = []
    rf.fit("ease", judged, report=lambda _history, step: shares.append(step.share))
    inside = [share for share in shares[:-1] if share is not None]
    assert len(inside) == len(shares) - 1 > 8  # the last has no share: it is all
    assert inside == sorted(inside)
    assert 0 < inside[0] < 0.3
    assert inside[-1] == pytest.approx(1)
