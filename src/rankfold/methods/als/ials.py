"""iALS: a square for each pair and a small one for every other; [rendle2022]."""

from dataclasses import dataclass

from rankfold.config import setting
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.methods.als.alternating import AlsConfig, LeastSquares, exact, method
from rankfold.objectives.implicit import ials
from rankfold.types import Choices, Comm, Interactions, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(AlsConfig):
    """Settings of ``ials``."""

    reg: float = setting(0.003, at_least=0, help="regularisation (lambda)")
    background: float = setting(0.03, at_least=0, help="weight of a pair that was not chosen (a0)")
    nu: float = setting(
        1.0, at_least=0, help="power of a row's weight in the regularisation; 0: plain"
    )


def problem(rows: Interactions, config: Config, comm: Comm = SINGLE_PROCESS) -> LeastSquares:
    return exact(ials(rows, config.reg, config.background, config.nu, comm))


METHOD = method(
    "ials",
    problem,
    Config,
    "a square for each pair and a small one for all others, by alternating least squares",
    paper="rendle2022",
    space={"reg": Range(1e-4, 0.03, log=True), "background": Range(0.001, 0.3, log=True)},
    paper_space={  # the 16 points that rankfold's benchmarks give to every library
        "reg": Choices((0.0003, 0.001, 0.003, 0.01)),
        "background": Choices((0.003, 0.01, 0.03, 0.1)),
    },
)
