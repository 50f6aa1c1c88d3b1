"""EASE matches its closed form, and refuses too many candidates."""

import pytest
import torch
from planted import dense, groups

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods.closed_form import ease
from rankfold.types import Dataset, Interactions


@pytest.fixture
def data() -> Dataset:
    return rf.prepare(groups(), split=(1, 0, 0))


def closed_formula(r: torch.Tensor, reg: float) -> torch.Tensor:
    """B_ij = -P_ij / P_jj off the diagonal, P = (R^T R + reg I)^-1; [steck2019], Eq. 8."""
    p = torch.linalg.inv(r.T @ r + reg * torch.eye(r.shape[1], dtype=torch.float64))
    weights = torch.zeros_like(p)
    for i in range(len(p)):
        for j in range(len(p)):
            weights[i, j] = 0.0 if i == j else -p[i, j] / p[j, j]
    return weights


@pytest.mark.parametrize("reg", [1.0, 300.0])
def test_weights_match_the_closed_form(data: Dataset, reg: float) -> None:
    weights = rf.fit("ease", data, reg=reg).model.tensors["weights"]
    expected = closed_formula(dense(data.split("train")), reg)
    torch.testing.assert_close(weights.double(), expected, rtol=1e-4, atol=1e-5)


def test_weights_minimise_the_regularised_squares(data: Dataset) -> None:
    """The gradient of |R - R B|^2 + reg |B|^2 vanishes off the diagonal, which is zero."""
    r, reg = dense(data.split("train")), 5.0
    b = rf.fit("ease", data, reg=reg).model.tensors["weights"].double()
    gradient = r.T @ (r @ b - r) + reg * b
    assert not b.diagonal().any()
    assert float((gradient - torch.diag(gradient.diagonal())).abs().max()) < 1e-3


def test_search_sums_the_weights_of_the_history(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ease, "QUERY_BLOCK", 7)  # several blocks
    weights = rf.fit("ease", data, reg=5.0).model.tensors["weights"]
    rows = data.split("train")
    expected = dense(rows) @ weights.double()
    ranked = ease.search(weights, rows, 60, None)
    torch.testing.assert_close(
        ranked.scores.double(), expected.gather(1, ranked.ids), atol=1e-5, rtol=0
    )
    assert torch.equal(ranked.ids.sort(dim=1).values, torch.arange(60).expand(120, -1))
    best = expected.masked_fill(dense(rows) > 0, -torch.inf).max(dim=1).values
    unseen = ease.search(weights, rows, 1, rows)
    torch.testing.assert_close(unseen.scores[:, 0].double(), best, atol=1e-5, rtol=0)


def test_search_without_histories_is_empty(data: Dataset) -> None:
    weights = rf.fit("ease", data).model.tensors["weights"]
    none = Interactions(torch.zeros(1).long(), torch.empty(0).int(), None, 60)
    assert ease.search(weights, none, 5, None).ids.shape == (0, 5)


def test_too_many_candidates_are_refused_with_a_hint(data: Dataset) -> None:
    with pytest.raises(UserError, match="60 x 60") as error:
        rf.fit("ease", data, largest=59)
    assert "largest=60" in error.value.hint
    assert "rg2" in error.value.hint
    rf.fit("ease", data, largest=60)
