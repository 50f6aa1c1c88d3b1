"""The hinge ranking loss over a pool of candidates."""

from torch import Tensor

from rankfold.losses.sides import mean_over, split


def hinge_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Mean violation of a margin of 1 over all pairs (positive, negative) of a query.

    With P the valid candidates of grade > 0, V- the other valid ones, w the weights::

        loss_b = sum_{c in P_b} w_bc mean_{j in V-_b} [1 - s_bc + s_bj]_+ / sum_{c in P_b} w_bc

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a pair to compare.
    """
    return split(scores, grades, valid, weights).over_pairs(
        lambda own, pool, negative: mean_over(negative, (1 - own + pool).clamp(min=0))
    )
