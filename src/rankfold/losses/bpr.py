"""The BPR loss over a pool of candidates."""

from torch import Tensor
from torch.nn.functional import softplus

from rankfold.losses.sides import mean_over, split


def bpr_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The logistic loss of each positive against each negative; [rendle2009].

    With P the valid candidates of grade > 0, V- the other valid ones, w the weights::

        cost_c = mean_{j in V-_b} log(1 + exp(s_bj - s_bc))
        loss_b = sum_{c in P_b} w_bc cost_c / sum_{c in P_b} w_bc

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a pair to compare.
    """
    return split(scores, grades, valid, weights).over_pairs(
        lambda own, pool, negative: mean_over(negative, softplus(pool - own))
    )
