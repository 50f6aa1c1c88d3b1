"""A write replaces a folder completely or leaves it unchanged."""

import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from disk_calls import failing_call, files_no_larger_than
from folders import content, files_of, names, refusal, snapshot, version_at, write
from torch import Tensor

from rankfold import storage
from rankfold.errors import UserError

BESIDE = ".model.writing-0123456789abcdef"  # left by a killed write
UNFINISHED = (".numbers.writing-0123456789abcdef", ".manifest.json.writing-0123456789abcdef")


class Watched(Mapping[str, storage.Content]):
    """Files that call ``look`` before each of them is written, and after the last."""

    def __init__(self, version: int, look: Callable[[], None]) -> None:
        self.files = content(version)
        self.look = look

    def __getitem__(self, name: str) -> storage.Content:
        self.look()
        return self.files[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.files
        self.look()

    def __len__(self) -> int:
        return len(self.files)


def test_a_new_folder_appears_atomically(tmp_path: Path) -> None:
    path = tmp_path / "new"
    seen: list[bool] = []
    storage.write(path, "model", {"version": 1}, Watched(1, lambda: seen.append(path.exists())))
    assert seen == [False] * 3
    assert version_at(path) == 1
    assert names(tmp_path) == {"new"}


def test_an_old_folder_stays_complete_until_it_is_replaced(folder: Path) -> None:
    seen: list[int] = []
    storage.write(
        folder, "model", {"version": 2}, Watched(2, lambda: seen.append(version_at(folder)))
    )
    assert seen == [1] * 3
    assert version_at(folder) == 2


def test_old_files_stay_until_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "model"
    named = []
    for version in range(4):
        write(path, version)
        manifest = storage.read(path).manifest
        named.append({entry["file"] for entry in manifest["files"].values()})
        assert names(path) == {"manifest.json"}.union(*named[-2:])
    assert len(set.union(*named)) == 8


def test_foreign_files_are_never_removed(folder: Path) -> None:
    foreign = {"README.md", "keys.parquet", "Keys-0123456789abcdef.parquet", ".notes.writing-md"}
    foreign |= {
        "keys-0123456789abcdef.csv",
        "keys-0123456789ABCDEF.parquet",
        ".writing-",
        ".notes.writing-0123456789ABCDEF",
    }
    for name in foreign:
        (folder / name).write_text("mine")
    (folder / "keys-0123456789abcdef.parquet").mkdir()
    for version in (2, 3):
        write(folder, version)
    assert all((folder / name).read_text() == "mine" for name in foreign)
    assert (folder / "keys-0123456789abcdef.parquet").is_dir()
    assert version_at(folder) == 3


def test_the_next_write_removes_leftovers_of_killed_writes(folder: Path) -> None:
    before = names(folder)
    for name in (*UNFINISHED, "keys-0123456789abcdef.parquet"):
        (folder / name).write_text("half")
    beside = folder.with_name(BESIDE)
    shutil.copytree(folder, beside)
    assert version_at(folder) == 1
    write(folder, 1)
    assert names(folder) == before
    assert not beside.exists()


def test_a_killed_first_write_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.mkdir()
    for name in UNFINISHED:
        (path / name).write_text("half")
    (path / "keys-0123456789abcdef.parquet").write_text("whole, but not named")
    assert "not a rankfold folder" in refusal(path, "model")
    write(path)
    assert version_at(path) == 1
    assert len(names(path)) == 3


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch], ids=["folder", "file"])
def test_what_is_unfinished_is_removed_unless_still_being_written(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    beside = tmp_path / BESIDE
    make(beside)
    handle = os.open(beside, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        write(tmp_path / "model", 1)
        assert beside.exists()
    finally:
        os.close(handle)
    write(tmp_path / "model", 2)
    assert not beside.exists()


def test_file_systems_without_locks_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(_handle: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    beside = tmp_path / BESIDE
    beside.mkdir()
    for version in (1, 2):
        write(tmp_path / "model", version)
        assert version_at(tmp_path / "model") == version
    assert beside.exists()  # another process may still be writing it


@pytest.mark.parametrize("exists", [True, False])
def test_one_of_two_writers_is_refused(*, exists: bool, tmp_path: Path) -> None:
    """The second would remove files that the first has not named yet."""
    path = tmp_path / "model"
    if exists:
        write(path, 1)
    messages: list[str] = []

    def write_too() -> None:
        try:
            write(path, 3)
        except UserError as error:
            messages.append(str(error))

    first = lambda: storage.write(path, "model", {"version": 2}, Watched(2, write_too))  # noqa: E731
    if exists:
        first()
        assert version_at(path) == 2
        assert messages == [f"process {os.getpid()} is writing {path}"] * 3
    else:
        with pytest.raises(UserError, match=f"cannot write {path}"):
            first()
        assert version_at(path) == 3
    assert names(tmp_path) == {"model"}


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write(tmp_path / "model")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o750
    assert {stat.S_IMODE(p.stat().st_mode) for p in files_of(tmp_path / "model")} == {0o640}


def test_files_are_on_disk_before_they_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut loses unflushed data. The order is data, then names, then the manifest."""
    events: list[tuple[str, ...]] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(handle: int) -> None:
        opened = os.fstat(handle).st_ino
        synced = [plain(p) for p in (folder, *folder.iterdir()) if p.stat().st_ino == opened]
        events.append(("sync", *synced))
        fsync(handle)

    def note_replace(source: Path, target: Path) -> None:
        events.append((plain(source), plain(target)))
        replace(source, target)

    def plain(path: Path) -> str:
        """Its name, without what is random."""
        return re.sub("writing-[0-9a-f]{16}$", "writing", Path(path).name)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    write(folder, 2)
    entries = storage.read(folder).manifest["files"]
    expected = []
    for name in ("numbers", "keys"):
        temporary = f".{name}.writing"
        expected += [("sync", temporary), (temporary, entries[name]["file"])]
    commit = (".manifest.json.writing", "manifest.json")
    assert events == [*expected, ("sync", commit[0]), ("sync", "model"), commit, ("sync", "model")]


LARGE: list[storage.Content] = [
    {"t": torch.zeros(50_000)},
    pl.DataFrame({"key": pl.int_range(50_000, eager=True).shuffle(seed=0)}),
]


@pytest.mark.parametrize("large", LARGE, ids=["tensors", "table"])
def test_a_full_disk_changes_nothing(large: storage.Content, folder: Path) -> None:
    before, new = names(folder), folder.with_name("new")
    files = {**content(2), "large": large}
    for path in (folder, new):
        with files_no_larger_than(20_000), pytest.raises(UserError) as caught:
            storage.write(path, "model", {"version": 2}, files)
        assert str(caught.value) == f"cannot write {path}: File too large"
        assert "unchanged" in caught.value.hint
    assert names(folder) == before
    assert version_at(folder) == 1
    assert names(folder.parent) == {"model"}


@pytest.mark.parametrize(
    ("meta", "tensor", "error"),
    [
        ({"x": object()}, torch.zeros(1), TypeError),
        ({}, torch.zeros(1, dtype=torch.complex64), KeyError),
        ({}, torch.zeros(1, device="meta"), NotImplementedError),
    ],
    ids=["meta", "type", "device"],
)
def test_a_bug_changes_nothing(
    meta: dict[str, Any], tensor: Tensor, error: type[Exception], folder: Path
) -> None:
    before = snapshot(folder.parent)
    for path in (folder, folder.with_name("new")):
        with pytest.raises(error):
            storage.write(path, "model", meta, {**content(2), "more": {"t": tensor}})
    assert snapshot(folder.parent) == before


def test_an_interrupted_write_changes_nothing(folder: Path) -> None:
    def stop() -> None:
        if len(names(folder)) > 3:
            raise KeyboardInterrupt

    before = snapshot(folder.parent)
    with pytest.raises(KeyboardInterrupt):
        storage.write(folder, "model", {}, Watched(2, stop))
    assert snapshot(folder.parent) == before


@pytest.mark.parametrize("exists", [True, False])
def test_a_write_with_any_failing_system_call_is_done_or_undone(
    *, exists: bool, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    refused = set()
    for place in count():
        shutil.rmtree(path, ignore_errors=True)
        for version in (0, 1) if exists else ():
            write(path, version)
        expected: int | None = 2
        with failing_call(place) as calls:
            try:
                write(path, 2)
            except UserError:
                expected = 1 if exists else None
                refused.add(calls[place].name)
        assert (version_at(path) if path.exists() else None) == expected
        if len(calls) <= place:
            break
    assert refused >= {"os.fsync", "os.replace", "os.write", "os.stat"}
    assert refused >= ({"os.unlink"} if exists else {"os.mkdir", "os.rename"})
    assert not exists or refused & {"os.listdir", "os.scandir"}  # since Python 3.13 the latter
