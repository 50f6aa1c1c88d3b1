"""Metrics of sets: equal to loops over all pairs and to scikit-learn, which is not needed."""

import pytest
import torch
from torch import Tensor

from rankfold.metrics import SET_METRICS
from rankfold.metrics.sets import SetCounts, count_sets, micro_f1
from rankfold.types import from_pairs

B, N = 30, 12


def sets(seed: int) -> tuple[Tensor, Tensor]:
    """Returned and true candidates [B, N], some never returned, never true or neither."""
    rng = torch.Generator().manual_seed(seed)
    returned = torch.rand(B, N, generator=rng) < 0.3
    true = torch.rand(B, N, generator=rng) < 0.25
    returned[:, :2], true[:, 1:3] = False, False
    returned[:, 3], true[:, 3] = False, False
    return returned, true


def counts_of(returned: Tensor, true: Tensor) -> SetCounts:
    """By ``count_sets``, from lists with gaps and from pairs of which some have grade 0."""
    ids = torch.where(returned, torch.arange(N), -1).flip(1)
    grades = torch.where(true, 2.0, 0.0).flatten()
    pairs = torch.cartesian_prod(torch.arange(B), torch.arange(N)).unbind(1)
    return count_sets(ids, from_pairs(*pairs, grades, (B, N)))


def by_loops(name: str, returned: Tensor, true: Tensor) -> float:
    """The metric, one candidate or pair at a time."""
    averaged, what = name.split("-")
    columns = range(N) if averaged == "macro" else [slice(None)]
    values = []
    for column in columns:
        right = wrong = missed = 0
        for got, has in zip(
            returned[:, column].flatten().tolist(), true[:, column].flatten().tolist(), strict=True
        ):
            right += got and has
            wrong += got and not has
            missed += has and not got
        if averaged == "macro" and right + wrong + missed == 0:
            continue
        precision = right / (right + wrong) if right + wrong else 0.0
        recall = right / (right + missed) if right + missed else 0.0
        both = precision + recall
        f1 = 2 * precision * recall / both if both else 0.0
        values.append({"precision": precision, "recall": recall, "f1": f1}[what])
    return sum(values) / len(values)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SET_METRICS)
def test_value_equals_loops_over_all_pairs(name: str, seed: int) -> None:
    returned, true = sets(seed)
    value = float(SET_METRICS[name].value(counts_of(returned, true)))
    assert value == pytest.approx(by_loops(name, returned, true), abs=1e-12)
    assert 0 < value < 1


@pytest.mark.parametrize("name", SET_METRICS)
def test_value_equals_scikit_learn(name: str) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    returned, true = sets(7)
    averaged, what = name.split("-")
    occur = (returned | true).any(dim=0)
    value = getattr(metrics, f"{what}_score")(
        true[:, occur].numpy(), returned[:, occur].numpy(), average=averaged, zero_division=0
    )
    assert float(SET_METRICS[name].value(counts_of(returned, true))) == pytest.approx(value)


def test_counts_are_those_of_each_candidate() -> None:
    returned, true = sets(0)
    counts = counts_of(returned, true)
    assert torch.equal(counts.returned, returned.sum(dim=0))
    assert torch.equal(counts.true, true.sum(dim=0))
    assert torch.equal(counts.right, (returned & true).sum(dim=0))


@pytest.mark.parametrize("name", SET_METRICS)
def test_perfect_sets_score_one_and_empty_ones_zero(name: str) -> None:
    _, true = sets(1)
    value = SET_METRICS[name].value
    assert float(value(counts_of(true, true))) == 1
    assert float(value(counts_of(torch.zeros_like(true), true))) == 0
    assert float(value(SetCounts(*torch.zeros(3, N, dtype=torch.int64)))) == 0


def test_a_frequent_candidate_counts_more_in_micro_f1() -> None:
    counts = SetCounts(torch.tensor([90, 0]), torch.tensor([100, 0]), torch.tensor([100, 10]))
    assert float(micro_f1(counts)) == pytest.approx(2 * 90 / (100 + 110))
    assert float(SET_METRICS["macro-f1"].value(counts)) == pytest.approx(0.45)
