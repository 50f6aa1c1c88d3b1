"""The values of ``rg2``'s settings that are tried on validation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import log2
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rankfold.solvers.path import PathPoint

if TYPE_CHECKING:
    from rankfold.methods.closed_form.rg2 import Config

RANKS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # shares of the width
MIN_RANK = 8  # fewer columns do not tell similar candidates apart, whatever the tail adds
THRESHOLDS = (0.0, 0.5, 0.9)  # shares of the last kept singular value
DISCOUNTS = (-0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)  # exponents of the candidates' counts
TAIL_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
POPULARITIES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 32.0)  # weights, relative as those of the tail
_LEAST = 0.125  # a weight that differs from none by a step: half of the least
T = TypeVar("T")
STARTS = (  # many components and much of the tail, or few and little: for clean and noisy pairs
    (RANKS[5], THRESHOLDS[1], DISCOUNTS[3], TAIL_WEIGHTS[4], POPULARITIES[0]),
    (RANKS[2], THRESHOLDS[1], DISCOUNTS[3], TAIL_WEIGHTS[2], POPULARITIES[0]),
)


class PathGrid(NamedTuple):
    """The values for a decomposition, ascending. A setting that is given has one value."""

    place: int  # of the decomposition
    ranks: Sequence[int]
    thresholds: Sequence[float]
    discounts: Sequence[float]
    weights: Sequence[float]  # of the tail
    popularities: Sequence[float]

    @classmethod
    def of(cls, place: int, largest: int, config: Config) -> PathGrid:
        """The values for a decomposition with ``largest`` components."""
        ranks = [max(min(MIN_RANK, largest), round(share * largest)) for share in RANKS]
        if config.rank is not None:
            ranks = [min(config.rank, largest)]
        weights = (config.tail_weight,) if config.tail_weight is not None else TAIL_WEIGHTS
        return cls(
            place,
            sorted(set(ranks)),
            THRESHOLDS if config.threshold is None else (config.threshold,),
            DISCOUNTS if config.discount is None else (config.discount,),
            weights if config.tail != "none" else (0.0,),
            POPULARITIES if config.popularity is None else (config.popularity,),
        )

    def nearest(self, point: PathPoint) -> PathPoint:
        """The point of the grid with the nearest values: of another place or decomposition."""
        return PathPoint(
            self.place,
            min(self.ranks, key=lambda rank: abs(rank - point.rank)),
            *(
                min(values, key=lambda value, own=own: abs(value - own))  # type: ignore[misc]
                for values, own in zip(self[2:], point[2:], strict=True)
            ),
        )

    def starts(self) -> list[PathPoint]:
        """Where the search begins."""
        return [
            self.nearest(PathPoint(self.place, round(share * self.ranks[-1]), *others))
            for share, *others in STARTS
        ]

    def solutions(self, point: PathPoint) -> list[PathPoint]:
        """The point, with neighbouring ranks and thresholds."""
        return [
            point._replace(rank=rank, threshold=threshold)
            for rank in _near(self.ranks, point.rank)
            for threshold in _near(self.thresholds, point.threshold)
        ]

    def mixes(self, point: PathPoint) -> list[PathPoint]:
        """The point, with neighbouring discounts and weights of the tail, and without a tail."""
        weights = _near(self.weights, point.tail_weight)
        return [
            point._replace(discount=discount, tail_weight=weight)
            for discount, weight in product(
                _near(self.discounts, point.discount), sorted({self.weights[0], *weights})
            )
        ]

    def priors(self, point: PathPoint) -> list[PathPoint]:
        """The point with all weights of popularity."""
        return [point._replace(popularity=weight) for weight in self.popularities]

    def anchors(self) -> list[PathPoint]:
        """Points far apart: what is near the top anywhere is near the top at one of them."""
        start = self.starts()[0]
        factors = start._replace(rank=self.ranks[-1], tail_weight=self.weights[0], popularity=0.0)
        low = factors._replace(rank=self.ranks[len(self.ranks) // 2])
        return sorted({factors, low, factors._replace(tail_weight=self.weights[-1])})


def distance(point: PathPoint, other: PathPoint) -> float:
    """The number of steps between two points: halves or doubles, but for discounts."""

    def doublings(one: float, another: float) -> float:
        return abs(log2((one + _LEAST) / (another + _LEAST)))

    return (
        abs(log2(point.rank / other.rank))
        + abs(point.discount - other.discount) / (DISCOUNTS[1] - DISCOUNTS[0])
        + doublings(point.tail_weight, other.tail_weight)
        + doublings(point.popularity, other.popularity)
    )


def _near(values: Sequence[T], own: T) -> Sequence[T]:
    place = values.index(own)
    return values[max(0, place - 1) : place + 2]
