"""WRMF [hu2008] and iALS [rendle2022]: a square for each pair and a small one for every other."""

from dataclasses import replace
from typing import ClassVar, Self

from rankfold.config import setting
from rankfold.methods.als.alternating import AlsConfig, exact, method
from rankfold.methods.noise_defaults import Noise
from rankfold.objectives.implicit import ials, wrmf
from rankfold.types import Choices, Range

_MAX_BACKGROUND = 0.5


class _WrmfConfig(AlsConfig):
    alpha: float | None = setting(
        None, at_least=0, help="confidence of a pair is 1 + alpha; none: by noise and validation"
    )
    OPEN: ClassVar = ("reg", "alpha")
    nu: float = setting(0.0, at_least=0, help="power of row weights in the regulariser; 0: plain")

    def suited(self, noise: Noise) -> Self:
        alpha = 1 / _background(noise) if self.alpha is None else self.alpha
        reg = _reg(noise, 1 / (1 + alpha), self.nu) * (1 + alpha) ** (1 - self.nu)
        return replace(self, alpha=alpha, reg=reg if self.reg is None else self.reg)


class _IalsConfig(AlsConfig):
    background: float | None = setting(
        None,
        at_least=0,
        help="weight of a pair that was not chosen (a0); none: by noise and validation",
    )
    OPEN: ClassVar = ("reg", "background")
    nu: float = setting(1.0, at_least=0, help="power of row weights in the regulariser; 0: plain")

    def suited(self, noise: Noise) -> Self:
        background = _background(noise) if self.background is None else self.background
        reg = _reg(noise, background, self.nu) if self.reg is None else self.reg
        return replace(self, background=background, reg=reg)


def _background(noise: Noise) -> float:
    """The a0 at which the squares of all pairs have ``ratio`` times the weight of the chosen."""
    return min(_MAX_BACKGROUND, noise.ratio * noise.density)


def _reg(noise: Noise, background: float, nu: float) -> float:
    """The regularisation of ``ials``, of the same strength for a mean row whatever nu is."""
    weight = 1 + background / noise.density  # of a row, over its size
    row = weight * noise.n_pairs / (noise.n_queries * noise.n_candidates) ** 0.5
    return noise.reg / weight * float(row ** (1 - nu))


WRMF = method(
    "wrmf",
    lambda rows, config, comm: exact(wrmf(rows, config.reg, config.alpha, config.nu, comm)),
    _WrmfConfig,
    "weighted matrix factorisation with confidence 1 + alpha, by alternating least squares",
    paper="hu2008",
    space={"reg": Range(0.1, 10_000.0, log=True), "alpha": Range(1.0, 3000.0, log=True)},
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
    space={"reg": Range(3e-4, 0.1, log=True), "background": Range(3e-4, 1.0, log=True)},
    paper_space={  # the 16 points that rankfold's benchmarks give to every library
        "reg": Choices((0.0003, 0.001, 0.003, 0.01)),
        "background": Choices((0.003, 0.01, 0.03, 0.1)),
    },
)
