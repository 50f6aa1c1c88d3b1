"""Writing a folder: data files first, then the manifest, which is replaced atomically."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankfold.errors import UserError
from rankfold.storage.destination import check_writable, sync_folder, target, write_errors
from rankfold.storage.manifest import (
    FORMAT,
    HEAD,
    MANIFEST,
    NAME,
    Content,
    ForeignFile,
    ReusedFile,
    damaged,
    digest,
    dump,
    versions,
)

if TYPE_CHECKING:
    from rankfold.types import Comm

CHUNK = 2**24  # bytes written at a time


def write(
    path: Path,
    kind: str,
    meta: Mapping[str, Any],
    files: Mapping[str, Content],
    comm: Comm | None = None,
) -> None:
    """Make ``path`` a folder that holds ``files``, or leave it unchanged.

    Args:
        path: a new folder, or one written by this function, which is replaced.
        kind: what the folder is, such as ``"model"``; readers check it.
        meta: plain JSON values, stored in the manifest.
        files: content by name: tensors (safetensors), a table (Parquet), a text (JSON), a file in
            another library's format, or a file of an opened folder.
        comm: several processes on one file system that write together, no two of them the same
            name. Rank 0 writes the manifest, with its own ``meta``, after all files.
    """
    if comm is not None and comm.rank > 0:
        folder = Path(comm.texts("")[0])
        comm.texts(json.dumps(_write_files(folder, files)))
        comm.barrier()
        return
    check_writable(path, kind)
    with write_errors(path), target(path.absolute()) as folder:
        if comm is not None:
            comm.texts(str(folder))
        entries = _write_files(folder, files)
        if comm is not None:
            for text in comm.texts(json.dumps(entries)):
                entries |= json.loads(text)
        about = {"format": FORMAT, "kind": kind, "versions": versions(), **meta, "files": entries}
        _replace(folder / MANIFEST, dump(about))
    if comm is not None:
        comm.barrier()


def write_text(path: Path, text: str) -> None:
    """Write a text file outside rankfold's folders, atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text.encode())
    except OSError as error:
        with suppress(OSError):
            path.with_name(f".writing-{path.name}").unlink()
        raise UserError(
            f"cannot write {path}: {error.strerror}",
            hint="choose another place, or free some space",
        ) from None


def to_json(document: Mapping[str, Any], indent: int | None = None) -> str:
    """The text of a document, with a final newline.

    JSON has no NaN and no infinity. Python's own writer writes them anyway, and strict readers such
    as ``jq`` and browsers then refuse the whole document.
    """
    plain = _finite(document)
    return json.dumps(plain, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_files(folder: Path, files: Mapping[str, Content]) -> dict[str, dict[str, Any]]:
    """Write all files; their manifest entries by name."""
    return {name: _write_file(folder, name, content) for name, content in files.items()}


def _write_file(folder: Path, name: str, content: Content) -> dict[str, Any]:
    assert NAME.fullmatch(name), name  # otherwise it would never be swept
    if isinstance(content, ReusedFile):
        return _reuse(folder, name, content)
    temporary = folder / f".writing-{name}"
    if isinstance(content, ForeignFile):
        content.write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        suffix, sha256 = content.suffix, digest(temporary)
    elif isinstance(content, Mapping):
        from rankfold.storage.tensors import tensor_bytes  # needs torch

        suffix, sha256 = "safetensors", _write_bytes(temporary, tensor_bytes(content))
    elif isinstance(content, str):
        suffix, sha256 = "json", _write_bytes(temporary, [content.encode()])
    else:  # not written to a path: Polars expands patterns and ``~`` in paths
        buffer = io.BytesIO()
        content.write_parquet(buffer)
        suffix, sha256 = "parquet", _write_bytes(temporary, [buffer.getbuffer()])
    entry: dict[str, Any] = {
        "file": f"{name}-{sha256[:16]}.{suffix}",
        "size": temporary.stat().st_size,
        "head": digest(temporary, HEAD),
        "sha256": sha256,
    }
    temporary.replace(folder / entry["file"])
    return entry


def _reuse(folder: Path, name: str, reused: ReusedFile) -> dict[str, Any]:
    """The entry of a file that is already in ``folder``, or is copied into it."""
    source = reused.folder / reused.entry["file"]
    if not source.exists():
        raise UserError(f"{reused.folder} was replaced since it was opened", hint="open it again")
    if not (folder.exists() and reused.folder.samefile(folder)):
        temporary = folder / f".writing-{name}"
        with source.open("rb") as file:
            copied = _write_bytes(temporary, iter(lambda: file.read(CHUNK), b""))
        if copied != reused.entry["sha256"]:
            raise damaged(reused.folder, f"{source.name} does not match its checksum")
        temporary.replace(folder / source.name)
    return dict(reused.entry)


def _write_bytes(path: Path, pieces: Iterable[bytes | memoryview]) -> str:
    """Write a file, flush it to disk and return its sha256."""
    sha256 = hashlib.sha256()
    with path.open("wb") as file:
        for piece in pieces:
            for start in range(0, len(piece), CHUNK):
                file.write(piece[start : start + CHUNK])
                sha256.update(piece[start : start + CHUNK])
        file.flush()
        os.fsync(file.fileno())
    return sha256.hexdigest()


def _replace(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` atomically: a reader sees all of it, or the previous file."""
    temporary = path.with_name(f".writing-{path.name}")
    _write_bytes(temporary, [content])
    sync_folder(path.parent)  # the files that a manifest names must be on disk before it is
    temporary.replace(path)
    with suppress(OSError):  # it is done; at worst a power cut undoes it
        sync_folder(path.parent)
