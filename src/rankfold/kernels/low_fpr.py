"""``low_fpr_loss`` for thresholds that share one set of scores: each pair is computed once."""

from torch import Tensor
from torch.nn.functional import softplus


def shared_low_fpr_loss(scores: Tensor, positive: Tensor, weights: Tensor) -> Tensor:
    """Equals ``low_fpr_loss(scores.expand(T, -1), positive, all valid, weights)``.

    With c_ij = log(1 + exp(s_j - s_i)), which does not depend on the threshold::

        loss_t = sum_i (positive_ti / |P_t|) sum_j p_tj c_ij

    Args:
        scores: s, [B].
        positive: which rows are positive at each threshold; [T, B] bool.
        weights: of the negatives, proportional to p; [T, B]; those of positives do not count.

    Returns [T], and 0 for a threshold with an empty side.
    """
    p = weights.masked_fill(positive, 0.0)
    total = p.sum(dim=1, keepdim=True)
    p = p / total.masked_fill(total == 0, 1.0)
    shares = positive / positive.sum(dim=1, keepdim=True).clamp(min=1)
    costs = softplus(scores - scores[:, None])  # [i, j]
    return ((shares.to(costs.dtype) @ costs) * p).sum(dim=1)
