"""Files to read, and the context of a reader."""

import gzip
import os
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
import zstandard
from graded_samples import GRADES
from prepared_splits import table

from rankfold.data.read.reading import Reading

Pack = Callable[[bytes, str], bytes]
Written = Callable[[str, str | bytes], AbstractContextManager[tuple[Path, Reading]]]


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    """The context of a reader, with an empty scratch folder."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Reading(scratch)


@pytest.fixture(scope="session")
def written() -> Written:
    """A file in a new folder and a context to read it, for one of many examples."""

    @contextmanager
    def written(name: str, content: str | bytes) -> Iterator[tuple[Path, Reading]]:
        with TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            scratch = Path(folder) / "scratch"
            scratch.mkdir()
            yield path, Reading(scratch)

    return written


@pytest.fixture(scope="session")
def pack() -> Pack:
    """``(bytes, suffix) -> bytes``, compressed according to the suffix."""

    def pack(content: bytes, suffix: str) -> bytes:
        packers = {".gz": gzip.compress, ".zst": zstandard.compress, "": bytes}
        return packers[suffix](content)

    return pack


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """An empty folder; permissions hold there even for root."""
    if os.name == "nt":
        pytest.skip("Windows has other permissions")
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        yield Path(folder)
        os.seteuid(user)


@pytest.fixture
def patients() -> pl.DataFrame:
    """30 rows, 10 of each grade: an age that identifies the row, a sex, a missing value of each."""
    n = range(30)
    return pl.DataFrame(
        {
            "id": [f"p{i}" for i in n],
            "age": [None if i == 7 else 20.5 + i for i in n],
            "sex": [None if i == 8 else "mf"[i % 2] for i in n],
            "severity": [GRADES[i % 3] for i in n],
        }
    )


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """12 users with 2 to 13 ratings each."""
    rows = [(f"u{u:02}", i, 1 + (u + i) % 5, 100 * i + u) for u in range(12) for i in range(u + 2)]
    random.Random(0).shuffle(rows)
    return table(tmp_path / "ratings.csv", rows)
