"""RG2 and RGx of the sampled softmax, in expectation over the negatives; [rg2]."""

from dataclasses import dataclass

from rankfold.config import setting
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.errors import UserError
from rankfold.methods.als.alternating import (
    RG_GRID,
    AlsConfig,
    LeastSquares,
    Start,
    exact,
    method,
)
from rankfold.objectives.rg import rg2_sampled, rgx_sampled
from rankfold.types import Comm, Interactions, Range

SPACE = {
    "reg": Range(0.001, 0.3, log=True),
    "negatives": Range(100, 10_000, log=True, whole=True),
}
PAPER_SPACE = {"reg": RG_GRID}


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledConfig(AlsConfig):
    """Settings of ``rg2-sampled`` and ``rgx-sampled``."""

    reg: float = setting(0.03, at_least=0, help="regularisation (lambda)")
    negatives: int = setting(1000, at_least=1, help="negatives that are sampled for a pair")
    start: Start = "spectral"


def rg2_problem(
    rows: Interactions, config: SampledConfig, comm: Comm = SINGLE_PROCESS
) -> LeastSquares:
    return exact(rg2_sampled(rows, config.reg, config.negatives, comm))


def rgx_problem(
    rows: Interactions, config: SampledConfig, comm: Comm = SINGLE_PROCESS
) -> LeastSquares:
    if rows.grades is not None:
        raise UserError(
            "rgx-sampled does not support grades", hint="leave weights=none, or fit rg2-sampled"
        )
    return exact(rgx_sampled(rows, config.reg, config.negatives, comm))


RG2_SAMPLED = method(
    "rg2-sampled",
    rg2_problem,
    SampledConfig,
    "rg2 of the sampled softmax, in expectation over the negatives",
    paper="rg2",
    space=SPACE,
    paper_space=PAPER_SPACE,
)
RGX_SAMPLED = method(
    "rgx-sampled",
    rgx_problem,
    SampledConfig,
    "rgx of the sampled softmax, in expectation over the negatives",
    paper="rg2",
    space=SPACE,
    paper_space=PAPER_SPACE,
)
