"""RG2 and RGx with extra weight on the pairs, and those of the sampled softmax; [rg2].

RGx has the interaction term of the softmax, exactly. The sampled softmax enters in expectation over
the negatives.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from rankfold.config import setting
from rankfold.errors import UserError
from rankfold.methods.als.alternating import (
    RG_GRID,
    AlsConfig,
    LeastSquares,
    Start,
    exact,
    method,
    released,
)
from rankfold.methods.noise_defaults import Noise
from rankfold.objectives.quadratic import Objective
from rankfold.objectives.rg import rg2_sampled, rg2_weighted, rgx, rgx_sampled
from rankfold.types import Comm, Interactions, Range

_WEIGHTED: dict[str, Any] = {
    "paper": "rg2",
    "space": {"reg": Range(0.001, 1.0, log=True), "alpha": Range(0.002, 0.5, log=True)},
    "paper_space": {"reg": RG_GRID, "alpha": RG_GRID},  # and beta, only for variant=released
}
_SAMPLED: dict[str, Any] = {
    "paper": "rg2",
    "space": {
        "reg": Range(0.001, 0.3, log=True),
        "negatives": Range(100, 10_000, log=True, whole=True),
    },
    "paper_space": {"reg": RG_GRID},
}


class _WeightedConfig(AlsConfig):
    """Settings of ``rg2-weighted``. The authors' code uses ``beta`` in RGx alone."""

    alpha: float | None = setting(
        None, at_least=0, help="extra weight of a pair; none: by noise and validation"
    )
    regulariser: Literal["frequency", "weighted", "plain", "matrix"] = setting(
        "frequency", help="how the regularisation grows with the pairs of a row"
    )
    nu: float = setting(1.0, at_least=0, help="power of the frequency regulariser")
    start: Start = "spectral"
    variant: Literal["exact", "released"] = setting("exact", help="released: the authors' code")
    beta: float = setting(0.1, at_least=0, at_most=1, help="released rgx: reduces the Gram matrix")
    used_with: ClassVar = {"nu": ("regulariser", "frequency"), "beta": None}
    OPEN: ClassVar = ("reg", "alpha")

    def suited(self, noise: Noise) -> Self:
        """With an alpha by which all pairs have ``ratio`` times the weight of the chosen ones."""
        alpha = 0.5 / noise.ratio if self.alpha is None else self.alpha
        return replace(self, alpha=alpha, reg=noise.reg if self.reg is None else self.reg)


class _RgxConfig(_WeightedConfig):
    steps: int = 3
    used_with: ClassVar = {"beta": ("variant", "released")}


class _SampledConfig(AlsConfig):
    """Settings of ``rg2-sampled`` and ``rgx-sampled``."""

    reg: float = setting(0.03, at_least=0, help="regularisation (lambda)")
    negatives: int = setting(1000, at_least=1, help="negatives that are sampled for a pair")
    start: Start = "spectral"


def _weighted(rows: Interactions, config: _WeightedConfig, comm: Comm) -> Objective:
    """The objective of weighted RG2."""
    assert config.reg is not None
    assert config.alpha is not None
    options: dict[str, Any] = {"regulariser": config.regulariser, "nu": config.nu, "comm": comm}
    return rg2_weighted(rows, config.reg, config.alpha, **options)


def _by_variant(objective: Objective, config: _WeightedConfig) -> LeastSquares:
    """The halves of the objective, or those of the authors' code."""
    if config.variant == "exact":
        return exact(objective)
    assert config.reg is not None
    return released(objective, config.reg, config.beta)


def _rgx_sampled(rows: Interactions, config: _SampledConfig, comm: Comm) -> LeastSquares:
    if rows.grades is not None:
        raise UserError(
            "rgx-sampled does not support grades", hint="leave weights=none, or fit rg2-sampled"
        )
    return exact(rgx_sampled(rows, config.reg, config.negatives, comm))


RG2_WEIGHTED = method(
    "rg2-weighted",
    lambda rows, config, comm: _by_variant(_weighted(rows, config, comm), config),
    _WeightedConfig,
    "rg2 with extra weight on the pairs: weighted sweeps from the spectral solution",
    **_WEIGHTED,
)
RGX = method(
    "rgx",
    lambda rows, config, comm: _by_variant(rgx(_weighted(rows, config, comm)), config),
    _RgxConfig,
    "softmax to second order with its interaction term, exactly, extra weight on the pairs",
    **_WEIGHTED,
)
RG2_SAMPLED = method(
    "rg2-sampled",
    lambda rows, config, comm: exact(rg2_sampled(rows, config.reg, config.negatives, comm)),
    _SampledConfig,
    "rg2 of the sampled softmax, in expectation over the negatives",
    **_SAMPLED,
)
RGX_SAMPLED = method(
    "rgx-sampled",
    _rgx_sampled,
    _SampledConfig,
    "rgx of the sampled softmax, in expectation over the negatives",
    **_SAMPLED,
)
