"""Temporary files: new, random names, removed by the next write, whoever was killed."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from disk_calls import watched
from folders import names, write

from rankfold import storage
from rankfold.errors import UserError
from rankfold.storage import disk


def write_table(path: Path) -> None:
    with storage.replacing(path) as temporary:
        pl.DataFrame({"a": [1]}).write_parquet(temporary)


WRITES: dict[str, Callable[[Path], None]] = {
    "folder": write,
    "text": lambda path: storage.write_text(path, "text"),
    "table": write_table,
}


@pytest.mark.parametrize("kind", WRITES)
def test_temporary_files_are_created_exclusively_under_random_names(
    kind: str, tmp_path: Path
) -> None:
    """A link planted at a name that can be guessed would be followed."""
    made: list[str] = []

    def react(name: str, path: Path, arguments: tuple[Any, ...], call: Callable[..., Any]) -> Any:
        if name == "os.open" and arguments[1] & os.O_CREAT:
            assert arguments[1] & os.O_EXCL
            assert arguments[1] & os.O_NOFOLLOW
            made.append(path.name)
        if name == "io.open" and "w" in arguments[1]:
            assert path in (tmp_path, tmp_path / "out")  # a probe in a folder, without a name
        if name == "os.mkdir":
            made.append(path.name)
        return call(*arguments)

    with watched(react, under=tmp_path):
        for _ in range(2):
            WRITES[kind](tmp_path / "out")
    made = [name for name in made if "writing-" in name]
    assert len(made) >= 2
    assert len(set(made)) == len(made)


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    link = tmp_path / ".out.writing-0123456789abcdef"
    link.symlink_to(victim)
    storage.write_text(tmp_path / "out", "text")
    assert victim.read_text() == "mine"
    assert names(tmp_path) == {"victim", "out"}  # the link looked like a leftover
    (tmp_path / "out").unlink()
    (tmp_path / "out").symlink_to(victim)
    storage.write_text(tmp_path / "out", "text")
    assert victim.read_text() == "mine"


def test_scratch_folders_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, running = (tmp_path / f".rankfold.writing-{d * 16}" for d in "01")
    for folder in (killed, running):
        folder.mkdir()
        (folder / "0.parquet").touch()
    handle = os.open(running, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with storage.scratch() as scratch, storage.scratch() as other:
            assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
            assert names(tmp_path) == {running.name, scratch.name, other.name}
    finally:
        os.close(handle)
    assert names(tmp_path) == {running.name}


@pytest.mark.parametrize("sweep", ["removed", "locked"])
def test_a_new_folder_that_another_process_takes_for_stale_is_made_again(
    sweep: str, tmp_path: Path
) -> None:
    made: list[Path] = []
    handles: list[int] = []

    def make(folder: Path) -> None:
        made.append(folder)
        folder.mkdir()
        if len(made) > 1:
            return
        if sweep == "removed":
            disk.remove_stale(tmp_path / "out")
        else:
            handles.append(os.open(folder, os.O_RDONLY))
            fcntl.flock(handles[0], fcntl.LOCK_EX)

    with disk.beside(tmp_path / "out", make) as folder:
        assert folder.is_dir()
        assert made.index(folder) == 1
    assert names(tmp_path) == set()
    for handle in handles:
        os.close(handle)


@pytest.mark.parametrize("path", ["/", ".."])
def test_a_place_that_has_no_name_is_refused(path: str) -> None:
    with pytest.raises(UserError, match="cannot be replaced"):
        write(Path(path))


def test_equal_tensors_in_another_order_are_equal_files(tmp_path: Path) -> None:
    """A resumed fit may hold its tensors in another order."""
    import torch

    tensors = {"b": torch.ones(2), "a": torch.zeros(3), "c": torch.ones(2, dtype=torch.int64)}
    files = []
    for order in (tensors, dict(reversed(tensors.items()))):
        storage.write(tmp_path / "out", "model", {}, {"tensors": order})
        files.append(storage.read(tmp_path / "out").manifest["files"]["tensors"]["sha256"])
    assert files[0] == files[1]
