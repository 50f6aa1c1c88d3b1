"""Adam for large tables: one second moment per row, and work for the batch's rows alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

BETAS = (0.9, 0.99)
SMALLEST = 1e-8
ROUND = 2**30  # what turns and columns are counted by
TURN, COLUMN = 663608941, 561705629  # ROUND / golden ratio; another odd number
CUT = 13  # bits
AT_ONCE = 2**11  # rows, on a CPU: what is made for them stays in its cache


class RowAdam(Optimizer):
    """Adam whose step sizes belong to rows; for sparse gradients.

    For a row with gradient g, t the times it has had one, D its width::

        m = b1 m + (1 - b1) g          v = b2 v + (1 - b2) |g|^2 / D
        row -= lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + 1e-8)

    Half the memory of Adam and no worse on tables: the coordinates of a vector mean nothing each by
    itself. A row without a gradient stays as it is, as with SparseAdam.

    A table in half precision has its m in the same, v and t in float32: there v would vanish, and t
    end at 2048. Its sums are rounded up or down by turns (``halves``): rounded to the nearest, what
    is less than half a step would never be learnt, however often it comes.
    """

    def __init__(self, tables: Iterable[Tensor], lr: float) -> None:
        super().__init__(tables, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Closures are for others: the gradients are there."""
        assert closure is None
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    grad = table.grad.coalesce()
                    rows = grad.indices()[0]
                    _update(table, rows, grad.values(), self._kept(table), group["lr"])

    def _kept(self, table: Tensor) -> dict[str, Tensor]:
        kept: dict[str, Tensor] = self.state[table]
        if not kept:
            kept["momentum"] = torch.zeros_like(table)
            kept["second"] = table.new_zeros(len(table), 1, dtype=_exact(table))
            kept["times"] = torch.zeros_like(kept["second"])
        return kept

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch does, which turns all state into the table's type; but v and t as they are."""
        super().load_state_dict(state_dict)
        tables = [table for group in self.param_groups for table in group["params"]]
        for place, given in state_dict["state"].items():
            table = tables[place]
            for name in ("second", "times"):
                self.state[table][name] = given[name].to(table.device, _exact(table), copy=True)


def _exact(table: Tensor) -> torch.dtype:
    """What is computed with: float32 at least."""
    return torch.promote_types(table.dtype, torch.float32)


def _update(table: Tensor, rows: Tensor, grad: Tensor, kept: dict[str, Tensor], lr: float) -> None:
    exact, (first, second) = _exact(table), BETAS
    lengths = torch.linalg.vector_norm(grad, dim=1, keepdim=True, dtype=exact)
    squares = kept["second"][rows].lerp_(lengths.square_().div_(grad.shape[1]), 1 - second)
    times = kept["times"][rows] + 1
    kept["second"].index_copy_(0, rows, squares)
    kept["times"].index_copy_(0, rows, times)
    sizes = -lr / (1 - first**times) / ((squares / (1 - second**times)).sqrt() + SMALLEST)

    moments, count = kept["momentum"], AT_ONCE if table.device.type == "cpu" else len(rows) or 1
    every = (of.split(count) for of in (rows, grad, sizes, times))
    for some, given, size, turn in zip(*every, strict=True):
        moment = moments.index_select(0, some).to(exact).lerp_(given.to(exact), 1 - first)
        moments.index_copy_(0, some, moment.to(moments.dtype))
        moment.mul_(size)
        if table.dtype == exact:
            table.index_add_(0, some, moment)
        else:
            moment.add_(table.index_select(0, some))
            is_half = table.dtype == torch.float16
            table.index_copy_(0, some, halves(moment, turn) if is_half else moment.to(table.dtype))


def halves(values: Tensor, turns: Tensor) -> Tensor:
    """Values [n, D] in half precision, rounded away from 0 in as many turns as is right on average.

    A half has 13 bits fewer than a float32. To these is added a number below 2^13, then they are
    cut off. The numbers of a place are spread evenly over the turns [n, 1] of its row, by steps of
    the golden ratio, and the places of a row differ: nothing is drawn, nothing has to be kept.
    """
    columns = torch.arange(values.shape[1], device=values.device) * COLUMN % ROUND
    added = (turns.long() * TURN % ROUND).int() + columns.int()
    added.bitwise_and_(ROUND - 1).bitwise_right_shift_(ROUND.bit_length() - 1 - CUT)
    bits = added.add_(values.view(torch.int32)).bitwise_and_(-(2**CUT))
    return bits.view(torch.float32).half()
