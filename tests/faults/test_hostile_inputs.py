"""Inputs that crash, hang or flood a reader are refused with one error, in a short time."""

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

import rankfold as rf
from rankfold import storage
from rankfold.errors import UserError

FLIPS = 150
SECONDS = 10  # of CPU, for what took 25
MODELS = {"query": [f"q{n}" for n in range(50)], "candidate": [f"c{n % 7}" for n in range(50)]}


@contextmanager
def soon() -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("format", ["table", "features"])
def test_a_header_of_many_columns(tmp_path: Path, format: str) -> None:
    names = [f"column{n}" for n in range(40_000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    with soon(), pytest.raises(UserError):
        rf.prepare(path, format=format)


def test_a_repeated_column_is_still_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,c,b,a\n1,2,3,4,5\n")
    with pytest.raises(UserError, match="two columns named 'a'"):
        rf.prepare(path, query_column="a", candidate_column="c")


def test_a_header_of_ten_megabytes_is_not_echoed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x" * 10**7 + ",y,z\n1,2,3\n")
    with pytest.raises(UserError) as caught:
        rf.prepare(path)
    assert len(str(caught.value)) + len(caught.value.hint) < 10_000


def test_damaged_parquet_is_read_or_refused(tmp_path: Path) -> None:
    """Some of the flips made polars panic, which is no Exception."""
    path, rng = tmp_path / "t.parquet", random.Random(0)
    pl.DataFrame(MODELS).write_parquet(path)
    whole, refused = path.read_bytes(), 0
    for _ in range(FLIPS):
        damaged = bytearray(whole)
        place = rng.choice([rng.randrange(len(whole)), len(whole) - rng.randrange(1, 400)])
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            rf.prepare(path)
        except UserError:
            refused += 1
    assert refused > FLIPS / 10


def test_a_panic_of_polars_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_arguments: object, **_options: object) -> None:
        raise pl.exceptions.PanicException("index out of bounds")

    path = tmp_path / "t.parquet"
    pl.DataFrame(MODELS).write_parquet(path)
    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", panic)
    with pytest.raises(UserError, match=r"cannot read t\.parquet: index out of bounds"):
        rf.prepare(path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    for source in (path, "/dev/zero", tmp_path / "*.csv"):
        with pytest.raises(UserError, match="is a pipe or a device") as caught:
            rf.prepare(source)
        assert "to a file" in caught.value.hint


def test_a_pipe_in_place_of_a_manifest_is_refused(tmp_path: Path) -> None:
    rf.fit("popularity", pl.DataFrame(MODELS)).save(tmp_path / "model")
    (tmp_path / "model/manifest.json").unlink()
    os.mkfifo(tmp_path / "model/manifest.json")
    with pytest.raises(UserError, match=r"manifest\.json is not a regular file"):
        rf.load(tmp_path / "model")


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv"))
    pl.DataFrame(MODELS).write_csv(tmp_path / "t.csv")
    (tmp_path / "t.csv").rename(path)
    folder = path.with_suffix("")
    for refused in (
        lambda: rf.prepare(path),
        lambda: rf.prepare(tmp_path / "*.csv"),
        lambda: rf.prepare(pl.DataFrame(MODELS), out=folder),
        lambda: storage.read(folder),
    ):
        with pytest.raises(UserError, match=r"xff.* is not UTF-8") as caught:
            refused()
        str(caught.value).encode()  # it can be printed
