"""WRMF [hu2008] and iALS [rendle2022]: a square for each pair and a small one for every other."""

from dataclasses import dataclass

from rankfold.config import setting
from rankfold.methods.als.alternating import AlsConfig, exact, method
from rankfold.objectives.implicit import ials, wrmf
from rankfold.types import Choices, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrmfConfig(AlsConfig):
    """Settings of ``wrmf``."""

    reg: float = setting(1.0, at_least=0, help="regularisation (lambda)")
    alpha: float = setting(40.0, at_least=0, help="confidence of a pair is 1 + alpha")
    nu: float = setting(0.0, at_least=0, help="power of row weights in the regulariser; 0: plain")


@dataclass(frozen=True, slots=True, kw_only=True)
class _IalsConfig(AlsConfig):
    """Settings of ``ials``."""

    reg: float = setting(0.003, at_least=0, help="regularisation (lambda)")
    background: float = setting(0.03, at_least=0, help="weight of a pair that was not chosen (a0)")
    nu: float = setting(1.0, at_least=0, help="power of row weights in the regulariser; 0: plain")


WRMF = method(
    "wrmf",
    lambda rows, config, comm: exact(wrmf(rows, config.reg, config.alpha, config.nu, comm)),
    _WrmfConfig,
    "weighted matrix factorisation with confidence 1 + alpha, by alternating least squares",
    paper="hu2008",
    space={"reg": Range(0.1, 100.0, log=True), "alpha": Range(1.0, 200.0, log=True)},
    paper_space={  # [rg2], appendix B.3
        "reg": Choices((0.0, 0.1, 0.01, 0.001)),
        "alpha": Choices((0.5, 1.0, 2.0, 4.0, 8.0)),
    },
)
IALS = method(
    "ials",
    lambda rows, config, comm: exact(ials(rows, config.reg, config.background, config.nu, comm)),
    _IalsConfig,
    "a square for each pair and a small one for all others, by alternating least squares",
    paper="rendle2022",
    space={"reg": Range(1e-4, 0.03, log=True), "background": Range(0.001, 0.3, log=True)},
    paper_space={  # the 16 points that rankfold's benchmarks give to every library
        "reg": Choices((0.0003, 0.001, 0.003, 0.01)),
        "background": Choices((0.003, 0.01, 0.03, 0.1)),
    },
)
