"""The numbers of a diagnosis, with the intervals of those that are estimates."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankfold.tasks.significance import interval_of, mean_intervals

_NORMAL = 1.959964  # the 97.5 % quantile


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


def as_figure(value: Figure | Tensor | float) -> Figure:
    """A figure unchanged, the mean of a tensor's values as an estimate, or a number."""
    if isinstance(value, Tensor) and value.ndim:
        return mean_of(value)
    return value if isinstance(value, Figure) else figure_of(value)


def plain(value: Any) -> Any:
    """Measurements as JSON: tensors become lists, numbers have six significant digits."""
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return rounded(value) if isinstance(value, float) else value


def figure_of(value: float | Tensor, draws: Tensor | None = None) -> Figure:
    """A value and, from its bootstrap samples, its interval."""
    ends = None if draws is None else interval_of(draws.numpy())
    return Figure(rounded(value), *map(rounded, ends or ()))


def mean_of(values: Tensor) -> Figure:
    """The mean of some values and its interval, by a bootstrap over them.

    Of zeros and ones, a share, it is Wilson's: no sample of ones alone would ever show a zero.
    """
    values = values.double().cpu()
    mean = rounded(values.mean())
    if len(values) < 2:
        return Figure(mean)
    if bool(((values == 0) | (values == 1)).all()):
        low, high = wilson(float(values.mean()), len(values))
    else:
        ((low, high),) = mean_intervals(values[None].numpy())
    return Figure(mean, rounded(low), rounded(high))


def wilson(share: float, n: int) -> tuple[float, float]:
    """The ends of the 95% score interval of a share in a sample of n."""
    spread = _NORMAL**2 / n
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return min(max(0.0, middle - half), share), max(min(1.0, middle + half), share)


def by_group(values: Tensor, groups: Tensor, n_groups: int) -> Tensor:
    """A value per group whose mean is that of all values, so that intervals are over groups.

    Values of one group, such as the pairs of a query, are similar: an interval over them would be
    too narrow. Groups without values are left out.
    """
    values, groups = values.double().cpu(), groups.long().cpu()
    counts = torch.bincount(groups, minlength=n_groups).double()
    sums = torch.bincount(groups, values, minlength=n_groups)
    there, mean = counts > 0, values.mean()
    return mean + (sums - mean * counts)[there] / counts[there].mean()


def spaced(low: float, high: float, n: int) -> list[float]:
    """``n`` numbers from ``low`` to ``high`` at equal ratios."""
    return [float(one) for one in np.geomspace(low, high, n)]
