"""Where ``rankfold tune`` looks for better settings: plain data, an entry per method.

``width`` is in no space: it is what a model costs, and so for a person to say. Neither is what a
method is to aim at (``fpr``), nor what it chooses by itself on validation (all that ``rg2`` has).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from rankfold.errors import UserError


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high``, both among them."""

    low: float
    high: float
    log: bool = False  # as likely between 1 and 10 as between 10 and 100
    whole: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.log and self.low <= 0):
            raise UserError(
                f"there is no range from {self.low} to {self.high}",
                hint="low is at most high, and more than 0 if log",
            )

    def holds(self, value: object) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Choices:
    """One of a few values."""

    values: tuple[bool | int | float | str, ...]

    def holds(self, value: object) -> bool:
        return value in self.values


Space: TypeAlias = Mapping[str, Range | Choices]


def count_points(space: Space) -> int | None:
    """How many settings there are to try; 1 of an empty space, None if they are without number."""
    sizes = [len(where.values) for where in space.values() if isinstance(where, Choices)]
    return prod(sizes) if len(sizes) == len(space) else None


# ---------------------------------------------------------------------------------- usual

_DESCENT: Space = {
    "lr": Range(0.001, 0.1, log=True),
    "weight_decay": Range(1e-7, 1e-3, log=True),
}
_FEW: Space = {**_DESCENT, "negatives": Range(3, 50, log=True, whole=True)}
_POPULAR: Space = {**_DESCENT, "popularity": Choices(("count", "log", "power"))}
_WEIGHTED: Space = {
    "reg": Range(0.001, 0.3, log=True),
    "alpha": Range(0.002, 0.2, log=True),
}
_SAMPLED: Space = {
    "reg": Range(0.001, 0.3, log=True),
    "negatives": Range(100, 10_000, log=True, whole=True),
}
_SIAMESE: Space = {
    "temperature": Range(0.03, 0.15, log=True),
    "thinning": Range(0.0, 0.4),
    "joint_epochs": Range(2, 8, whole=True),
}
_MODULES: Space = {
    "lr": Range(0.001, 0.03, log=True),
    "classifier_lr": Range(5e-5, 5e-3, log=True),
}
_NEIGHBOURS: Space = {
    "neighbours": Range(5, 100, log=True, whole=True),
    "label_weight": Range(0.05, 2.0, log=True),
    "bigrams": Choices((True, False)),
}
_GRADED: Space = {
    "lr": Range(0.0003, 0.01, log=True),
    "weight_decay": Range(1e-6, 0.1, log=True),
    "dropout": Range(0.0, 0.5),
}

SPACES: Mapping[str, Space] = {
    "popularity": {},
    "rg2": {},
    "rg2-plain": {"reg": Range(0.01, 3.0, log=True)},
    "rg2-weighted": _WEIGHTED,
    "rg2-sampled": _SAMPLED,
    "rgx": _WEIGHTED,
    "rgx-sampled": _SAMPLED,
    "wrmf": {"reg": Range(0.1, 100.0, log=True), "alpha": Range(1.0, 200.0, log=True)},
    "ials": {"reg": Range(1e-4, 0.03, log=True), "background": Range(0.001, 0.3, log=True)},
    "puresvd": {},
    "ease": {"reg": Range(10.0, 3000.0, log=True)},
    "softmax": _DESCENT,
    "sparsemax": _DESCENT,
    "full": _DESCENT,
    "bpr": _FEW,
    "bce": _FEW,
    "sampled-softmax": {**_DESCENT, "negatives": Range(100, 5000, log=True, whole=True)},
    "ssl": _DESCENT,
    "ssl-pop": _POPULAR,
    "mns": _POPULAR,
    "g-tower": _DESCENT,
    "bir": _POPULAR,
    "xir": {**_POPULAR, "cache_share": Range(0.0, 1.0)},
    "sampled": _DESCENT,
    "uib": _FEW,
    "sml": {
        "lr": Range(0.0003, 0.03, log=True),
        "negatives": Range(3, 50, log=True, whole=True),
        "candidate_weight": Range(0.01, 1.0, log=True),
        "margin_weight": Range(0.01, 1.0, log=True),
    },
    "rg2-newton": {"reg": Range(0.003, 10.0, log=True)},
    "siamesexml": _SIAMESE,
    "siamesexml-paper": _MODULES,
    "siamesexml-3": _SIAMESE,
    "siamesexml-released": _MODULES,
    "text-neighbours": _NEIGHBOURS,
    "text-linear": {
        **_NEIGHBOURS,
        "lr": Range(0.1, 1.5, log=True),
        "reg": Range(1e-6, 0.01, log=True),
    },
    "cba": {**_GRADED, "classes": Range(0.0, 3.0)},
    "ce": _GRADED,
    "focal": {**_GRADED, "focus": Range(0.5, 5.0)},
    "soft-label": _GRADED,
    "nnrank": _GRADED,
    "fh": _GRADED,
    "fh-auc": _GRADED,
    "ddag": _GRADED,
    "eban": {**_GRADED, "dual_lr": Range(1e-4, 0.1, log=True)},
    "pauc": {
        **_GRADED,
        "temperature": Range(0.1, 10.0, log=True),
        "memory": Range(0.5, 0.99),
    },
}

# ---------------------------------------------------------------------------------- papers

_ADAM: Space = {  # [rg2], appendix B.3: 12 points
    "lr": Choices((0.1, 0.01, 0.001)),
    "weight_decay": Choices((0.0, 1e-6, 1e-5, 1e-4)),
}
_RG = Choices((1.0, 0.5, 0.1, 0.05, 0.01, 0.005, 0.001, 0.0))  # there too

PAPER: Mapping[str, Space] = {
    "rg2-plain": {"reg": _RG},
    "rg2-weighted": {"reg": _RG, "alpha": _RG},
    "rg2-sampled": {"reg": _RG},
    "rgx": {"reg": _RG, "alpha": _RG},  # and beta, which variant=released alone has
    "rgx-sampled": {"reg": _RG},
    "wrmf": {
        "reg": Choices((0.0, 0.1, 0.01, 0.001)),
        "alpha": Choices((0.5, 1.0, 2.0, 4.0, 8.0)),
    },
    "ials": {  # the 16 points that rankfold's benchmarks give to every library
        "reg": Choices((0.0003, 0.001, 0.003, 0.01)),
        "background": Choices((0.003, 0.01, 0.03, 0.1)),
    },
    "softmax": _ADAM,
    "sparsemax": _ADAM,
    "bpr": _ADAM,
    "bce": _ADAM,
    "sampled-softmax": _ADAM,
    "uib": _ADAM,
    "sml": _ADAM,
    "xir": {"cache_share": Choices((0.0, 0.2, 0.5, 0.8, 1.0))},  # [chen2022]
}
