"""``decoupled_softmax_loss`` for a pool that a batch shares, in few passes."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus


class Places(NamedTuple):
    """Some distinct cells of [B, C]."""

    rows: Tensor  # [n] int64
    columns: Tensor  # [n] int64


def shared_decoupled_softmax_loss(
    scores: Tensor, log_q: Tensor, positive: Places, hidden: Places
) -> Tensor:
    """Cross-entropy of each positive against rivals weighted by 1 / q.

    Equals ``decoupled_softmax_loss`` of ``scores`` at positives and ``scores - log_q`` elsewhere,
    where hidden cells are invalid.

    Args:
        scores: [B, C], finite.
        log_q: log of the probability that a candidate is in the pool as a rival; [C].
        positive: the choices of the batch's queries.
        hidden: cells that are not rivals; includes ``positive``.

    Returns [B], and 0 for a query without a positive.
    """
    log_z, own = _Rivals.apply(scores, log_q, positive, hidden)  # type: ignore[no-untyped-call]
    each = softplus(log_z[positive.rows] - own)
    totals = scores.new_zeros(2, len(scores))
    sums, counts = totals.index_add(1, positive.rows, torch.stack([each, torch.ones_like(each)]))
    loss: Tensor = sums / counts.clamp(min=1)
    return loss


class _Rivals(torch.autograd.Function):
    """log sum_j exp(s_j - log q_j) over the rivals of each row [B], and the positives' scores [P].

    Without a rival the result is -inf, with no gradient. The backward pass reuses the exponentials.
    """

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, log_q: Tensor, positive: Places, hidden: Places
    ) -> tuple[Tensor, Tensor]:
        terms = scores - log_q
        terms[hidden] = -torch.inf
        most = terms.amax(dim=1, keepdim=True).clamp_(min=torch.finfo(terms.dtype).min)
        total = terms.sub_(most).exp_().sum(dim=1, keepdim=True)
        ctx.save_for_backward(terms, total.clamp(min=1), *positive)
        return (most + total.log())[:, 0], scores[positive]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_sums: Tensor, of_own: Tensor) -> tuple[Tensor, None, None, None]:
        terms, total, *positive = ctx.saved_tensors
        gradient = terms * (of_sums[:, None] / total)
        gradient[tuple(positive)] = of_own  # 0 so far: positives are not rivals
        return gradient, None, None, None
