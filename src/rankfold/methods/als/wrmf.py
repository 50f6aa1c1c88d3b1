"""WRMF: weight 1 + alpha for a pair and 1 for every other; [hu2008]."""

from dataclasses import dataclass

from rankfold.config import setting
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.methods.als.alternating import AlsConfig, LeastSquares, exact, method
from rankfold.objectives.implicit import wrmf
from rankfold.types import Choices, Comm, Interactions, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(AlsConfig):
    """Settings of ``wrmf``."""

    reg: float = setting(1.0, at_least=0, help="regularisation (lambda)")
    alpha: float = setting(40.0, at_least=0, help="confidence of a pair is 1 + alpha")
    nu: float = setting(
        0.0, at_least=0, help="power of a row's weight in the regularisation; 0: plain"
    )


def problem(rows: Interactions, config: Config, comm: Comm = SINGLE_PROCESS) -> LeastSquares:
    return exact(wrmf(rows, config.reg, config.alpha, config.nu, comm))


METHOD = method(
    "wrmf",
    problem,
    Config,
    "weighted matrix factorisation with confidence 1 + alpha, by alternating least squares",
    paper="hu2008",
    space={"reg": Range(0.1, 100.0, log=True), "alpha": Range(1.0, 200.0, log=True)},
    paper_space={  # [rg2], appendix B.3
        "reg": Choices((0.0, 0.1, 0.01, 0.001)),
        "alpha": Choices((0.5, 1.0, 2.0, 4.0, 8.0)),
    },
)
