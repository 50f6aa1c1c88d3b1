"""The cost of errors: of false alarms and misses, by the probability at which a row passes."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.errors import UserError

_POINTS = 20  # of a cost curve, besides its start


class Costs(NamedTuple):
    """What an error costs."""

    false_alarm: float  # a negative row passes
    miss: float  # a positive row does not pass

    @property
    def cut(self) -> float:
        """The probability above which it is cheaper that a row passes."""
        return self.false_alarm / (self.false_alarm + self.miss)


class ExpectedCost(NamedTuple):
    """Mean costs per row."""

    cost: float  # if rows pass whose probability is above the cut
    none: float  # if no row passes
    all: float  # if all rows pass


def parse_costs(given: str | Sequence[float]) -> Costs:
    """``"1,20"``: the cost of a false alarm and of a miss."""
    try:
        parts = [float(x) for x in (given.split(",") if isinstance(given, str) else given)]
    except ValueError:
        parts = []
    if len(parts) != 2 or not all(0 < part < float("inf") for part in parts):
        raise UserError(
            f"costs must be two numbers above 0, got {given!r}",
            hint="write the cost of a false alarm, then that of a miss: 1,20",
        )
    return Costs(*parts)


def expected_cost(probabilities: Tensor, positive: Tensor, costs: Costs) -> ExpectedCost:
    """The mean cost per row if rows pass whose probability is above the cheapest cut.

    With n rows::

        cost = (false_alarm #{negative, p > cut} + miss #{positive, p <= cut}) / n

    If probabilities are right, no other rule by the same scores is cheaper.
    """
    passes, n = probabilities > costs.cut, max(1, len(positive))
    alarms, misses = int((passes & ~positive).sum()), int((~passes & positive).sum())
    n_positive = int(positive.sum())
    return ExpectedCost(
        (costs.false_alarm * alarms + costs.miss * misses) / n,
        costs.miss * n_positive / n,
        costs.false_alarm * (len(positive) - n_positive) / n,
    )


def cost_curve(probabilities: Tensor, positive: Tensor) -> list[tuple[float, ExpectedCost]]:
    """Expected costs by the share of a miss in the cost of one false alarm and one miss."""
    shares = torch.linspace(0, 1, _POINTS + 1, dtype=torch.float64)[1:-1].tolist()
    return [
        (share, expected_cost(probabilities, positive, Costs(1 - share, share))) for share in shares
    ]
