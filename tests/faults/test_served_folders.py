"""A live server keeps its answers, whatever happens to the folder that it serves."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from serving import process

import rankfold as rf
from rankfold.models.index import add_index

QUERIES = [0, 7, 40, 119]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``served`` and ``other``: the same keys, other vectors; each with an index."""
    home = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("served", "other")):
        rows = [(i, (7 * i + 3 * j + seed * j * j) % 300) for i in range(120) for j in range(12)]
        pairs = pl.DataFrame(rows, schema=["query", "candidate"], orient="row").unique()
        rf.fit("puresvd", rf.prepare(pairs), width=8, out=home / name)
        add_index(home / name, "hnsw", recall=0.5)
    return home


def overwrite(served: Path) -> None:
    for file in served.iterdir():
        with file.open("r+b") as stream:
            stream.write(b"\x00" * file.stat().st_size)


def truncate(served: Path) -> None:
    for file in served.iterdir():
        os.truncate(file, 0)


def shorten(served: Path) -> None:
    for file in served.iterdir():
        os.truncate(file, file.stat().st_size // 2)


def remove(served: Path) -> None:
    shutil.rmtree(served)


def put_a_file(served: Path) -> None:
    served.write_text("no folder")


HARMS: list[Callable[[Path], None]] = [shorten, overwrite, truncate, remove, put_a_file]


def ask(address: str) -> tuple[Any, ...]:
    """The answers of all kinds that the model gives."""
    bodies = [{"queries": QUERIES}, {"history": [3, 10]}, {"candidates": [5]}]
    answers = [httpx.post(f"{address}/search", json=body, timeout=20) for body in bodies]
    answers += [httpx.get(f"{address}/{path}") for path in ("keys?like=1", "history?query=7")]
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    return tuple(answer.json() for answer in answers)


def swaps(address: str, outcome: str) -> int:
    lines = httpx.get(f"{address}/metrics").text.splitlines()
    return sum(int(line.split()[-1]) for line in lines if f'outcome="{outcome}"' in line)


def wait(address: str, outcome: str) -> None:
    """Until a folder has been read again with this outcome."""
    limit = time.monotonic() + 30
    while not swaps(address, outcome):
        assert time.monotonic() < limit, outcome
        time.sleep(0.05)


@pytest.fixture(scope="module")
def of_other(models: Path) -> tuple[Any, ...]:
    with process(models / "other") as (_, address):
        return ask(address)


@pytest.mark.parametrize("memory", [1, 0], ids=["memory", "disk"])
def test_no_change_of_a_served_folder_reaches_a_request(
    memory: int,
    models: Path,
    of_other: tuple[Any, ...],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("cases", len(HARMS) + 1)
    served = tmp_path / "served"
    shutil.copytree(models / "served", served)
    with process(served, "--memory", memory) as (running, address):
        before = ask(address)
        for harm in HARMS:
            harm(served)
            assert ask(address) == before, harm.__name__
        wait(address, "failed")
        assert ask(address) == before
        served.unlink()
        shutil.copytree(models / "served", served)
        wait(address, "done")
        assert ask(address) == before
        subprocess.run(["cp", "-r", f"{models}/other/.", f"{served}/"], check=True)
        limit = time.monotonic() + 30
        while (after := ask(address)) == before:
            assert time.monotonic() < limit
        after = ask(address)
        assert running.poll() is None
    assert after == of_other
