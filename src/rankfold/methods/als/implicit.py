"""WRMF [hu2008] and iALS [rendle2022]: a square for each pair and a small one for every other."""

from dataclasses import dataclass, replace
from typing import Self

from rankfold.config import setting
from rankfold.distributed.collectives import sum_over_ranks
from rankfold.methods.als.alternating import AlsConfig, exact, method
from rankfold.objectives.implicit import ials, wrmf
from rankfold.types import Choices, Comm, Interactions, Range

# Defaults, see docs/decisions/0027-defaults-from-the-data.md
_REG = 0.01
_PLAIN_REG = 0.02  # of wrmf, times the square root of queries x candidates
_RATIO = 10.0  # of the weight of all pairs to that of the chosen ones
_MAX_BACKGROUND = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrmfConfig(AlsConfig):
    """Settings of ``wrmf``."""

    reg: float | None = setting(
        None, at_least=0, help="regularisation (lambda); none: 0.02 sqrt(queries x candidates)"
    )
    alpha: float | None = setting(
        None, at_least=0, help="confidence of a pair is 1 + alpha; none: 1 over 10 times density"
    )
    nu: float = setting(0.0, at_least=0, help="power of row weights in the regulariser; 0: plain")

    def for_data(self, rows: Interactions, comm: Comm) -> Self:
        """With the weights and, for nu = 0, about the regularisation of ``ials``, if open."""
        size, background = _size(rows, comm), _background(rows, comm)
        reg = _REG if self.nu > 0 else _PLAIN_REG * size**0.5
        return replace(
            self,
            reg=reg if self.reg is None else self.reg,
            alpha=1 / background if self.alpha is None else self.alpha,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _IalsConfig(AlsConfig):
    """Settings of ``ials``."""

    reg: float = setting(_REG, at_least=0, help="regularisation (lambda)")
    background: float | None = setting(
        None, at_least=0, help="weight of a pair that was not chosen (a0); none: 10 times density"
    )
    nu: float = setting(1.0, at_least=0, help="power of row weights in the regulariser; 0: plain")

    def for_data(self, rows: Interactions, comm: Comm) -> Self:
        if self.background is not None:
            return self
        return replace(self, background=_background(rows, comm))


def _background(rows: Interactions, comm: Comm) -> float:
    """The a0 at which the squares of all pairs have ``_RATIO`` times the weight of the chosen ones.

    That is ``_RATIO`` times the density, at most ``_MAX_BACKGROUND``.
    """
    n_pairs = max(1.0, sum_over_ranks(rows.n_pairs, comm))
    return min(_MAX_BACKGROUND, _RATIO * n_pairs / max(1.0, _size(rows, comm)))


def _size(rows: Interactions, comm: Comm) -> float:
    """The number of all pairs; queries without a chosen one do not count."""
    return float(sum_over_ranks(int((rows.counts() > 0).sum()), comm)) * rows.n_candidates


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
