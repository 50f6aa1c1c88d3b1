"""pauc: one-way partial AUC over the hardest negatives; SOPA-s of [zhu2022]."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from rankfold.config import setting
from rankfold.losses.low_fpr import above
from rankfold.methods.ordinal import training
from rankfold.types import Range


class PartialAucConfig(training.GradedConfig):
    """Hard negatives count more."""

    temperature: float = setting(1.0, above=0, help="SOPA-s lambda; lower: fewer negatives count")
    memory: float = setting(
        0.9, above=0, below=1, help="SOPA-s gamma: share of a row's new estimate"
    )


class _MovingEstimates:
    """For each threshold and positive row, the log of a moving mean over negatives."""

    def __init__(self, thresholds: int, n_rows: int, device: torch.device) -> None:
        self.logs = torch.full((thresholds, n_rows), -torch.inf, device=device)

    def blend(self, rows: Tensor, fresh: Tensor, usable: Tensor, share: float) -> Tensor:
        """Move the estimates of ``rows`` by a ``share`` towards ``fresh``, where usable; [T, B].

        The first estimate of a row is taken in full.
        """
        old = self.logs[:, rows]
        mixed = torch.logaddexp(old + math.log1p(-share), fresh + math.log(share))
        new = torch.where(usable, torch.where(old.isinf(), fresh, mixed), old)
        self.logs[:, rows] = new
        return torch.where(usable, new, 0.0)

    def state(self) -> dict[str, Tensor]:
        return {"logs": self.logs}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.logs.copy_(state["logs"])


def partial_auc_loss(context: training.FitContext) -> training.BatchLoss:
    """One-way partial AUC, smoothed by a KL divergence; one value per threshold.

    With l_ij = log(1 + exp(s_j - s_i)) for a positive i and a negative j::

        risk_i = lambda log mean_j exp(l_ij / lambda)
        gradient: sum_j p_ij grad l_ij,   p_ij = exp(l_ij / lambda) / u_i / n-

    u_i is the moving mean of exp(l_ij / lambda), kept for each row.
    """
    config: PartialAucConfig = context.config
    grades = context.rows.grades
    estimates = _MovingEstimates(context.n_grades - 1, len(grades), grades.device)

    def losses(batch: training.GradedBatch) -> Tensor:
        scores = batch.outputs[:, 0]
        costs = F.softplus(scores - scores[:, None])  # [i, j]
        positive = above(batch.grades, context.n_grades)
        n_negative = (~positive).sum(dim=1).clamp(min=1)
        logs = (costs.detach() / config.temperature).masked_fill(positive[:, None, :], -torch.inf)
        counts = n_negative.to(costs.dtype).log()[:, None]
        fresh = logs.logsumexp(dim=2) - counts  # [T, B]
        usable = positive & (~positive).any(dim=1, keepdim=True)
        logs_u = estimates.blend(batch.rows, fresh, usable, config.memory)
        powers = logs - logs_u[:, :, None] - counts[:, :, None]
        p = powers.masked_fill(~usable[:, :, None], -torch.inf).exp()  # exp may overflow elsewhere
        values = (p * costs).sum(dim=2)
        return values.sum(dim=1) / usable.sum(dim=1).clamp(min=1)

    return training.BatchLoss(losses, estimates)


METHOD = training.method(
    "pauc",
    training.Recipe(lambda _n_grades: 1, partial_auc_loss, training.mean_score),
    "partial AUC over the hardest negatives (SOPA-s)",
    "zhu2022",
    PartialAucConfig,
    temperature=Range(0.1, 10.0, log=True),
    memory=Range(0.5, 0.99),
)
