"""A folder that cannot be written is refused before the work."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from folders import file_of, names, refusal, snapshot, version_at, write

from rankfold import storage
from rankfold.errors import UserError


def test_a_folder_that_is_not_writable_is_refused_before_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    with pytest.raises(UserError, match=f"{folder} is not writable"):
        storage.check_writable(folder, "model")
    with pytest.raises(UserError, match=f"{folder.parent} is not writable"):
        storage.check_writable(folder.with_name("new"), "model")


def test_a_place_where_no_file_can_be_created_is_refused_before_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere, but not into /sys, for example: only an attempt shows it."""
    before = snapshot(folder.parent)
    storage.check_writable(folder, "model")
    storage.check_destination(folder.with_name("new.parquet"))
    assert snapshot(folder.parent) == before
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_CREAT or flags & getattr(os, "O_TMPFILE", 0):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    for path in (folder, folder.with_name("new")):
        with pytest.raises(UserError, match=f"cannot write {path}: {os.strerror(errno.EPERM)}"):
            storage.check_writable(path, "model")


@pytest.fixture
def bound() -> Iterator[Path]:
    """A folder of a user who is bound by permissions, unlike root."""
    nobody = 65534 if os.geteuid() == 0 else os.geteuid()
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, nobody, -1)
        before = os.geteuid()
        os.seteuid(nobody)
        try:
            yield Path(home)
        finally:
            os.seteuid(before)


def test_permissions_are_respected(bound: Path) -> None:
    path = bound / "model"
    write(path, 1)
    bound.chmod(0o100)  # no listing, no new names; folders in it may still be written
    write(path, 2)
    with pytest.raises(UserError, match=f"cannot write {bound / 'new'}: Permission denied"):
        write(bound / "new")
    path.chmod(0o500)
    with pytest.raises(UserError, match=f"cannot write {path}: Permission denied"):
        write(path, 3)
    assert version_at(path) == 2
    path.chmod(0o300)
    with pytest.raises(UserError, match=f"cannot write {path}: Permission denied"):
        write(path, 3)
    path.chmod(0o000)
    assert refusal(path, "model") == f"cannot read {path / 'manifest.json'}: Permission denied"
    path.chmod(0o700)
    secret = file_of(path, "keys")
    secret.chmod(0o000)
    assert refusal(path, "model") == f"cannot read {secret}: Permission denied"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path.mkdir(), (path / "notes").touch()), "was not written by rankfold"),
        (lambda path: path.write_text("mine"), "was not written by rankfold"),
        (
            lambda path: storage.write(path, "data", {}, {}),
            "is a data folder; a model folder must not",
        ),
        (lambda path: spoil_manifest(path, "{}"), "manifest.json is not a rankfold manifest"),
        (lambda path: spoil_manifest(path, '{"format": 2}'), "must have format 1, got 2"),
        (lambda path: spoil_manifest(path, '{"format": 1}'), "does not match its own checksum"),
        (
            lambda path: (path.mkdir(), (path / "manifest.json").mkdir()),
            "manifest.json is not a regular file",
        ),
        (lambda path: path.symlink_to("nowhere"), "is a link that leads nowhere"),
    ],
    ids=["folder", "file", "kind", "other manifest", "format", "damaged", "strange", "dead link"],
)
def test_other_folders_and_files_are_not_replaced(
    spoil: Callable[[Path], Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    spoil(path)
    before = snapshot(tmp_path)
    with pytest.raises(UserError, match=message) as caught:
        write(path)
    assert str(path) in str(caught.value)
    assert "--out" in caught.value.hint
    assert snapshot(tmp_path) == before


def spoil_manifest(path: Path, text: str) -> None:
    path.mkdir()
    (path / "manifest.json").write_text(text)


@pytest.mark.parametrize("home", ["absent", "file"])
def test_a_missing_parent_is_named(home: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=rf"there is no folder {tmp_path / home}(\n|$)"):
        write(tmp_path / home / "model")
    assert names(tmp_path) == {"file"}
