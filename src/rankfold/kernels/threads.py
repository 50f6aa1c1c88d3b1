"""Work on blocks in threads of our own, each with one torch thread.

The threads of torch wait for each other at the end of every operation, and spin meanwhile. Beside
other programs one of them is always suspended, and the others wait for it thousands of times. Here
threads meet once per product, and a suspended one leaves the rest of the blocks to the others. The
division into blocks depends only on sizes, so that results do not depend on the number of threads.
"""

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

_BLOCKS = 64  # of a product, at most
_MIN_ENTRIES = 2**17  # of a block of rows: shorter work stays in one thread
_CGROUP = Path("/sys/fs/cgroup")
T = TypeVar("T")


class _Here(threading.local):
    """The state of this thread."""

    threads = 0  # of ``limited_threads``; 0: as many as torch has
    is_busy = False  # with a block: it does not wait for others, it works itself

    def __init__(self) -> None:
        self.scratch: dict[str, Tensor] = {}  # memory that is kept from block to block


_here = _Here()


@contextmanager
def limited_threads(*, own: bool) -> Iterator[None]:
    """Use no more threads than the process may use cores, unless a number was given.

    With ``own`` torch uses one thread, and ``in_threads`` as many as torch would.
    """
    before, outer = torch.get_num_threads(), _here.threads
    n = before if "OMP_NUM_THREADS" in os.environ else min(before, usable_cores())
    _here.threads = outer or (n if own else 0)
    torch.set_num_threads(1 if _here.threads else n)
    try:
        yield
    finally:
        _here.threads = outer
        torch.set_num_threads(before)


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """The cores of this process's affinity, within its container's quota; 1.5 count as 2."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(cores, _quota(cgroup)))


def _quota(cgroup: Path) -> int:
    """The quota of cgroup 2 (``cpu.max``) or 1, rounded up; a large number without one."""
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            files = (cgroup / "cpu" / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
            quota, period = (file.read_text().strip() for file in files)
        return math.ceil(int(quota) / int(period)) if int(quota) > 0 else 10**6
    except (OSError, ValueError):  # no cgroup, or "max"
        return 10**6


def n_threads() -> int:
    """How many threads ``in_threads`` uses here: 1 inside a block."""
    return 1 if _here.is_busy else _here.threads or torch.get_num_threads()


def in_threads(work: Callable[[T], None], blocks: Sequence[T]) -> None:
    """Do the work for every block, several blocks at once, each with one torch thread.

    The calling thread works, too: it never waits for a thread that has not begun.
    """
    n = n_threads()
    if _here.is_busy or len(blocks) < 2:
        for block in blocks:
            work(block)
        return
    inference, left = torch.is_inference_mode_enabled(), iter(list(blocks))

    def take_blocks() -> None:
        if torch.get_num_threads() != 1:  # a new thread has torch's default
            torch.set_num_threads(1)
        _here.is_busy = True
        try:
            with torch.inference_mode(inference):  # threads do not inherit it
                for block in left:
                    work(block)
        finally:
            deque(left, maxlen=0)  # after an error or Ctrl-C nothing is left to others
            _here.is_busy = False
            _here.scratch.clear()

    before = torch.get_num_threads()
    others = [_pool(n - 1).submit(take_blocks) for _ in range(min(n, len(blocks)) - 1)]
    try:
        take_blocks()
    finally:
        begun = [other for other in others if not other.cancel()]
        wait(begun)  # after an error, too: the work writes into shared tensors
        if before != 1:
            torch.set_num_threads(before)
    for other in begun:
        other.result()


def scratch(name: str, shape: tuple[int, int], like: Tensor) -> Tensor:
    """Uninitialised memory of the type of ``like``, for one block of ``in_threads`` at a time.

    The thread's next block gets the same memory: clearing new pages takes longer than many a
    product. Outside of blocks it is new memory.
    """
    if not _here.is_busy:
        return like.new_empty(shape)
    kept, size = _here.scratch.get(name), shape[0] * shape[1]
    if kept is None or len(kept) < size or kept.dtype != like.dtype:
        kept = _here.scratch[name] = like.new_empty(size)
    return kept[:size].view(shape)


@cache
def _pool(n: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n)


os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has no threads but its first


def row_runs(n_rows: int, width: int) -> list[slice]:
    """Runs of rows of a table to work on at a time."""
    step = max(1, -(-n_rows // _BLOCKS), _MIN_ENTRIES // max(1, width))
    return [slice(first, min(first + step, n_rows)) for first in range(0, max(1, n_rows), step)]


def product(left: Tensor, right: Tensor, out: Tensor | None = None, alpha: float = 1.0) -> Tensor:
    """Left @ right, or ``out + alpha left @ right`` in place; left is [n, K] and much longer."""
    if left.device.type != "cpu":
        return left @ right if out is None else out.addmm_(left, right, alpha=alpha)
    beta = 0 if out is None else 1
    result = left.new_empty(len(left), right.shape[1]) if out is None else out

    def multiply(run: slice) -> None:
        result[run].addmm_(left[run], right, beta=beta, alpha=alpha)

    in_threads(multiply, row_runs(len(left), left.shape[1] + right.shape[1]))
    return result


def inner(left: Tensor, right: Tensor) -> Tensor:
    """left^T right, summed over runs of their rows."""
    if left.device.type != "cpu":
        return left.T @ right
    return summed(
        lambda run: left[run].T @ right[run], row_runs(len(left), left.shape[1] + right.shape[1])
    ).to(left.dtype)


def summed(term: Callable[[T], Tensor], blocks: Sequence[T]) -> Tensor:
    """The sum of a term over blocks, in their order."""
    terms: dict[int, Tensor] = {}

    def work(numbered: tuple[int, T]) -> None:
        terms[numbered[0]] = term(numbered[1])

    in_threads(work, list(enumerate(blocks)))
    return torch.stack([terms[number] for number in range(len(blocks))]).sum(dim=0)
