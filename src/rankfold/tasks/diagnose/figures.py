"""The numbers of a diagnosis, with the intervals of those that are estimates."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from torch import Tensor

from rankfold.tasks.statistics import interval_of, mean_intervals


class Figure(NamedTuple):
    """A number, and the ends of its 95% interval if it is an estimate."""

    value: float
    low: float | None = None
    high: float | None = None

    def each(self, change: Callable[[float], float]) -> "Figure":
        """The value and the ends, changed by a rising function."""
        ends = (None if one is None else rounded(change(one)) for one in (self.low, self.high))
        return Figure(rounded(change(self.value)), *ends)

    def __str__(self) -> str:
        ends = "" if self.low is None else f" ({self.low:.4g} to {self.high:.4g})"
        return f"{self.value:.4g}{ends}"


def rounded(value: float | Tensor) -> float:
    """A value with six significant digits, which keeps files small."""
    return float(f"{float(value):.6g}")


def figure_of(value: float | Tensor, draws: Tensor | None = None) -> Figure:
    """A value and, from its bootstrap samples, its interval."""
    ends = None if draws is None else interval_of(draws.numpy())
    return Figure(rounded(value), *map(rounded, ends or ()))


def mean_of(values: Tensor) -> Figure:
    """The mean of some values and its interval, by a bootstrap over them."""
    mean = rounded(values.double().mean())
    if len(values) < 2:
        return Figure(mean)
    ((low, high),) = mean_intervals(values[None].double().cpu().numpy())
    return Figure(mean, rounded(low), rounded(high))


def spaced(low: float, high: float, n: int) -> list[float]:
    """``n`` numbers from ``low`` to ``high`` at equal ratios."""
    return [float(one) for one in np.geomspace(low, high, n)]
