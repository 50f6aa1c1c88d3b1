"""Support for Triton kernels: whether a device can run them, and how they are compiled.

Triton is imported only when a kernel is compiled. Kernels are plain functions in modules with a
global ``tl``, which ``compiled`` sets to ``triton.language``. They call ``load_rows`` and
``store_rows``, which they import from here.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

_MIN_SHARED_BYTES = 163 * 2**10  # shared memory of an A100; our tiles take less
_MAX_TRIAL_ERROR = 1e-2  # relative; one tf32 product has errors of 1e-3

tl: Any = None  # triton.language, set by ``compiled``


def runs_triton(device: torch.device) -> bool:
    """Whether a device can run Triton kernels with tiles as large as ours."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        shared = getattr(properties, "shared_memory_per_block_optin", 0)  # absent on AMD devices
        return shared >= _MIN_SHARED_BYTES and find_spec("triton") is not None
    return os.environ.get("TRITON_INTERPRET") == "1"  # Triton's interpreter: any device, slowly


def relative_error(results: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """The largest relative error of several results; NaN if one has a NaN."""
    errors = [(x - y).norm() / y.norm() for x, y in zip(results, expected, strict=True)]
    return float(torch.stack(errors).detach().max())


def passes_trial(trial: Callable[[], float], fallback: str) -> bool:
    """Whether kernels compile and agree with the reference; if not, a warning says why.

    ``trial`` returns the largest relative error; ``fallback`` names the replacement.
    """
    try:
        error = trial()
        problem = "" if error <= _MAX_TRIAL_ERROR else f"relative error {error:.1e}"  # NaN fails
    except Exception as error:  # anything that a compiler may raise
        problem = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    if problem:
        warnings.warn(f"{fallback} instead of fused kernels: {problem}", stacklevel=2)
    return not problem


@cache
def compiled(kernel: Callable[..., None]) -> Any:
    triton, language = import_module("triton"), import_module("triton.language")
    globals()["tl"] = language
    parts = {part.__name__: triton.jit(part) for part in (load_rows, store_rows)}
    kernel.__globals__.update(parts, tl=language)
    return triton.jit(kernel)


def load_rows(
    table: tl.tensor, rows: tl.tensor, n: tl.tensor, D: tl.tensor, WIDTH: tl.constexpr
) -> tl.tensor:
    """Rows of a table [n, D], padded to WIDTH with zeros; zeros for rows from n on."""
    d = tl.arange(0, WIDTH)
    inside = (rows[:, None] < n) & (d[None, :] < D)
    return tl.load(table + rows[:, None].to(tl.int64) * D + d[None, :], mask=inside, other=0.0)


def store_rows(
    table: tl.tensor, rows: tl.tensor, n: tl.tensor, D: tl.tensor, v: tl.tensor, WIDTH: tl.constexpr
) -> None:
    """Write such rows ``v``."""
    d = tl.arange(0, WIDTH)
    inside = (rows[:, None] < n) & (d[None, :] < D)
    tl.store(table + rows[:, None].to(tl.int64) * D + d[None, :], v, mask=inside)


def padded_width(width: int) -> int:
    """The next power of two, at least 16: the smallest product of Triton."""
    return max(16, 1 << (width - 1).bit_length())


def precision() -> str:
    """Of float32 products: three tf32 products are about as exact; one, if torch allows it."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def ceil(n: int, size: int) -> int:
    return -(-n // size)
