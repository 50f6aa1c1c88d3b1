"""A private copy equals its folder, and nothing that happens to the folder reaches it."""

import errno
import fcntl
import gc
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch

from rankfold import storage
from rankfold.errors import UserError
from rankfold.storage import private_copy

MEMORY = pytest.mark.parametrize("memory", [2**40, 0], ids=["memory", "disk"])
TENSORS = {"a": torch.arange(400_000.0), "b": torch.zeros(0, 3)}
TABLE = pl.DataFrame({"key": ["x", "y"]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    out = tmp_path / "model"
    storage.write(out, "model", {}, {"tensors": TENSORS, "keys": TABLE, "text": "Äther"})
    return out


def check(copy: storage.Folder) -> None:
    tensors = copy.tensors("tensors")
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert copy.table("keys").equals(TABLE)
    assert copy.text("text") == "Äther"
    assert copy.file("text").read_text(encoding="utf-8") == "Äther"


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def truncate(folder: Path) -> None:
    for file in folder.iterdir():
        os.truncate(file, 0)


def overwrite(folder: Path) -> None:
    for file in folder.iterdir():
        file.write_bytes(b"\xff" * file.stat().st_size)


@MEMORY
@pytest.mark.parametrize("harm", [truncate, overwrite, shutil.rmtree])
def test_no_change_of_the_folder_reaches_the_copy(
    memory: int, harm: Callable[[Path], None], folder: Path
) -> None:
    copy = storage.read_copy(folder, "model", memory)
    held = copy.tensors("tensors")
    harm(folder)
    check(copy)
    assert torch.equal(held["a"], TENSORS["a"])


@MEMORY
def test_files_are_closed_with_the_folder(memory: int, folder: Path) -> None:
    before = open_files()
    copy = storage.read_copy(folder, "model", memory)
    assert open_files() == before + 3
    tensors = copy.tensors("tensors")
    del copy
    assert open_files() == before
    assert torch.equal(tensors["a"], TENSORS["a"])  # still mapped


@MEMORY
def test_every_byte_is_checked(memory: int, folder: Path) -> None:
    file = next(folder.glob("tensors-*"))
    with file.open("r+b") as stream:
        stream.seek(-3, os.SEEK_END)  # beyond the head that every opening checks
        stream.write(b"\x01")
    before = open_files()
    with pytest.raises(UserError, match=r"tensors-.* does not match its checksum"):
        storage.read_copy(folder, "model", memory)
    assert open_files() == before


def test_a_copy_in_memory_cannot_be_written(folder: Path) -> None:
    copy = storage.read_copy(folder, "model", 2**40)
    with pytest.raises(PermissionError):
        os.pwrite(copy.copies["text"].handle, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(copy.copies["text"].handle, 0)


def test_copies_share_blocks_where_the_file_system_can(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloned = []

    def clone(target: int, request: int, source: int) -> None:
        cloned.append(request)
        os.copy_file_range(source, target, os.fstat(source).st_size)

    monkeypatch.setattr(fcntl, "ioctl", clone)
    monkeypatch.setattr(shutil, "disk_usage", None)  # a clone needs no space
    check(storage.read_copy(folder, "model", 0))
    assert len(cloned) == 3


def test_the_space_is_checked_before_anything_is_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(private_copy.tempfile, "tempdir", None)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: usage)
    before = open_files()
    with pytest.raises(UserError, match="bytes, and 1,000 are free") as error:
        storage.read_copy(folder, "model", 0)
    assert str(folder) in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert "TMPDIR" in error.value.hint
    del error  # its traceback holds frames
    assert open_files() == before
    check(storage.read_copy(folder, "model", 2**40))


def test_a_full_disk_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(
        private_copy, "_new_file", lambda *_: private_copy.PrivateFile(os.dup(full))
    )
    with pytest.raises(UserError, match=os.strerror(errno.ENOSPC)):
        storage.read_copy(folder, "model", 0)
    os.close(full)


def test_a_folder_that_is_replaced_meanwhile_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = private_copy._copy, []

    def copy_and_replace(*given: object) -> private_copy.PrivateFile:
        calls.append(given)
        if len(calls) == 1:
            for _ in range(2):
                storage.write(folder, "model", {}, {"text": f"new {len(calls)}"})
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(private_copy, "_copy", copy_and_replace)
    assert storage.read_copy(folder, "model", 0).text("text") == "new 1"


def test_links_and_other_kinds_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a model folder, not a data folder"):
        storage.read_copy(folder, "data", 0)
    file = next(folder.glob("text-*"))
    shutil.move(file, tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="links are not followed"):
        storage.read_copy(folder, "model", 0)
