"""Run a function in several processes that are the ranks of one run."""

import io
import os
import socket
import time
import traceback
from collections.abc import Callable, Collection, Iterable
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from rankfold.distributed import connection
from rankfold.types import Comm

TIMEOUT = 180.0  # seconds for all of it
SOME = 4  # with two ranks, one in so many: what three find, whose shares are not alike, says more


def names(fits: Iterable[str], size: int) -> list[str]:
    """Which fits so many ranks make."""
    return list(fits)[:: SOME if size == 2 else 1]


def cases(fits: Iterable[str], among: Collection[str] = ()) -> list[tuple[str, int]]:
    """The fits of two ranks and of three; of some of them, where they are named."""
    every = [(name, size) for size in (2, 3) for name in names(fits, size)]
    return [(name, size) for name, size in every if not among or name in among]


class Failed:
    """What a rank raised, in words."""

    def __init__(self, error: BaseException) -> None:
        self.kind, self.text = type(error).__name__, str(error)
        self.hint = getattr(error, "hint", None)
        self.trace = traceback.format_exc()


def together(size: int, work: Callable[..., Any], *args: Any) -> list[Any]:
    """What ``work(comm, *args)`` returns on each rank; an error of one is raised here."""
    found = outcomes(size, work, *args)
    for rank, result in enumerate(found):
        assert not isinstance(result, Failed), f"rank {rank}: {result.trace}"
    return found


def outcomes(size: int, work: Callable[..., Any], *args: Any) -> list[Any]:
    """The same, but an error of a rank is its result; None for a rank that was killed."""
    context, port = get_context("forkserver"), free_port()
    context.set_forkserver_preload(["torch"])  # imported once, run by none before it is forked
    ends, processes = [], []
    for rank in range(size):
        here, there = context.Pipe(duplex=False)
        how = (there, rank, size, port, work, args)
        process = context.Process(target=_rank, args=how, daemon=True)
        process.start()
        there.close()
        ends.append(here)
        processes.append(process)
    try:
        return _collect(ends)
    finally:
        for process in processes:
            process.join(5)
            process.kill()


def _collect(ends: list[Connection]) -> list[Any]:
    found: list[Any] = [None] * len(ends)
    left, until = dict(zip(ends, range(len(ends)), strict=True)), time.monotonic() + TIMEOUT
    while left:
        ready = wait(list(left), timeout=max(0.0, until - time.monotonic()))
        assert ready, f"ranks {sorted(left.values())} did not end within {TIMEOUT} s"
        for end in ready:
            rank = left.pop(end)  # type: ignore[arg-type]
            try:
                found[rank] = _unpacked(end.recv_bytes())  # type: ignore[union-attr]
            except EOFError:
                found[rank] = None
    return found


def _rank(
    end: Connection, rank: int, size: int, port: int, work: Callable[..., Any], args: tuple[Any]
) -> None:
    torch.set_num_threads(1)
    os.environ |= environment(rank, size, port)
    ours: Comm = connection.connect()
    try:
        result = work(ours, *args)
    except Exception as error:
        connection.abort(error)
        end.send_bytes(_packed(Failed(error)))
        os._exit(0)
    end.send_bytes(_packed(result))
    connection.close()


def _packed(result: Any) -> bytes:
    """Tensors by value: their memory goes with the process."""
    buffer = io.BytesIO()
    torch.save(result, buffer)
    return buffer.getvalue()


def _unpacked(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=False)


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """What a launcher tells a rank."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
