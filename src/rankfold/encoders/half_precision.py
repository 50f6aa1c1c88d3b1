"""Tables in half precision: read as float32, with gradients that do not underflow."""

from typing import Any

import torch
from torch import Tensor


class _ToFloat32(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, halves: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return halves.float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        most = torch.finfo(torch.float16).max  # vectors near 0 may have slopes that explode
        return (grads[0] * ctx.scale).clamp_(-most, most).half(), None


def to_float32(halves: Tensor, scale: float) -> Tensor:
    """float16 values as float32; their gradients are multiplied by ``scale``.

    Gradients of a mean over a batch would underflow in float16. ``RowAdam`` uses their directions,
    and their lengths relative to earlier ones: the factor cancels.
    """
    values: Tensor = _ToFloat32.apply(halves, scale)  # type: ignore[no-untyped-call]
    return values
