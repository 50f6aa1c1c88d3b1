"""From the outputs of a head to one score per row."""

import torch
from torch import Tensor


def expected_grade(probabilities: Tensor) -> Tensor:
    """sum_g p_g g / (G - 1), between 0 and 1; [B, G] -> [B]."""
    grades = torch.arange(probabilities.shape[1], device=probabilities.device)
    return probabilities @ grades.to(probabilities.dtype) / (probabilities.shape[1] - 1)


def by_classes(outputs: Tensor, _n_grades: int) -> Tensor:
    """The expected grade of a softmax over grades."""
    return expected_grade(outputs.double().softmax(dim=1))


def by_thresholds(outputs: Tensor, _n_grades: int) -> Tensor:
    """The sum of sigmoids, one per threshold."""
    return outputs.double().sigmoid().sum(dim=1)


def mean_score(outputs: Tensor, _n_grades: int) -> Tensor:
    """The mean of outputs that differ only by constants."""
    return outputs.double().mean(dim=1)
