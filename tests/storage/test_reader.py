"""A damaged folder is refused, and a reader beside a writer sees one version."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from disk_calls import failing_call
from folders import (
    ONE_FOLDER,
    content,
    file_of,
    files_of,
    forge,
    names,
    refusal,
    version_at,
    version_in,
    write,
)
from hypothesis import given
from hypothesis import strategies as st

from rankfold import storage
from rankfold.errors import UserError
from rankfold.storage import reader
from rankfold.storage.manifest import HEAD


def test_a_read_with_any_failing_system_call_is_right_or_refused(folder: Path) -> None:
    refused = 0
    for place in count():
        with failing_call(place) as calls:
            try:
                assert version_at(folder) == 1
            except UserError as error:
                assert str(error).startswith(f"cannot read {folder}")  # noqa: PT017
                assert "Permission denied" in str(error)  # noqa: PT017
                refused += 1
        if len(calls) <= place:
            break
    assert refused >= 3  # the manifest and two files


@given(st.data())
@ONE_FOLDER
def test_one_changed_byte_anywhere_is_refused(folder: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(files_of(folder)))
    written = path.read_bytes()
    place = data.draw(st.integers(0, len(written) - 1))
    other = data.draw(st.integers(1, 255))
    changed = bytearray(written)
    changed[place] ^= other
    path.write_bytes(changed)
    try:
        for full in (False, True):  # small files consist of their head
            message = refusal(folder, "model", full=full)
            assert path.name in message
            assert str(folder) in message
    finally:
        path.write_bytes(written)
    assert version_at(folder) == 1


@pytest.mark.parametrize("place", [0, 100, HEAD - 1, HEAD, -1])
def test_size_and_head_are_always_checked_and_the_rest_if_full(place: int, tmp_path: Path) -> None:
    large = {"t": torch.zeros(2 * HEAD, dtype=torch.uint8)}
    storage.write(tmp_path / "d", "data", {}, {"large": large})
    path = file_of(tmp_path / "d", "large")
    changed = bytearray(path.read_bytes())
    changed[place] ^= 1
    path.write_bytes(changed)
    message = f"{path.name} does not match its checksum"
    assert message in refusal(tmp_path / "d", "data", full=True)
    if 0 <= place < HEAD:
        assert message in refusal(tmp_path / "d", "data")
    else:
        assert storage.read(tmp_path / "d", "data").tensors("large")["t"].any()


def test_a_table_is_checked_when_it_is_read(tmp_path: Path) -> None:
    """Parquet reads one in eight changed bytes as other keys."""
    keys = pl.DataFrame({"key": pl.int_range(2**19, eager=True).shuffle(seed=0)})
    storage.write(tmp_path / "d", "data", {}, {"keys": keys})
    opened = storage.read(tmp_path / "d", "data")
    path = opened.file("keys")
    changed = bytearray(path.read_bytes())
    assert len(changed) > HEAD
    changed[HEAD + 10] ^= 1
    path.write_bytes(changed)
    opened = storage.read(tmp_path / "d", "data")
    with pytest.raises(UserError, match=f"{path.name} does not match its checksum"):
        opened.table("keys")


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", ["numbers", "keys"])
class TestFile:
    """Damage that shows in the size or the type of a file."""

    def test_missing(self, *, name: str, full: bool, folder: Path) -> None:
        path = file_of(folder, name)
        path.unlink()
        message = refusal(folder, "model", full=full)
        assert message == f"{folder} is damaged: {path.name} is missing"

    def test_truncated(self, *, name: str, full: bool, folder: Path) -> None:
        path = file_of(folder, name)
        size = path.stat().st_size
        os.truncate(path, size - 1)
        message = refusal(folder, "model", full=full)
        assert (
            message
            == f"{folder} is damaged: {path.name} must have {size:,} bytes, got {size - 1:,}"
        )

    def test_longer(self, *, name: str, full: bool, folder: Path) -> None:
        path = file_of(folder, name)
        path.write_bytes(path.read_bytes() + b"x")
        assert f"{path.name} must have" in refusal(folder, "model", full=full)

    @pytest.mark.parametrize("kind", ["outside", "inside", "loop", "folder", "pipe"])
    def test_not_a_file(self, *, name: str, full: bool, kind: str, folder: Path) -> None:
        path = file_of(folder, name)
        place = {"outside": folder.parent / "x", "inside": folder / "x", "loop": path}.get(kind)
        path.rename(folder.parent / "x" if place in (None, path) else place)
        if place is not None:
            path.symlink_to(place)
        elif kind == "folder":
            path.mkdir()
        else:
            os.mkfifo(path)
        assert f"{path.name} is not a regular file" in refusal(folder, "model", full=full)


def test_a_folder_without_manifest_is_refused(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    message = refusal(folder, "model")
    assert message == f"{folder} is not a rankfold folder: it has no manifest.json"


def test_paths_to_something_else_are_refused(folder: Path) -> None:
    absent, file = folder.with_name("absent"), folder / "manifest.json"
    assert refusal(absent, "model") == f"there is no folder {absent}"
    assert refusal(absent / "x", "model") == f"there is no folder {absent / 'x'}"
    assert refusal(file, "model") == f"{file} is a file, not a rankfold folder"
    assert "has no manifest.json" in refusal(folder.parent, "model")


def test_another_kind_is_refused_before_its_files_are_read(folder: Path) -> None:
    file_of(folder, "numbers").unlink()
    message = refusal(folder, "data", full=True)
    assert message == f"{folder} is a model folder, not a data folder"


def test_a_folder_of_any_kind_is_opened(tmp_path: Path) -> None:
    for kind in ("model", "data"):
        write(tmp_path / kind, kind=kind)
        assert storage.read(tmp_path / kind, full=True).manifest["kind"] == kind


@pytest.mark.parametrize("version", [0, 2, "1", None, [1], -1])
def test_another_format_is_refused(version: Any, folder: Path) -> None:
    forge(folder, lambda manifest: {**manifest, "format": version})
    assert (
        refusal(folder, "model") == f"{folder / 'manifest.json'} must have format 1, got {version}"
    )


NO_MANIFESTS = {
    "empty": b"",
    "half": b'{"format": 1, "ki',
    "not JSON": b"format = 1",
    "not UTF-8": b'{"format": "\xff"}',
    "zeros": bytes(500),
    "list": b"[1]",
    "number": b"1",
    "text": b'"format"',
    "null": b"null",
    "no format": b'{"name": "an app", "icons": []}',
    "deep": b"[" * 10**6,
    "many digits": b'{"format": ' + b"9" * 10**4 + b"}",
}


@pytest.mark.parametrize("text", NO_MANIFESTS.values(), ids=NO_MANIFESTS)
def test_an_invalid_manifest_is_refused(text: bytes, folder: Path) -> None:
    (folder / "manifest.json").write_bytes(text)
    for kind in ("model", None):
        message = refusal(folder, kind)
        assert message == f"{folder} is damaged: manifest.json is not a rankfold manifest"


def test_a_deeply_nested_manifest_is_refused(folder: Path) -> None:
    """At some depths Python's JSON can be read but not written."""
    for depth in range(100, 1500, 50):
        text = '{"format": 1, "x": ' + "[" * depth + "]" * depth + "}"
        (folder / "manifest.json").write_text(text)
        assert "is damaged: manifest.json" in refusal(folder, "model")


def write_after_manifest(path: Path, versions: list[int], patch: pytest.MonkeyPatch) -> None:
    """Let a writer write ``versions`` right after a reader has read the manifest."""
    real = reader.read_manifest

    def read_and_write(folder: Path) -> dict[str, Any]:
        manifest = real(folder)
        patch.undo()
        for version in versions:
            write(path, version)
        return manifest

    patch.setattr(reader, "read_manifest", read_and_write)


@pytest.mark.parametrize(
    ("versions", "expected"), [([2], 1), ([2, 3], 3), ([2, 3, 4], 4), ([2, 1], 1), ([2, 3, 1], 1)]
)
def test_a_reader_reads_the_manifest_again_if_a_file_vanished(
    versions: list[int], expected: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_after_manifest(folder, versions, monkeypatch)
    opened = storage.read(folder, "model", full=True)
    assert version_in(opened) == expected


def test_a_reader_follows_a_faster_writer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice in a row the files vanish after the manifest was read."""
    real = reader.read_manifest
    reads = []

    def read_and_write(place: Path) -> dict[str, Any]:
        manifest = real(place)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader, "read_manifest", real)
            reads.append(manifest["version"])
            for more in (1, 2) if len(reads) < 3 else ():
                write(folder, manifest["version"] + more)
        return manifest

    monkeypatch.setattr(reader, "read_manifest", read_and_write)
    assert storage.read(folder, "model", full=True).manifest["version"] == 5
    assert reads == [1, 3, 5]


def test_a_missing_file_is_reported_even_if_the_manifest_holds_nan(tmp_path: Path) -> None:
    storage.write(tmp_path / "m", "model", {"loss": math.nan}, content(1))
    path = file_of(tmp_path / "m", "keys")
    path.unlink()
    assert f"{path.name} is missing" in refusal(tmp_path / "m", "model")


@pytest.mark.parametrize("ask", [storage.Folder.file, storage.Folder.tensors, storage.Folder.table])
def test_an_opened_folder_outlives_one_write_and_is_refused_after_two(
    ask: Callable[[storage.Folder, str], Any], folder: Path
) -> None:
    name = "keys" if ask is storage.Folder.table else "numbers"
    opened = storage.read(folder, "model")
    held = opened.tensors("numbers")["values"]
    write(folder, 2)
    assert version_in(opened) == 1
    write(folder, 3)
    with pytest.raises(UserError) as caught:
        ask(opened, name)
    gone = opened.manifest["files"][name]["file"]
    assert (
        str(caught.value)
        == f"{folder} was replaced since it was opened, and {gone} no longer exists"
    )
    assert caught.value.hint == "open it again"
    assert torch.equal(held, torch.ones(5, 3))  # mapped: valid as long as it is referenced
    opened = storage.read(folder, "model")
    current = opened.file(name)
    current.unlink()
    with pytest.raises(UserError, match=f"is damaged: {current.name} is missing"):
        ask(opened, name)


def test_a_file_that_vanishes_while_parsing_is_not_called_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser of tensors opens a file twice, and has its own error for a missing one."""
    opened = storage.read(folder)
    real = torch.UntypedStorage.from_file

    def write_and_open(*arguments: Any, **options: Any) -> Any:
        for version in (2, 3):
            write(folder, version)
        return real(*arguments, **options)

    monkeypatch.setattr(torch.UntypedStorage, "from_file", write_and_open)
    with pytest.raises(UserError, match="was replaced since it was opened"):
        opened.tensors("numbers")


WRITER = """
import os, sys
from pathlib import Path
import polars as pl, torch
from rankfold import storage
os.fsync = lambda handle: None  # faster than any disk
for version in range(1, int(sys.argv[2]) + 1):
    keys = pl.DataFrame({"key": [f"{version}-{row}" for row in range(4)]})
    numbers = {"values": torch.full((5, 3), float(version)), "all": torch.ones(3) > 0}
    files = {"numbers": numbers, "keys": keys}
    storage.write(Path(sys.argv[1]), "model", {"version": version}, files)
"""


def test_a_reader_beside_a_writer_always_sees_one_version(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write(path, 0)
    versions, outrun = [0], 0
    with subprocess.Popen([sys.executable, "-c", WRITER, path, "300"]) as writer:
        while writer.poll() is None:
            opened = storage.read(path, "model", full=True)
            try:
                versions.append(version_in(opened))
            except UserError as error:  # two more writes since ``read``
                assert "was replaced since it was opened" in str(error)  # noqa: PT017
                outrun += 1
    assert writer.returncode == 0
    assert version_at(path) == 300
    assert versions == sorted(versions)
    assert len(set(versions)) > 20
    assert outrun < len(versions)
    assert len(names(path)) == 5
