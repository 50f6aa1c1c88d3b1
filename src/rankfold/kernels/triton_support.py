"""What fused CUDA kernels share: whether a device can run them, and how they come to be.

Only a device with Triton runs them, so nothing here imports it before it is used: kernels are plain
functions of modules that have a name ``tl`` for its language, and ``compiled`` gives them to it.
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

SHARED_BYTES = 163 * 2**10  # a device has to have, as an A100; our tiles take less
MOST_ERROR = 1e-2  # in a trial; one product of tf32 makes errors of 1e-3


def able(device: torch.device) -> bool:
    """Whether a device can run kernels of Triton at all, with tiles as large as ours."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        shared = getattr(properties, "shared_memory_per_block_optin", 0)  # AMD's have no such thing
        return shared >= SHARED_BYTES and find_spec("triton") is not None
    return os.environ.get("TRITON_INTERPRET") == "1"  # Triton's own way to run anywhere, slowly


def error(found: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """The largest relative error of any; NaN where there is one."""
    errors = [(x - y).norm() / y.norm() for x, y in zip(found, expected, strict=True)]
    return float(torch.stack(errors).detach().max())


def is_right(trial: Callable[[], float], instead: str) -> bool:
    """Whether kernels compile and agree with the plain form; a warning tells if not.

    ``trial`` gives the largest relative error, ``instead`` says what goes how without them.
    """
    try:
        apart = trial()
        problem = "" if apart <= MOST_ERROR else f"errors of {apart:.1e}"  # of NaN, too
    except Exception as error:  # whatever a compiler may say
        problem = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    if problem:
        warnings.warn(f"{instead}, not by fused kernels: {problem}", stacklevel=2)
    return not problem


@cache
def compiled(kernel: Callable[..., None]) -> Any:
    triton = import_module("triton")
    kernel.__globals__["tl"] = import_module("triton.language")
    return triton.jit(kernel)


def padded_width(width: int) -> int:
    """A power of two, and at least 16, the smallest product."""
    return max(16, 1 << (width - 1).bit_length())


def precision() -> str:
    """Of products of float32: three of tf32 are about as exact, one is where torch allows it."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def ceil(n: int, size: int) -> int:
    return -(-n // size)
