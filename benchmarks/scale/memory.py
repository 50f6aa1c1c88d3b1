"""Memory of a rank, and bytes that it sends, by number of ranks.

    python -m benchmarks.scale.memory [--ranks 1 2 4] [--cases CASE ...] [--home DIR] [--write]

A generated set (M queries, N candidates, PAIRS pairs) is prepared in one shard per rank. A few
methods are fitted on it, with candidates on all ranks and with candidates divided. The result is
the largest anonymous memory of each rank, less its memory before the fit, the bytes it sent, and
its seconds. At the end all ranks hold the whole model, which rank 0 writes, in memory if it is
within the memory budget: here it is not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.paths import RESULTS, SCRATCH

RESULT = RESULTS / "scale" / "memory.json"
FOLDER = SCRATCH / "ranks_memory"
M, N, PAIRS, WIDTH = 100_000, 1_000_000, 1_000_000, 64
EVERY = 0.02  # seconds between two samples of memory
DIVIDED, WHOLE = 2**25, 2**34  # bytes of a table of candidates that all ranks may hold
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "rg2-plain": ("rg2-plain", WHOLE, {}),
    "rg2, divided": ("rg2", DIVIDED, {}),
    "ials": ("ials", WHOLE, {"sweeps": 2}),
    "ials, divided": ("ials", DIVIDED, {"sweeps": 2}),
    "bpr": ("bpr", WHOLE, {"epochs": 1, "batch_size": 8192}),
    "bpr, divided": ("bpr", DIVIDED, {"epochs": 1, "batch_size": 8192}),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--home", type=Path, default=FOLDER)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rank", choices=CASES, help="internal: the case of a torchrun process")
    given = parser.parse_args()
    if given.rank is not None:
        fit_one(given.home, given.rank)
        return
    result: dict[str, Any] = {"queries": M, "candidates": N, "pairs": PAIRS, "width": WIDTH}
    if given.write and RESULT.exists():
        result = json.loads(RESULT.read_text()) | result  # keeps cases that are not measured now
    for ranks in given.ranks:
        prepare(given.home / f"data-{ranks}", ranks)
        for case in given.cases:
            figures = launch(given.home, ranks, case)
            result.setdefault(str(ranks), {})[case] = figures
            print(ranks, case, json.dumps(figures), flush=True)
            if given.write:
                RESULT.write_text(json.dumps(result, indent=1) + "\n")


def prepare(folder: Path, shards: int) -> None:
    """Pairs with skewed candidates, in a number of shards."""
    import polars as pl

    import rankfold as rf
    from rankfold.data.folder import save

    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    rng = torch.Generator().manual_seed(0)
    queries = torch.randint(0, M, (PAIRS,), generator=rng)
    candidates = (torch.rand(PAIRS, generator=rng).square() * N).long()
    table = pl.DataFrame({"query": queries.numpy(), "candidate": candidates.numpy()})
    save(rf.prepare(table, split=(1.0, 0.0, 0.0)), folder, shards)


def launch(home: Path, ranks: int, case: str) -> list[dict[str, Any]]:
    """The figures of each rank."""
    with tempfile.TemporaryDirectory() as figures:
        run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        given = ["-m", "benchmarks.scale.memory", "--home", str(home), "--rank", case]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "RANKS_OUT": figures}
        subprocess.run([*run, *given], env=environment, check=True)
        return [json.loads(path.read_text()) for path in sorted(Path(figures).glob("[0-9]*"))]


def fit_one(home: Path, case: str) -> None:
    """The fit of one rank."""
    import rankfold as rf
    from rankfold.distributed.connection import close, connect

    torch.set_num_threads(1)
    comm = connect()
    watch = Watch()
    began = time.perf_counter()
    method, memory, settings = CASES[case]
    rf.fit(
        method,
        home / f"data-{comm.size}",
        width=WIDTH,
        candidate_memory=memory,
        memory_budget=2**26,
        out=Path(os.environ["RANKS_OUT"], "model"),
        **settings,
    )
    figures = {
        "rank": comm.rank,
        "peak_mb": round(watch.stop() / 1e6),
        "sent_mb": round(comm.sent / 1e6, 1),
        "seconds": round(time.perf_counter() - began, 1),
    }
    Path(os.environ["RANKS_OUT"], str(comm.rank)).write_text(json.dumps(figures))
    close()


class Watch:
    """The increase of this process's anonymous memory from now on, at its peak."""

    def __init__(self) -> None:
        self.start = self.peak = anonymous()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            self.peak = max(self.peak, anonymous())

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self.peak - self.start


def anonymous() -> int:
    """Anonymous memory in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


if __name__ == "__main__":
    main()
