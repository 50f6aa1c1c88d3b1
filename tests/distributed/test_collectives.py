"""Collectives of real processes equal what one process computes."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Failed, outcomes, run_ranks
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS, row_offset
from rankfold.distributed.connection import connect
from rankfold.errors import UserError
from rankfold.solvers.shards import return_freed_memory
from rankfold.types import Comm


def rows(rank: int, n: int) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(rank))


def call_all(comm: Comm) -> dict[str, Any]:
    before = comm.sent
    results: dict[str, Any] = {
        "sum": comm.sum(rows(comm.rank, 7)),
        "whole": comm.sum(torch.tensor(2**40 + comm.rank)),
        "gather": comm.gather(rows(comm.rank, 2 + 3 * comm.rank)),
        "empty": comm.gather(torch.zeros(0, 2)),
        "scatter": comm.scatter_sum(rows(comm.rank, 7)),
        "transposed": comm.sum(rows(comm.rank, 7).T),
        "broadcast": comm.broadcast(rows(comm.rank, 4), source=1),
        "share": torch.tensor(comm.share(7)),
        "offset": torch.tensor(row_offset(5 - comm.rank, comm)),
    }
    comm.barrier()
    comm.agree({"seed": 1, "config": {"b": [1, 2], "a": None}})
    results |= {"collect": comm.collect(rows(comm.rank, 2 + 3 * comm.rank))}
    results |= {"sent": torch.tensor(comm.sent - before)}
    return {**results, "texts": comm.texts("é" * comm.rank), "difference": difference(comm)}


def difference(comm: Comm) -> tuple[str, str]:
    try:
        comm.agree({"seed": 3, "torch": "2.0" if comm.rank == 1 else "2.1"})
    except UserError as error:
        return str(error), error.hint
    return "", ""


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_collectives(size: int) -> None:
    results = run_ranks(size, call_all)
    total = sum(rows(rank, 7) for rank in range(size))
    assert isinstance(total, Tensor)
    for rank, one in enumerate(results):
        torch.testing.assert_close(one["sum"], total)
        assert torch.equal(one["sum"], results[0]["sum"])  # bit-identical
        torch.testing.assert_close(one["transposed"], total.T)
        assert int(one["whole"]) == sum(2**40 + r for r in range(size))
        assert torch.equal(
            one["gather"], torch.cat([rows(rank, 2 + 3 * rank) for rank in range(size)])
        )
        assert one["empty"].shape == (0, 2)
        has = [5 - rank for rank in range(size)]
        assert one["offset"].tolist() == [sum(has[:rank]), sum(has)]
        start, stop = one["share"].tolist()
        assert (start, stop) == (7 * rank // size, 7 * (rank + 1) // size)
        torch.testing.assert_close(one["scatter"], total[start:stop])
        assert torch.equal(one["broadcast"], rows(1, 4))
        assert one["sent"] > 2 * 7 * 3 * 4 * (size - 1) / size
        assert torch.equal(one["collect"], one["gather"] if rank == 0 else torch.zeros(0, 3))
        assert one["texts"] == ["é" * r for r in range(size)]
        text, hint = one["difference"]  # names the rank that differs, on all
        assert text.startswith(f"rank 1 of {size} (")
        assert text.endswith('has torch "2.0", and rank 0 has "2.1"')
        assert "the same versions" in hint


def allocate_and_free(_comm: Comm) -> tuple[int, int]:
    """Bytes in memory while tables exist, and after they are freed."""
    return_freed_memory()
    rows(0, 2**20)  # glibc adapts its threshold to the size of freed blocks
    before, tables, beside = anonymous(), [], []
    for _ in range(16):
        tables.append(torch.zeros(2**20))
        beside.append(torch.zeros(2**12))
    used = anonymous() - before
    tables.clear()
    return used, anonymous() - before


def anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc on Linux is configured")
def test_memory_of_freed_tables_returns_to_the_system() -> None:
    for used, left in run_ranks(2, allocate_and_free):
        assert used > 60e6
        assert left < 8e6


def test_a_single_process_returns_its_arguments() -> None:
    some = rows(0, 5)
    for one in (
        SINGLE_PROCESS.sum(some),
        SINGLE_PROCESS.gather(some),
        SINGLE_PROCESS.scatter_sum(some),
    ):
        assert one is some
    assert row_offset(5, SINGLE_PROCESS) == (0, 5)
    assert SINGLE_PROCESS.broadcast(some) is SINGLE_PROCESS.collect(some) is some
    assert SINGLE_PROCESS.texts("a") == ["a"]
    assert SINGLE_PROCESS.share(5) == (0, 5)
    assert connect() is SINGLE_PROCESS


def failing(comm: Comm) -> float:
    if comm.rank == 1:
        raise ValueError("a bug")
    return float(comm.sum(torch.ones(())))


def test_a_failing_rank_ends_the_others_with_its_message() -> None:
    results = outcomes(3, failing)
    assert (results[1].kind, results[1].text) == ("ValueError", "a bug")
    for one in (results[0], results[2]):
        assert one.kind == "RunEnded"
        assert one.text.startswith("rank 1 of 3 (")
        assert one.text.endswith("failed: ValueError: a bug")


def killed(comm: Comm) -> float:
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if comm.rank == 2:  # outside any collective
        time.sleep(300)
    return float(comm.sum(torch.ones(10)).sum())


def test_a_killed_rank_is_named_by_all_others() -> None:
    began = time.monotonic()
    results = outcomes(3, killed)
    assert time.monotonic() - began < 60  # including the start of three processes
    assert results[1] is None
    for one in (results[0], results[2]):
        assert isinstance(one, Failed)
        assert one.kind == "RunEnded"
        assert one.text.startswith("rank 1 of 3 (")
        assert one.text.endswith(" died")
        assert "--resume" in one.hint
