"""The bytes that passes of spectral methods and sweeps of ALS send; docs/reference/processes.md.

Gradient methods, SiameseXML, graders and ALS with divided candidates have such tests in the files
that compare them with one process.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import groups
from ranks import Ranks, run_ranks

import rankfold as rf
from rankfold import config
from rankfold.data import folder
from rankfold.methods import METHODS
from rankfold.objectives.rg import rg2
from rankfold.solvers.shards import Shards
from rankfold.solvers.spectral import Target, decompose
from rankfold.types import Comm, Run

M, N, WIDTH, COLUMNS = 240, 125, 20, 16  # columns of a pass: max(16, width / 4)
AT_ONCE = 40  # divided candidates that are gathered at a time
SWEEPS: dict[str, dict[str, Any]] = {
    "ials": {"steps": 2},
    "wrmf": {"steps": 3},
    "rg2-weighted": {"inner": "cholesky"},
    "rgx": {"steps": 1, "start": "random"},
}


def run_all(comm: Comm, path: Path) -> dict[str, Any]:
    rows = folder.load(path, comm).split("train")
    return {
        "whole": list(passes(comm, rows, None)),
        "divided": list(passes(comm, rows, Shards(rows, comm, AT_ONCE))),
        **{name: sweep_bytes(comm, path, name) for name in SWEEPS},
    }


def passes(comm: Comm, rows: Any, shards: Shards | None) -> Iterator[tuple[int, int]]:
    """The columns of the space after each pass except the first, and the bytes of the pass."""
    target = Target(rg2(rows, 0.1, comm=comm), 2**20, shards)
    rng, sent = torch.Generator().manual_seed(0), None
    for space in decompose(target, WIDTH, rng, tolerance=1e-6):
        if sent is not None:
            yield space.columns, comm.sent - sent
        sent = comm.sent


def sweep_bytes(comm: Comm, path: Path, name: str) -> int:
    """The bytes of the second sweep, including its objective."""
    settings = config.build(METHODS[name].config, {"width": WIDTH, "sweeps": 2, **SWEEPS[name]})
    run = Run(torch.Generator().manual_seed(0), torch.device("cpu"), comm)
    fit = METHODS[name].fit(folder.load(path, comm), settings, run)
    first, second = (comm.sent for _ in fit)
    return second - first


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    path = tmp_path_factory.mktemp("data") / "data"
    rf.prepare(groups(m=M, n=N), out=path, split=(1.0, 0.0, 0.0))
    return {size: run_ranks(size, run_all, path) for size in (2, 3)}


each_size = pytest.mark.parametrize("size", [2, 3])


def sum_bytes(size: int, numbers: int, each: int = 4) -> int:
    """The bytes of a sum."""
    return 2 * numbers * each * (size - 1) // size


@each_size
def test_a_pass_sends_one_sum_of_its_columns(size: int, ranks: Ranks) -> None:
    """Rank 0 also sends the decompositions of the space."""
    expected = sum_bytes(size, N * COLUMNS) + sum_bytes(size, COLUMNS, 8)
    for rank in ranks[size][1:]:
        assert len(rank["whole"]) > 2
        assert [sent for _, sent in rank["whole"]] == [expected] * len(rank["whole"])
    for columns, sent in ranks[size][0]["whole"]:
        products = 4 * (columns - COLUMNS + columns) * COLUMNS + 4 * COLUMNS**2
        small = products + decomposition_bytes(columns) + (4 if columns >= 2 * WIDTH else 0)
        assert sent == expected + small * (size - 1)


def decomposition_bytes(columns: int) -> int:
    """Decompositions that rank 0 sends: of a block, and of a space of at least twice the width."""
    ritz = columns + columns**2 if columns >= 2 * WIDTH else 0
    return 8 * (COLUMNS + COLUMNS**2 + ritz)


@each_size
def test_a_pass_over_divided_candidates_sends_each_row_twice(size: int, ranks: Ranks) -> None:
    each, longest = AT_ONCE // size, -(-N // size)
    groups = -(-longest // each)
    table = 4 * groups * each * COLUMNS * (size - 1)
    for number, rank in enumerate(ranks[size]):
        assert len(rank["divided"]) > 2
        for columns, sent in rank["divided"]:
            inner = sum_bytes(size, (columns - COLUMNS) * COLUMNS) + sum_bytes(
                size, columns * COLUMNS
            )
            inner += (
                sum_bytes(size, COLUMNS**2) + sum_bytes(size, COLUMNS) + sum_bytes(size, COLUMNS, 8)
            )
            inner += sum_bytes(size, 1) if columns >= 2 * WIDTH else 0
            first = decomposition_bytes(columns) * (size - 1) if number == 0 else 0
            assert sent == 2 * table + 8 * groups * (size - 1) + inner + first


@each_size
@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_sends_its_sums_over_candidates(name: str, size: int, ranks: Ranks) -> None:
    steps = SWEEPS[name].get("steps", 2)
    tables = {"rg2-weighted": WIDTH + 1, "rgx": 10}.get(name, steps + 1)
    for number, rank in enumerate(ranks[size]):
        expected = tables * sum_bytes(size, N * WIDTH) + small_bytes(name, size, first=number == 0)
        assert rank[name] == expected


def small_bytes(name: str, size: int, *, first: bool) -> int:
    """A Gram matrix and its basis, a few vectors, the counts of candidates."""
    gram, rotation = sum_bytes(size, WIDTH**2, 8), 8 * (WIDTH + WIDTH**2) * (size - 1)
    counts = 1 if name in ("rgx", "rg2-weighted") else 2
    vectors = (1 if name == "rgx" else 2) * sum_bytes(size, WIDTH)
    means = 2 * (sum_bytes(size, WIDTH) + sum_bytes(size, 1))
    value = sum_bytes(size, 1, 8)
    return (
        gram + vectors + means + counts * sum_bytes(size, N, 8) + value + (rotation if first else 0)
    )
