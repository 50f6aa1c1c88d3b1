"""eban: the true-positive rate under a bound on the false-positive rate; [eban2017]."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankfold.config import setting
from rankfold.encoders.towers import small_linear
from rankfold.losses.low_fpr import above
from rankfold.methods.ordinal import training
from rankfold.types import Range

_MAX_DUAL = 1e5


class _ConstrainedConfig(training.GradedConfig):
    """A bound on the false-positive rate."""

    fpr: float = setting(0.01, above=0, below=1, help="largest false-positive rate")
    dual_lr: float = setting(1e-3, above=0, help="learning rate of the Lagrange multipliers")


class _SharedScoreHead(nn.Module):
    """One score, and a bias for each threshold."""

    def __init__(self, width: int, thresholds: int, rng: torch.Generator) -> None:
        super().__init__()
        self.score = small_linear(width, 1, rng)
        self.biases = nn.Parameter(torch.zeros(thresholds))

    def forward(self, vectors: Tensor) -> Tensor:
        outputs: Tensor = self.score(vectors) + self.biases
        return outputs


class Duals:
    """A Lagrange multiplier per threshold."""

    def __init__(self, thresholds: int, lr: float, device: torch.device) -> None:
        self.values, self.lr = torch.ones(thresholds, device=device), lr

    def climb(self, excess: Tensor) -> None:
        self.values = (self.values + self.lr * excess.detach()).clamp(0, _MAX_DUAL)

    def state(self) -> dict[str, Tensor]:
        return {"values": self.values}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.values = state["values"].to(self.values).clone()


def _constrained_loss(context: training.FitContext) -> training.BatchLoss:
    """Positives above a bias, while the negatives above it stay within the rate.

    With l(x) = log_2(1 + e^-x) >= 1[x <= 0], k a threshold, u_k its output::

        loss_k = mean+ l(u_k) + dual_k (mean- l(-u_k) - fpr),    dual_k += lr (mean- l(-u_k) - fpr)

    A threshold with an empty side in the batch costs 0.
    """
    config: _ConstrainedConfig = context.config
    duals = Duals(context.n_grades - 1, config.dual_lr, context.rows.grades.device)

    def losses(batch: training.GradedBatch) -> Tensor:
        positive = above(batch.grades, context.n_grades)
        sides = positive.to(batch.outputs.dtype), (~positive).to(batch.outputs.dtype)
        signed = torch.where(positive, batch.outputs.T, -batch.outputs.T)
        costs = F.softplus(-signed) / math.log(2)
        of_positives, of_negatives = (
            (costs * side).sum(dim=1) / side.sum(dim=1).clamp(min=1) for side in sides
        )
        both = (positive.any(dim=1) & (~positive).any(dim=1)).to(costs.dtype)
        excess = (of_negatives - config.fpr) * both
        values = of_positives * both + duals.values * excess
        duals.climb(excess)
        return values

    return training.BatchLoss(losses, duals)


METHOD = training.method(
    "eban",
    training.Recipe(
        lambda n_grades: n_grades - 1, _constrained_loss, training.mean_score, _SharedScoreHead
    ),
    "true positives under a bound on false ones, by Lagrange multipliers",
    "eban2017",
    _ConstrainedConfig,
    dual_lr=Range(1e-4, 0.1, log=True),
)
