"""Process blocks in parallel, one torch thread each."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def in_threads(work: Callable[[T], None], blocks: Sequence[T]) -> None:
    """Do the work for every block, several blocks at once, each with one thread.

    Threads that share an operation wait for each other at its end, which costs most for the short
    operations on a block that fits a cache. Meanwhile a thread started elsewhere also has one torch
    thread.
    """
    n, inference = torch.get_num_threads(), torch.is_inference_mode_enabled()

    def one(block: T) -> None:
        with torch.inference_mode(inference):  # new threads do not inherit it
            work(block)

    if n == 1 or len(blocks) < 2:
        for block in blocks:
            work(block)
        return
    try:
        with ThreadPoolExecutor(n, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for _ in pool.map(one, blocks):
                pass
    finally:
        torch.set_num_threads(n)
