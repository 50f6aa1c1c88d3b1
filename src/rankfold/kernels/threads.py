"""Work on blocks in threads of our own, each with one torch thread.

The threads of torch wait for each other at the end of every operation, and spin meanwhile. Beside
other programs one of them is always suspended, and the others wait for it thousands of times. Here
threads meet once per product, and a suspended one leaves the rest of the blocks to the others. The
division into blocks depends only on sizes, so that results do not depend on the number of threads.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from rankfold.cores import usable_cores

_BLOCKS = 64  # of a product, at most
_MIN_ENTRIES = 2**17  # of a block of rows: shorter work is not worth a thread
T = TypeVar("T")


def in_threads(work: Callable[[T], None], blocks: Sequence[T]) -> None:
    """Do the work for every block, several blocks at once, each with one torch thread."""
    n, inference = torch.get_num_threads(), torch.is_inference_mode_enabled()

    def one(block: T) -> None:
        if torch.get_num_threads() != 1:  # torch sets it when a thread first computes
            torch.set_num_threads(1)
        with torch.inference_mode(inference):  # threads do not inherit it
            work(block)

    if n == 1 or len(blocks) < 2 or hasattr(_worker, "is_one"):
        for block in blocks:
            work(block)
        return
    futures: list[Future[None]] = []
    try:
        futures = [_pool(n).submit(one, block) for block in blocks]
        for future in futures:
            future.result()
    finally:
        for future in futures:
            future.cancel()
        wait(futures)  # after an error or Ctrl-C, too: the work writes into shared tensors
        torch.set_num_threads(n)  # threads of the pool have set it to 1


@cache
def _pool(n: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n, initializer=setattr, initargs=(_worker, "is_one", True))


_worker = threading.local()  # a thread of the pool does not wait for others: it works itself

os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has no threads but its first


def limit_threads() -> None:
    """Let torch use no more threads than the process may use cores, unless a number was given."""
    if "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > usable_cores():
        torch.set_num_threads(usable_cores())


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
