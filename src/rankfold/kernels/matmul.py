"""Products of dense matrices on a CPU, by the faster of torch's two libraries.

torch multiplies float32 matrices by MKL, which uses no AVX-512 on a processor by AMD. oneDNN does,
and is twice as fast there. torch has it for layers.
"""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_CPU = Path("/proc/cpuinfo")
_COLUMNS = 2048  # of a product at a time: they stay in the cache
_MIN_SIZE = 32  # smaller products mostly rearrange their arguments


def multiply(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """Left @ right, without gradients; written to ``out`` if it is given."""
    if not _suits_onednn(left, right):
        return torch.mm(left, right, out=out)
    if out is None and right.shape[1] <= _COLUMNS:
        return _by_onednn(left, right)
    out = left.new_empty(len(left), right.shape[1]) if out is None else out
    for start in range(0, right.shape[1], _COLUMNS):
        some = slice(start, start + _COLUMNS)
        out[:, some] = _by_onednn(left, right[:, some])
    return out


def _by_onednn(left: Tensor, right: Tensor) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.T, None, "none", [], "")
    return product


def _suits_onednn(left: Tensor, right: Tensor) -> bool:
    is_float = left.dtype == right.dtype == torch.float32 and left.device.type == "cpu"
    large = min(*left.shape, right.shape[1]) >= _MIN_SIZE
    return is_float and large and not left.requires_grad and _onednn_is_faster()


@cache
def _onednn_is_faster() -> bool:
    has_both = torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()
    known = hasattr(torch.ops.mkldnn, "_linear_pointwise")  # it is not documented
    if not has_both or not known or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    return _CPU.exists() and "AuthenticAMD" in _CPU.read_text()
