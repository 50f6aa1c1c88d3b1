"""Ordinal classifiers match their formulas."""

import torch

from rankfold.methods.ordinal import classifiers
from rankfold.methods.ordinal.training import GradedConfig


def test_soft_targets_match_the_formula() -> None:
    outputs, config = torch.randn(2, 4), GradedConfig()
    result = classifiers.soft_losses(outputs, torch.tensor([0, 2]), config)
    for row, y in enumerate((0, 2)):
        weights = torch.exp(-torch.tensor([abs(g - y) for g in range(4)], dtype=torch.float))
        target = weights / weights.sum()
        expected = -(target * outputs[row].log_softmax(0)).sum()
        torch.testing.assert_close(result[row], expected)


def test_focal_without_focus_is_cross_entropy() -> None:
    outputs, y = torch.randn(6, 4), torch.randint(0, 4, (6,))
    plain = classifiers.focal_losses(outputs, y, classifiers.FocalConfig(focus=0.0))
    torch.testing.assert_close(plain, classifiers.ce_losses(outputs, y, GradedConfig()))
    focal = classifiers.focal_losses(outputs, y, classifiers.FocalConfig(focus=2.0))
    p = outputs.softmax(1).gather(1, y[:, None]).squeeze(1)
    torch.testing.assert_close(focal, (1 - p) ** 2 * plain)
