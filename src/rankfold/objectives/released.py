"""The steps of the RG authors' released code where they differ from the objective; [rg2].

Off by default; for comparison with results of that code. It differs from weighted RG2 and RGx:

- the background enters the candidate step with the wrong sign;
- RGx is not centred; its background Gram matrix is multiplied by 1 - beta;
- the query step of RG2 adds lambda once more.

Without extra weight its fixed points are those of RG2 with scores times 1/(1 - beta), up to that
sign.
"""

from dataclasses import replace

from torch import Tensor

from rankfold.objectives.quadratic import Half, Objective, candidate_half, query_half
from rankfold.types import Interactions


def released_query_half(o: Objective, reg: float, beta: float) -> Half:
    """RG2: reg + lambda. RGx (``o.centre`` > 0): (1 - beta) times the background's Gram matrix."""
    half = query_half(o)
    if o.centre == 0:
        return replace(half, reg=half.reg + reg)
    return replace(half, gram_own=_reduced(o, beta), centre=0.0)


def released_candidate_half(o: Objective, columns: Interactions, beta: float) -> Half:
    """The background's right side has the opposite sign. RGx's Gram matrix is as above."""
    half = candidate_half(o, columns)
    half = replace(half, line_other=-half.line_other)
    if o.centre == 0:
        return half
    return replace(half, gram_other=_reduced(o, beta), centre=0.0)


def _reduced(o: Objective, beta: float) -> Tensor:
    """The weights of queries times 1 - beta, but not what the regulariser added to them; [M]."""
    return (o.query_weight - o.uncentred) * (1 - beta) + o.uncentred
