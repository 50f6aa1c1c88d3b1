"""Files to read, and what a reader is given."""

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zstandard

from rankfold.data.read.reading import Reading

Pack = Callable[[bytes, str], bytes]
Written = Callable[[str, str | bytes], AbstractContextManager[tuple[Path, Reading]]]


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    """What a reader is given, with an empty folder beside the test's own files."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Reading(scratch)


@pytest.fixture(scope="session")
def written() -> Written:
    """A file in a folder of its own and something to read it with, for one example of many."""

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
    """``(bytes, suffix) -> bytes``, compressed as the suffix says."""

    def pack(content: bytes, suffix: str) -> bytes:
        packers = {".gz": gzip.compress, ".zst": zstandard.compress, "": bytes}
        return packers[suffix](content)

    return pack


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """An empty folder, and no right to read what is forbidden there, even for root."""
    if os.name == "nt":
        pytest.skip("permissions are others there")
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        yield Path(folder)
        os.seteuid(user)
