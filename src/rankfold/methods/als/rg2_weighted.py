"""RG2 with extra weight on the pairs; [rg2]."""

from dataclasses import dataclass
from typing import Any, Literal

from rankfold.config import setting
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.methods.als.alternating import (
    RG_GRID,
    AlsConfig,
    LeastSquares,
    Start,
    exact,
    method,
    released,
)
from rankfold.objectives.quadratic import Objective
from rankfold.objectives.rg import rg2_weighted
from rankfold.types import Comm, Interactions, Range

SPACE = {"reg": Range(0.001, 0.3, log=True), "alpha": Range(0.002, 0.2, log=True)}
PAPER_SPACE = {"reg": RG_GRID, "alpha": RG_GRID}  # and beta, which variant=released alone has


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedConfig(AlsConfig):
    """Settings of ``rg2-weighted`` and ``rgx``."""

    reg: float = setting(0.03, at_least=0, help="regularisation (lambda)")
    alpha: float = setting(0.02, at_least=0, help="extra weight of a pair")
    regulariser: Literal["frequency", "weighted", "plain", "matrix"] = setting(
        "frequency", help="how the regularisation grows with the pairs of a row"
    )
    nu: float = setting(1.0, at_least=0, help="power of the frequency regulariser")
    start: Start = "spectral"
    variant: Literal["exact", "released"] = setting(
        "exact", help="released: as in the authors' code"
    )
    beta: float = setting(
        0.1, at_least=0, at_most=1, help="weight of the Gram matrix with variant=released"
    )


def problem(
    rows: Interactions, config: WeightedConfig, comm: Comm = SINGLE_PROCESS
) -> LeastSquares:
    return by_variant(weighted(rows, config, comm), config)


def weighted(rows: Interactions, config: WeightedConfig, comm: Comm) -> Objective:
    """The objective of weighted RG2."""
    options: dict[str, Any] = {"regulariser": config.regulariser, "nu": config.nu, "comm": comm}
    return rg2_weighted(rows, config.reg, config.alpha, **options)


def by_variant(objective: Objective, config: WeightedConfig) -> LeastSquares:
    """The halves of the objective, or those of the authors' code."""
    if config.variant == "exact":
        return exact(objective)
    return released(objective, config.reg, config.beta)


METHOD = method(
    "rg2-weighted",
    problem,
    WeightedConfig,
    "rg2 with extra weight on the pairs: weighted sweeps from the spectral solution",
    paper="rg2",
    space=SPACE,
    paper_space=PAPER_SPACE,
)
