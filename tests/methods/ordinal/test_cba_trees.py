"""cba-trees: its derivatives, its score, and what it finds at a low false-positive rate."""

import pytest
import torch
from torch import Tensor

import rankfold as rf
from rankfold.losses.low_fpr import above, exact_ranks, low_fpr_loss, rank_weights
from rankfold.methods.ordinal import boosting
from rankfold.methods.ordinal.cba_trees import CbaTreesConfig, cuts, low_fpr_logistic
from rankfold.methods.ordinal.trees import TREES, logistic
from rankfold.types import Columns, Dataset, Graded, Vocabulary

CONFIG = CbaTreesConfig(fpr=0.1, sigma=0.2, low=0.7, members=1)


def data(n_grades: int = 3, n: int = 1500) -> Dataset:
    def rows(size: int, seed: int) -> Graded:
        rng = torch.Generator().manual_seed(seed)
        numbers = torch.randn(size, 4, generator=rng)
        hidden = numbers[:, 0] * numbers[:, 1] + 0.5 * torch.randn(size, generator=rng)
        edges = torch.linspace(0.5, 2, n_grades - 1)
        empty = torch.zeros(size, 0, dtype=torch.int32)
        return Graded(numbers, empty, None, torch.bucketize(hidden, edges))

    parts = [rows(size, seed) for seed, size in enumerate((n, n // 2, n))]
    names = Vocabulary.numbered(n_grades, [f"g{place}" for place in range(n_grades)])
    columns, known = Columns(tuple("abcd"), {}), Vocabulary.numbered(3 * n)
    return Dataset("graded", *parts, known, names, columns=columns, fingerprint=f"{n_grades}")


def fixed_loss(outputs: Tensor, at: Tensor, grades: Tensor, n_grades: int) -> Tensor:
    """The loss with the ranks of the outputs ``at``, by its formula; times n."""
    total, n = torch.zeros((), dtype=torch.float64), len(grades)
    for k, positive in enumerate(above(grades, n_grades)):
        ranks = exact_ranks(at[:, k], ~positive)
        weights = rank_weights(ranks[None], ~positive[None], CONFIG.fpr, CONFIG.sigma or 0.0)
        valid = torch.ones(1, n, dtype=torch.bool)
        risk = low_fpr_loss(outputs[None, :, k], positive[None].long(), valid, weights)
        total = total + CONFIG.low * positive.sum() * risk.sum()
        signs = torch.where(positive, -1.0, 1.0)
        total = total + torch.nn.functional.softplus(signs * outputs[:, k]).sum()
    return total


@pytest.mark.parametrize("n_grades", [2, 4])
def test_derivatives_are_those_of_the_loss_with_fixed_ranks(n_grades: int) -> None:
    made = data(n_grades, 60)
    loss, grades = low_fpr_logistic(made, CONFIG), made.graded("train").grades
    rng = torch.Generator().manual_seed(3)
    outputs = 2 * torch.randn(60, n_grades - 1, dtype=torch.float64, generator=rng)
    first, second = loss.derivatives(0)(outputs)
    assert loss.value(outputs, grades) == pytest.approx(
        float(fixed_loss(outputs, outputs, grades, n_grades)) / 60, rel=1e-5
    )
    step = 1e-4
    for k in range(n_grades - 1):
        highest = outputs[:, k].masked_fill(grades > k, -torch.inf).argmax()
        for row in (int(highest), int(grades.argmax()), 7):
            moved = [outputs.clone() for _ in range(3)]
            moved[0][row, k] -= step
            moved[2][row, k] += step
            low, middle, high = (float(fixed_loss(one, outputs, grades, n_grades)) for one in moved)
            assert float(first[row, k]) == pytest.approx((high - low) / 2 / step, abs=1e-4)
            second_by_steps = (high - 2 * middle + low) / step**2
            assert float(second[row, k]) == pytest.approx(second_by_steps, abs=1e-3)


def test_without_the_risk_it_is_the_logistic_loss() -> None:
    made = data()
    config = CbaTreesConfig(low=0)
    outputs = torch.randn(1500, 2, dtype=torch.float64)
    for one, other in zip(
        low_fpr_logistic(made, config).derivatives(0)(outputs),
        logistic(made, config).derivatives(0)(outputs),
        strict=True,
    ):
        assert torch.allclose(one, other)


def test_a_share_of_the_negatives_is_above_its_cut() -> None:
    """So the score counts the thresholds that a row passes at the rate."""
    made = data()
    train = made.graded("train")
    model = rf.fit("cba-trees", made, rounds=20, fpr=0.1, score="passed").model
    outputs = boosting.open_trees(boosting.as_text(model.tensors[TREES]), 4)(train)
    for k, positive in enumerate(above(train.grades, 3)):
        share = (outputs[~positive, k] > 0).double().mean()
        assert float(share) == pytest.approx(0.1, abs=0.01)
    assert torch.equal(
        cuts(outputs[:, :1], train.grades.clamp(max=1), 0.1), torch.zeros(1).double()
    )


def test_an_empty_side_costs_nothing() -> None:
    """No training row has the highest grade."""
    made = data(3)
    made.graded("train").grades.clamp_(max=1)
    loss = low_fpr_logistic(made, CONFIG)
    outputs = torch.randn(1500, 2, dtype=torch.float64)
    expected = logistic(made, CONFIG).derivatives(0)(outputs)
    torch.testing.assert_close(loss.derivatives(0)(outputs)[0][:, 1], expected[0][:, 1])
    assert rf.fit("cba-trees", made, rounds=5).score(made.graded("test")).isfinite().all()
