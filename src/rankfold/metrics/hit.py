"""Hit: whether a query got any positive. Its mean over queries is the hit rate."""

from torch import Tensor

from rankfold.metrics.judged import Judged


def hit(judged: Judged, k: int) -> Tensor:
    """1 if there is a positive among the first k results, else 0.

    trec_eval calls it success::

        hit_b = max_{r <= k} (grades_br > 0)

    Returns [B], and 0 for a query without a positive.
    """
    return (judged.grades[:, :k] > 0).any(dim=1).float()
