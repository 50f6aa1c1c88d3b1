"""RGx: RG2 with the interaction term of the softmax, exactly; [rg2]."""

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.methods.als.alternating import LeastSquares, method
from rankfold.methods.als.rg2_weighted import (
    PAPER_SPACE,
    SPACE,
    WeightedConfig,
    by_variant,
    weighted,
)
from rankfold.objectives.rg import rgx
from rankfold.types import Comm, Interactions


def problem(
    rows: Interactions, config: WeightedConfig, comm: Comm = SINGLE_PROCESS
) -> LeastSquares:
    return by_variant(rgx(weighted(rows, config, comm)), config)


METHOD = method(
    "rgx",
    problem,
    WeightedConfig,
    "softmax to second order with its interaction term, exactly, extra weight on the pairs",
    paper="rg2",
    space=SPACE,
    paper_space=PAPER_SPACE,
)
