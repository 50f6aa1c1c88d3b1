"""RG2 and RGx against softmax: by autograd, by a dense eigenvalue solver, at a planted model."""

import pytest
import torch
from scored_models import model_of_scores

from rankfold.errors import UserError
from rankfold.tasks.diagnose import diagnose
from rankfold.tasks.diagnose.taylor import compare, smallest_eigenvalue


def expansions(o: torch.Tensor) -> dict[str, torch.Tensor]:
    """The second-order expansion of softmax at 0, term by term from its Hessian there."""
    n = len(o)
    hessian = {"RG2": torch.eye(n).double() / n}
    hessian["RGx"] = hessian["RG2"] - torch.full((n, n), 1 / n**2).double()
    zero = torch.zeros(n, dtype=torch.float64).logsumexp(0)
    return {name: zero + o.sum() / n + o @ h @ o / 2 for name, h in hessian.items()}


def test_values_and_gradients_are_those_of_the_losses() -> None:
    rng = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 7, generator=rng, dtype=torch.float64) * 1.5
    targets = torch.zeros(5, 7, dtype=torch.float64)
    targets[:, 1] = targets[:, 4] = 0.5
    measured = compare(scores, targets)
    for row in range(5):
        o = scores[row].clone().requires_grad_()
        exact = o.logsumexp(0) - (o * targets[row]).sum()
        (g,) = torch.autograd.grad(exact, o)
        for name, value in expansions(o).items():
            loss = value - (o * targets[row]).sum()
            (h,) = torch.autograd.grad(loss, o)
            cosine = torch.cosine_similarity(g, h, dim=0)
            gap = (loss - exact).item()
            assert measured[f"gap {name}"][row].item() == pytest.approx(gap)
            ratio = ((h - g).norm() / (1 / 7 - targets[row]).norm()).item()
            assert measured[f"gradient {name}"][row].item() == pytest.approx(ratio)
            assert measured[f"cosine {name}"][row].item() == pytest.approx(cosine.item())
            if name == "RG2":
                assert measured["bounds"][row].item() == float(gap >= 0)


def test_the_smallest_eigenvalue_equals_a_dense_solver() -> None:
    rng = torch.Generator().manual_seed(1)
    scores = torch.randn(20, 6, generator=rng, dtype=torch.float64) * 3
    scores[0] = 0.0  # uniform
    scores[1, :2] = 40.0  # p = (.5, .5, 0, ...)
    scores[2, 0] = 40.0
    p = scores.softmax(dim=1)
    dense = [torch.eye(6).double() / 6 - torch.diag(one) + one[:, None] * one for one in p]
    expected = [torch.linalg.eigvalsh(matrix).min().item() for matrix in dense]
    assert smallest_eigenvalue(scores).tolist() == pytest.approx(expected, abs=1e-9)


def test_the_counterexample_to_proposition_7() -> None:
    scores = torch.full((1, 10), -50.0, dtype=torch.float64)
    scores[0, :2] = 50.0
    assert smallest_eigenvalue(scores).item() == pytest.approx(-0.4)


def test_small_scores_are_within_the_expansion_and_large_ones_not() -> None:
    for scale, close in ((0.01, True), (30.0, False)):
        data, model = model_of_scores(scale)
        result = diagnose("taylor", data, {"queries": 30}, model=model)
        error = result.summary["relative error of RGx's gradient"]
        assert (error < 0.1) == close
        assert ("is close to softmax" in result.follows) == close


def test_a_model_without_vectors_or_of_other_data_is_refused() -> None:
    data, model = model_of_scores(1.0)
    other, _ = model_of_scores(1.0, n_queries=7)
    with pytest.raises(UserError, match="other queries or candidates than the data"):
        diagnose("taylor", other, model=model)
    with pytest.raises(UserError, match="taylor fits no method here, got 'rg2'"):
        diagnose("taylor", data, model=model, method="rg2")
    with pytest.raises(UserError, match="taylor is about interactions, and cba fits graded"):
        diagnose("taylor", data, method="cba")
    with pytest.raises(UserError, match="there is no option 'width'"):
        diagnose("taylor", data, {"width": 4}, model=model)
