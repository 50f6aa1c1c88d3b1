"""Run a function on several ranks, each in its own process."""

import gc
import io
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest
import torch

from rankfold.distributed import connection
from rankfold.types import Comm

Ranks = dict[int, list[dict[str, Any]]]  # results of each rank, by the number of ranks
TIMEOUT = 180.0  # seconds, for all ranks
PRELOADED = ["torch", "torch._dynamo", "pytest", "rankfold.methods", "rankfold.tasks.fit"]
"""Imported once for all ranks (optimisers import torch._dynamo); nothing runs before the fork."""
STRIDE_OF_TWO = 4  # two ranks make every fourth fit; three ranks, with unequal shares, test more


def fits_of(fits: Iterable[str], size: int) -> list[str]:
    """The fits that ``size`` ranks make."""
    return list(fits)[:: STRIDE_OF_TWO if size == 2 else 1]


def cases(fits: Iterable[str], among: Collection[str] = ()) -> list[tuple[str, int]]:
    """The fits of two and of three ranks; only those in ``among`` if it is given."""
    every = [(name, size) for size in (2, 3) for name in fits_of(fits, size)]
    return [(name, size) for name, size in every if not among or name in among]


def check_equals_one_process(ranks: Ranks, size: int, name: str) -> None:
    """Every rank has the loss and the state of one process, and exactly the state of rank 0."""
    expected = ranks[1][0][name]
    for rank in ranks[size]:
        result = rank[name]
        assert result["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        assert result["state"].keys() == expected["state"].keys()
        for key, value in expected["state"].items():
            assert torch.equal(result["state"][key], ranks[size][0][name]["state"][key]), key
            torch.testing.assert_close(result["state"][key], value, rtol=1e-5, atol=1e-5)


def send_interrupt() -> None:
    """Ctrl-C to this process."""
    os.kill(os.getpid(), signal.SIGINT)


def interrupted(names: Iterable[str], fit: Callable[[str], object]) -> list[str]:
    """Call ``fit`` with each name; returns those whose fit ended by Ctrl-C."""
    ended = []
    for name in names:
        try:
            fit(name)
        except KeyboardInterrupt:
            ended.append(name)
    return ended


def numbers(document: Any) -> Iterator[float]:
    """All numbers in a JSON document, in order."""
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        for one in document:
            yield from numbers(one)
    elif isinstance(document, int | float):
        yield document


class Failed:
    """The error that a rank raised, as text."""

    def __init__(self, error: BaseException) -> None:
        self.kind, self.text = type(error).__name__, str(error)
        self.hint = getattr(error, "hint", None)
        self.trace = traceback.format_exc()


def run_ranks(size: int, work: Callable[..., Any], *args: Any) -> list[Any]:
    """The results of ``work(comm, *args)`` on each rank; an error of a rank fails here."""
    results = outcomes(size, work, *args)
    for rank, result in enumerate(results):
        assert not isinstance(result, Failed), f"rank {rank}: {result.trace}"
    return results


def outcomes(size: int, work: Callable[..., Any], *args: Any) -> list[Any]:
    """Like ``run_ranks``, but the result of a rank may be its error, or None if it was killed."""
    context, port = get_context("forkserver"), free_port()
    context.set_forkserver_preload(PRELOADED)
    ends, processes = [], []
    for rank in range(size):
        here, there = context.Pipe(duplex=False)
        arguments = (there, rank, size, port, work, args)
        process = context.Process(target=_rank, args=arguments, daemon=True)
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
    results: list[Any] = [None] * len(ends)
    left, until = dict(zip(ends, range(len(ends)), strict=True)), time.monotonic() + TIMEOUT
    while left:
        ready = wait(list(left), timeout=max(0.0, until - time.monotonic()))
        assert ready, f"ranks {sorted(left.values())} did not finish within {TIMEOUT} s"
        for end in ready:
            rank = left.pop(end)  # type: ignore[arg-type]
            try:
                results[rank] = _unpacked(end.recv_bytes())  # type: ignore[union-attr]
            except EOFError:
                results[rank] = None
    return results


def _rank(
    end: Connection, rank: int, size: int, port: int, work: Callable[..., Any], args: tuple[Any]
) -> None:
    gc.freeze()  # what was imported before the fork
    torch.set_num_threads(1)
    os.environ |= environment(rank, size, port)
    comm: Comm = connection.connect()
    try:
        result = work(comm, *args)
    except Exception as error:
        connection.abort(error)
        end.send_bytes(_packed(Failed(error)))
        os._exit(0)
    end.send_bytes(_packed(result))
    connection.close()


def _packed(result: Any) -> bytes:
    """Tensors are copied: their memory ends with the process."""
    buffer = io.BytesIO()
    torch.save(result, buffer)
    return buffer.getvalue()


def _unpacked(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=False)


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """The variables that a launcher sets for a rank."""
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
