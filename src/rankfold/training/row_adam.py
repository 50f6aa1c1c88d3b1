"""Adam for large tables: one second moment per row, and work only for the rows of the batch."""

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

BETAS = (0.9, 0.99)
EPSILON = 1e-8
_DITHER_PERIOD = 2**30  # modulus of the sequence that rounds up or down
_TURN_STEP, _COLUMN_STEP = 663608941, 561705629  # period / golden ratio; another odd number
_DROPPED_BITS = 13  # that float32 has more than float16
ROW_BLOCK = 2**11  # rows, on a CPU: their intermediate results fit its cache


class RowAdam(Optimizer):
    """Adam whose step sizes belong to rows; for sparse gradients.

    For a row with gradient g, t the times it has had one, D its width::

        m = b1 m + (1 - b1) g          v = b2 v + (1 - b2) |g|^2 / D
        row -= lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + 1e-8)

    Half the memory of Adam and no worse on tables, where single coordinates have no meaning. A row
    without a gradient stays as it is, as with SparseAdam.

    A table in half precision has m in half precision, v and t in float32: as halves v would
    underflow and t would end at 2048. Sums are rounded up or down in alternation (``halves``).
    Rounded to the nearest, an update below half a step would be lost however often it comes.
    """

    def __init__(self, tables: Iterable[Tensor], lr: float) -> None:
        _spare_compiler()
        super().__init__(tables, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the rows that have a gradient. Closures are not supported."""
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
        """Load as torch does, which casts all state to the table's type, but keep v and t."""
        super().load_state_dict(state_dict)
        tables = [table for group in self.param_groups for table in group["params"]]
        for place, given in state_dict["state"].items():
            table = tables[place]
            for name in ("second", "times"):
                self.state[table][name] = given[name].to(table.device, _exact(table), copy=True)


def _spare_compiler() -> None:
    """Keep torch's compiler out of a process that compiles nothing.

    The first call of some methods of an optimiser imports it, to except them: seconds of CPU.
    """
    for method in vars(Optimizer).values():
        plain = getattr(method, "__wrapped__", None)
        if plain is not None and "torch._dynamo" not in sys.modules:
            plain.__dynamo_disable = plain  # as that call remembers it


def _exact(table: Tensor) -> torch.dtype:
    """The type to compute in: at least float32."""
    return torch.promote_types(table.dtype, torch.float32)


def _update(table: Tensor, rows: Tensor, grad: Tensor, kept: dict[str, Tensor], lr: float) -> None:
    exact, (first, second) = _exact(table), BETAS
    lengths = torch.linalg.vector_norm(grad, dim=1, keepdim=True, dtype=exact)
    squares = kept["second"][rows].lerp_(lengths.square_().div_(grad.shape[1]), 1 - second)
    times = kept["times"][rows] + 1
    kept["second"].index_copy_(0, rows, squares)
    kept["times"].index_copy_(0, rows, times)
    sizes = -lr / (1 - first**times) / ((squares / (1 - second**times)).sqrt() + EPSILON)

    moments, count = kept["momentum"], ROW_BLOCK if table.device.type == "cpu" else len(rows) or 1
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
    """Values [n, D] in half precision, rounded up or down so that the mean over turns is right.

    A half has 13 bits fewer than a float32. A number below 2^13 is added to these bits, then they
    are dropped. The numbers of an entry are spread evenly over the turns [n, 1] of its row, by
    steps of the golden ratio, and differ between columns. Nothing is drawn and nothing is stored.
    """
    columns = torch.arange(values.shape[1], device=values.device) * _COLUMN_STEP % _DITHER_PERIOD
    added = (turns.long() * _TURN_STEP % _DITHER_PERIOD).int() + columns.int()
    added.bitwise_and_(_DITHER_PERIOD - 1).bitwise_right_shift_(
        _DITHER_PERIOD.bit_length() - 1 - _DROPPED_BITS
    )
    bits = added.add_(values.view(torch.int32)).bitwise_and_(-(2**_DROPPED_BITS))
    return bits.view(torch.float32).half()
