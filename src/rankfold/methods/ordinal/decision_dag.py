"""ddag: a classifier per pair of grades, in a decision DAG; [platt1999]."""

from itertools import combinations

import torch
from torch import Tensor
from torch.nn import functional as F

from rankfold.methods.ordinal import training


def pairs_of(n_grades: int) -> list[tuple[int, int]]:
    """The pairs of grades i < j, each with a classifier that says whether j is likelier."""
    return list(combinations(range(n_grades), 2))


def _dag_loss(context: training.FitContext) -> training.BatchLoss:
    """A logistic loss for each pair of grades, over the rows that have one of them."""
    pairs = torch.tensor(pairs_of(context.n_grades), device=context.rows.grades.device)

    def losses(batch: training.GradedBatch) -> Tensor:
        is_either = batch.grades[:, None, None] == pairs  # [B, P, 2]
        costs = F.binary_cross_entropy_with_logits(
            batch.outputs, is_either[:, :, 1].to(batch.outputs.dtype), reduction="none"
        )
        return torch.where(is_either.any(dim=2), costs, 0.0).sum(dim=1) / (context.n_grades - 1)

    return training.BatchLoss(losses)


def dag_score(outputs: Tensor, n_grades: int) -> Tensor:
    """The expected grade over all paths; node (i, j) rules out i or j."""
    place = {pair: number for number, pair in enumerate(pairs_of(n_grades))}
    higher = outputs.double().sigmoid()
    reach = {(0, n_grades - 1): torch.ones_like(higher[:, 0])}
    for gap in range(n_grades - 1, 0, -1):
        for low in range(n_grades - gap):
            here, pair = reach[low, low + gap], (low, low + gap)
            for next_, share in (
                ((low + 1, low + gap), higher[:, place[pair]]),
                ((low, low + gap - 1), 1 - higher[:, place[pair]]),
            ):
                reach[next_] = reach.get(next_, torch.zeros_like(here)) + here * share
    return training.expected_grade(torch.stack([reach[g, g] for g in range(n_grades)], dim=1))


METHOD = training.method(
    "ddag",
    training.Recipe(lambda n_grades: len(pairs_of(n_grades)), _dag_loss, dag_score),
    "a classifier per pair of grades, in a decision DAG",
    "platt1999",
)
