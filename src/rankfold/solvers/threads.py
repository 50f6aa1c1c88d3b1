"""Work on blocks, as many at once as torch has threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def in_threads(work: Callable[[T], None], blocks: Sequence[T]) -> None:
    """Do the work for every block, several blocks at once, each with one thread.

    Threads that share an operation wait for each other at its end, and a block that stays in a
    cache has short ones. While this works, a thread that somebody else starts has one of torch's.
    """
    n, inference = torch.get_num_threads(), torch.is_inference_mode_enabled()

    def one(block: T) -> None:
        with torch.inference_mode(inference):  # a thread starts without
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
